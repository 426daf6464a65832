//! `cp-exec approve`: a person agrees to one command, on a terminal.

use std::io::{BufRead, BufReader, IsTerminal, Write};

use cp_common::output::printable;
use cp_common::program::confirm::issue;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result, clock};
use serde::Serialize;

use crate::decision::confirm::{Pending, approved_file, pending_directory};

pub(crate) const DOC: VerbDoc =
    VerbDoc { path: "approve", class: Class::Append, output: "approvals", examples: &["{} approve"], ..VerbDoc::EMPTY };

/// Approve a command that waits for a person, or list all that wait
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command's id; without it, all waiting commands are listed
    #[arg(value_name = "ID")]
    id: Option<String>,
}

/// What waits for a person.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "approvals"))]
pub(crate) struct Approvals {
    /// The commands.
    items: Vec<Pending>,
    /// How many there are.
    count: usize,
    /// The token of the one that was approved now.
    confirm_token: Option<String>,
    /// When the token expires.
    expires_at: Option<String>,
}

impl Reply for Approvals {
    fn text(&self) -> String {
        let lines = self.items.iter().map(|item| format!("{}  {}  ({})", item.id, item.argv.join(" "), item.reason));
        lines.chain(self.confirm_token.iter().map(|token| format!("--confirm {token}"))).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let directory = pending_directory(context.home.root());
    let Some(id) = &args.id else {
        let mut items: Vec<Pending> = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
            .collect();
        items.sort_by(|a, b| a.asked_at.cmp(&b.asked_at));
        let count = items.len();
        return context.out.answer(&Approvals { items, count, confirm_token: None, expires_at: None });
    };
    let plain = !id.is_empty() && id.bytes().all(|c| c.is_ascii_hexdigit());
    let file = directory.join(format!("{id}.json"));
    let missing = || {
        Error::not_found(format!("no command waits for approval under the id `{id}`"))
            .hint("`cp-exec approve` lists the ids")
    };
    let bytes = std::fs::read(&file).ok().filter(|_| plain).ok_or_else(missing)?;
    let pending: Pending = serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(Code::Integrity, format!("cannot be read: {e}")).in_file(&file))?;
    if !agreed(&pending)? {
        return Err(Error::new(Code::Forbidden, "not approved").with("rule", "approval"));
    }
    let (token, expires) = issue(context.home.root(), pending.binding.as_bytes())?;
    // Whoever asks for the same again need not know the token.
    cp_common::home::write_whole(&approved_file(context.home.root(), id), token.as_bytes())?;
    std::fs::remove_file(&file).map_err(|e| Error::io("cannot be removed", e).in_file(&file))?;
    context.out.answer(&Approvals {
        items: vec![pending],
        count: 1,
        confirm_token: Some(token),
        expires_at: Some(clock::from_unix_seconds(expires)),
    })
}

/// Asks on the terminal itself: a pipe has no person at its end.
fn agreed(pending: &Pending) -> Result<bool> {
    let no_terminal = |_| {
        Error::new(Code::HumanRequired, "approval requires a person at a terminal")
            .with("action", "approve_command")
            .with("resume", format!("cp-exec approve {}", pending.id))
    };
    if !std::io::stdin().is_terminal() {
        return Err(no_terminal(std::io::ErrorKind::NotFound.into()));
    }
    let mut terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(no_terminal)?;
    let variables = match pending.variables.as_slice() {
        [] => String::new(),
        names => format!("\n  with {} set, to values that are not shown", names.join(", ")),
    };
    // Debug quoting shows where a word ends; controls of every kind are made visible on the way out.
    let question = format!(
        "{:?}\n  in {:?}{variables}\n  asked by {:?} at {}\n  {}",
        pending.argv, pending.cwd, pending.agent, pending.asked_at, pending.reason
    );
    terminal.write_all(printable(&question).as_bytes())?;
    terminal.write_all(b"\nType `yes` to approve: ")?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
