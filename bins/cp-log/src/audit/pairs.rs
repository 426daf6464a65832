//! Entries that belong together: each end of a command, of a tool call or of a request to a model has one start; a start without an end is
//! unfinished, which is not a fault. What a command started names that command. And the entries of command lines, whose event, status and
//! code must agree.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;

use cp_common::{Code, Result};
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// The ledger, the kind and the name of a pair.
type Key = (PathBuf, &'static str, String);

/// The starts without an end so far, and the ends without a start.
#[derive(Default)]
struct Open {
    starts: Vec<Source>,
    ends: Vec<Source>,
    has_ended: bool,
}

/// The pairs that were read.
#[derive(Default)]
pub(super) struct Pairs {
    open: BTreeMap<Key, Open>,
    /// The commands of each ledger.
    commands: HashMap<PathBuf, HashSet<u64>>,
    /// What names a command that was not read yet, with its number.
    parts: Vec<(Source, u64)>,
}

impl Pairs {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let intent = || entry.number("intent").map_or("?".to_owned(), |seq| seq.to_string());
        let request = || {
            let attempt = entry.number("attempt").unwrap_or_default();
            let hash = entry.text("request_hash").unwrap_or_default();
            // The rows of a batch are under way at the same time, and two may be the same.
            entry.text("batch").map_or_else(|| format!("{hash} try {attempt}"), |row| format!("{hash} in {row}"))
        };
        let call = || {
            let of = |name: &Option<String>| name.clone().unwrap_or_default();
            let turn = entry.turn.unwrap_or_default();
            format!("{} in turn {turn} of {}", entry.text("id").unwrap_or("?"), of(&entry.run))
        };
        let (kind, is_start, name) = match entry.event.as_str() {
            "exec.intent" => {
                self.commands.entry(entry.ledger.to_owned()).or_default().insert(entry.seq);
                ("command", true, entry.seq.to_string())
            }
            "exec.result" => ("command", false, intent()),
            "llm.request" => ("request", true, request()),
            // A response from a recording has no request.
            "llm.response" if entry.data.get("cached") == Some(&Value::Bool(true)) => return Ok(()),
            "llm.response" => ("request", false, request()),
            "tool_call" => ("call", true, call()),
            "tool_result" => ("call", false, call()),
            "mcp.call" => ("call", true, entry.seq.to_string()),
            "mcp.result" => ("call", false, entry.number("call").map_or("?".to_owned(), |seq| seq.to_string())),
            // An edit or an undo has no command.
            "exec.changes" if entry.data.get("intent").is_none() => return Ok(()),
            "exec.step" | "exec.evidence" | "exec.changes" => return self.part(entry, claims),
            "command" | "error" => return exit(entry, claims),
            _ => return Ok(()),
        };
        let open = self.open.entry((entry.ledger.to_owned(), kind, name)).or_default();
        // A call that waits for approval is begun again when its run goes on.
        if kind == "call" && is_start && (open.has_ended || !open.starts.is_empty()) {
            return Ok(());
        }
        let (own, other) =
            if is_start { (&mut open.starts, &mut open.ends) } else { (&mut open.ends, &mut open.starts) };
        let Some(found) = other.pop() else {
            own.push(entry.source());
            return Ok(());
        };
        open.has_ended = true;
        claims.record(if is_start { found } else { entry.source() }, "finished", Verdict::Holds)
    }

    /// Judges an entry that names its command.
    fn part(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let intent = entry.number("intent").unwrap_or(u64::MAX);
        if self.commands.get(entry.ledger).is_some_and(|known| known.contains(&intent)) {
            return claims.record(entry.source(), "step", Verdict::Holds);
        }
        self.parts.push((entry.source(), intent));
        Ok(())
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for ((_, kind, name), open) in self.open {
            for source in open.starts {
                let why = format!("the {kind} has no result: it is unfinished");
                claims.record(source, "finished", Verdict::Unknown(why))?;
            }
            for source in open.ends {
                let why = format!("the {kind} {name} was not begun, or has another end");
                claims.record(source, "finished", Verdict::Broken(why))?;
            }
        }
        for (source, intent) in self.parts {
            let is_there = self.commands.get(&source.ledger).is_some_and(|known| known.contains(&intent));
            let verdict = Verdict::when(is_there, || "its command is not on the ledger".to_owned());
            claims.record(source, "step", verdict)?;
        }
        Ok(())
    }
}

fn exit(entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
    let (Some(exit), Some(code)) = (entry.number("exit"), entry.data.get("code")) else {
        let is_of_program = entry.data.contains_key("program");
        let verdict = Verdict::Broken("it has no status, or no code".to_owned());
        return if is_of_program { claims.record(entry.source(), "exit", verdict) } else { Ok(()) };
    };
    let row = code.as_str().and_then(Code::from_name).map(|code| u64::from(code.row().exit));
    let verdict = match (entry.event.as_str(), code.as_str(), row) {
        ("command", None, _) => Verdict::when(exit == 0, || format!("it succeeded, with status {exit}")),
        ("command", Some(code), _) => Verdict::Broken(format!("it succeeded, with {code}")),
        (_, _, Some(row)) => Verdict::when(exit == row, || format!("{code} is status {row}, not {exit}")),
        (_, Some(code), None) => Verdict::Broken(format!("{code} is not an error code")),
        // A program that answers in another wire has a status and no code.
        (_, None, None) => Verdict::when(exit != 0, || "it failed, with status 0".to_owned()),
    };
    claims.record(entry.source(), "exit", verdict)
}
