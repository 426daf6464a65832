//! Pairs of entries: a command, a tool call or a request to a model that began must end exactly once; without an end it is unfinished,
//! which is not a fault. And the entries of command lines, whose event, status and code must agree.

use std::collections::HashMap;

use cp_common::{Code, Result};
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// Pairs of entries of which the second was not read yet.
#[derive(Default)]
pub(super) struct Pairs {
    open: HashMap<(String, &'static str, String), Source>,
    /// The exit status of each command that a tool's result may name by its receipt.
    exits: HashMap<String, Option<i64>>,
}

/// The effect of an entry on a pair.
enum Part {
    Begins,
    Ends,
}

impl Pairs {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let seq = || entry.seq.to_string();
        let intent = || entry.number("intent").map_or("?".to_owned(), |seq| seq.to_string());
        let id = || entry.text("id").unwrap_or_default().to_owned();
        let request = || {
            let attempt = entry.number("attempt").unwrap_or_default();
            let hash = entry.text("request_hash").unwrap_or_default();
            // The rows of a batch are under way at the same time, and two may be the same.
            entry.text("batch").map_or_else(|| format!("{hash} try {attempt}"), |row| format!("{hash} in {row}"))
        };
        let (kind, part, name) = match entry.event.as_str() {
            "exec.intent" => ("command", Part::Begins, seq()),
            "exec.result" => ("command", Part::Ends, intent()),
            "tool_call" => ("tool call", Part::Begins, id()),
            "tool_result" => ("tool call", Part::Ends, id()),
            "llm.request" => ("request", Part::Begins, request()),
            // A response from a recording has no request.
            "llm.response" if entry.data.get("cached") == Some(&Value::Bool(true)) => return Ok(()),
            "llm.response" => ("request", Part::Ends, request()),
            "command" | "error" => return exit(entry, claims),
            _ => return Ok(()),
        };
        let key = (entry.scope(), kind, name);
        match part {
            Part::Begins => {
                // Begun again after a stop: the call before it never ended.
                if let Some(before) = self.open.insert(key.clone(), entry.source()) {
                    claims.record(before, "finished", unfinished(&key))?;
                }
            }
            Part::Ends => {
                let begun = self.open.remove(&key);
                let verdict = match begun {
                    Some(_) => Verdict::Holds,
                    // A call that was not permitted is answered without being started.
                    None if kind == "tool call" => return Ok(()),
                    None => Verdict::Broken(format!("the {kind} {} was not begun, or has ended before", key.2)),
                };
                claims.record(entry.source(), "finished", verdict)?;
            }
        }
        self.status(entry, claims)
    }

    /// The status of a tool has to be that of its command.
    fn status(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let number = |name: &str| entry.data.get(name).and_then(Value::as_i64);
        if entry.event == "exec.result" {
            let place = format!("{}\n{}", entry.ledger.display(), entry.seq);
            self.exits.insert(place, number("return_code"));
        }
        let Some(receipt) = entry.data.get("receipt").filter(|_| entry.event == "tool_result") else { return Ok(()) };
        let (Some(ledger), Some(seq)) = (receipt["ledger"].as_str(), receipt["seq"].as_u64()) else { return Ok(()) };
        let Some(status) = self.exits.remove(&format!("{ledger}\n{seq}")) else { return Ok(()) };
        let claimed = number("exit_code");
        let why = || format!("the tool result has the status {claimed:?}, its command {status:?}");
        claims.record(entry.source(), "exit", Verdict::when(claimed == status || claimed.is_none(), why))
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        let mut open: Vec<_> = self.open.into_iter().collect();
        open.sort_by(|(_, a), (_, b)| (&a.ledger, a.seq).cmp(&(&b.ledger, b.seq)));
        for (key, source) in open {
            claims.record(source, "finished", unfinished(&key))?;
        }
        Ok(())
    }
}

fn unfinished((_, kind, _): &(String, &'static str, String)) -> Verdict {
    Verdict::Unknown(format!("the {kind} has no result: it is unfinished"))
}

fn exit(entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
    let (Some(exit), Some(code)) = (entry.number("exit"), entry.data.get("code")) else { return Ok(()) };
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
