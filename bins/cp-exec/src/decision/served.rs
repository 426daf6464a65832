//! Read-only commands, and the tools that serve them: a tool call reads, lists and asks without a process.

use cp_common::context::options::Origin;
use cp_common::{Code, Error, Result};

use crate::arguments::Arguments;
use crate::policy::{Intent, Policy};
use crate::refusal::refuse;

/// What a command would be better asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Served {
    /// The operation that serves it.
    by: &'static str,
    /// A request that asks for it.
    request: &'static str,
}

const READ: Served = Served {
    by: "filesystem.read_file",
    request: r#"{"tool":"filesystem","operation":"read_file","arguments":{"path":"…"}}"#,
};
const LIST: Served = Served {
    by: "filesystem.list_directory",
    request: r#"{"tool":"filesystem","operation":"list_directory","arguments":{"path":"…"}}"#,
};
const FIND: Served = Served {
    by: "filesystem.find",
    request: r#"{"tool":"filesystem","operation":"find","arguments":{"path":"…","glob":"…"}}"#,
};
const ASK: Served =
    Served { by: "system.get_info", request: r#"{"tool":"system","operation":"get_info","arguments":{}}"# };

/// The operation that serves a command, if one does. A `find` that changes or runs something is not read-only.
pub(super) fn served(arguments: &Arguments<'_>) -> Option<Served> {
    match arguments.name() {
        "cat" | "head" | "tail" | "less" | "more" | "tac" | "nl" => Some(READ),
        "ls" | "dir" | "vdir" => Some(LIST),
        "find" if !arguments.has_option(&ACTS) => Some(FIND),
        "uname" | "whoami" | "hostname" | "arch" | "nproc" => Some(ASK),
        _ => None,
    }
}

/// By which `find` runs, deletes or writes.
const ACTS: [&str; 9] = ["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"];

/// A program's or a model's read-only command is refused with the tool that serves it.
pub(super) fn redirect(policy: &Policy, served: Option<Served>, notices: &mut Vec<String>) -> Result<()> {
    let Some(served) = served else { return Ok(()) };
    // Another agent has no tools of ours.
    let person = policy.actor.origin == Origin::Person || policy.actor.host.is_some();
    match policy.exec().intent {
        Intent::Off => Ok(()),
        Intent::Enforce if !person => Err(refuse(
            "intent",
            format!("read-only command: `{}` does the same without starting a process", served.by),
        )),
        Intent::Enforce | Intent::Warn => {
            notices.push(format!("`{}` would do the same without starting a process", served.by));
            Ok(())
        }
    }
}

/// Adds the tool that serves a refused command to its refusal.
pub(super) fn point_to(error: Error, policy: &Policy, served: Option<Served>) -> Error {
    match served {
        Some(served) if policy.exec().intent != Intent::Off && error.code() == Code::Forbidden => {
            let request = format!("send {}", served.request);
            let hint = match error.hint_text() {
                Some(hint) if policy.loaded.file.is_none() => hint.to_owned(),
                Some(hint) => format!("{request}; {hint}"),
                None => request,
            };
            error.with("use", served.by).hint(hint)
        }
        _ => error,
    }
}
