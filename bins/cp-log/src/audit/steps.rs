//! Entries that belong together: a command, a tool call or a request to a model that began must end exactly once; without an end it is
//! unfinished, which is not a fault. Each step of a command belongs to a running command, and the counts on its result are those of its
//! steps. And the entries of command lines, whose event, status and code must agree.

use std::collections::HashMap;

use cp_common::{Code, Result};
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// The steps of one command.
#[derive(Default)]
struct Seen {
    line: u64,
    programs: u64,
    denied: u64,
    /// For each approval the number of steps that required it, and how often it was spent after that.
    asked: HashMap<String, (u64, u64)>,
}

/// The steps of the commands that have begun and not ended, by the scope and the number of the intent.
#[derive(Default)]
pub(super) struct Steps(HashMap<(String, u64), Seen>);

impl Steps {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let key = || (entry.scope(), entry.number("intent").unwrap_or(u64::MAX));
        match entry.event.as_str() {
            "exec.intent" => {
                self.0.insert((entry.scope(), entry.seq), Seen::default());
                Ok(())
            }
            "exec.step" => {
                let verdict = match self.0.get_mut(&key()) {
                    Some(seen) => seen.add(entry),
                    None => Verdict::Broken("its command was not begun, or has ended before".to_owned()),
                };
                claims.record(entry.source(), "step", verdict)
            }
            "exec.request" if !self.0.contains_key(&key()) => claims.record(
                entry.source(),
                "step",
                Verdict::Broken("its command was not begun, or has ended before".to_owned()),
            ),
            "approval.spent" => {
                let id = entry.text("id").unwrap_or_default();
                self.0.values_mut().filter_map(|seen| seen.asked.get_mut(id)).for_each(|(_, spent)| *spent += 1);
                Ok(())
            }
            "exec.result" => {
                let seen = self.0.remove(&key());
                let (Some(seen), Some(counts)) = (seen, entry.data.get("steps")) else { return Ok(()) };
                claims.record(entry.source(), "steps", seen.compare(counts))
            }
            _ => Ok(()),
        }
    }
}

impl Seen {
    /// Counts a step.
    fn add(&mut self, entry: &Entry<'_>) -> Verdict {
        match entry.text("by") {
            Some("line") => self.line += 1,
            Some("program") => self.programs += 1,
            by => return Verdict::Broken(format!("{by:?} is not `line` or `program`")),
        }
        match (entry.text("decision"), entry.text("approval")) {
            (Some("allow"), None) => {}
            (Some("deny"), None) => self.denied += 1,
            (Some("ask"), Some(id)) => self.asked.entry(id.to_owned()).or_default().0 += 1,
            (Some("ask"), None) => return Verdict::Broken("it required approval, and names none".to_owned()),
            (decision, approval) => {
                return Verdict::Broken(format!("the decision {decision:?} and the approval {approval:?} contradict"));
            }
        }
        Verdict::Holds
    }

    /// Compares the counts on a result with the steps. A step that required approval and is not counted as denied was started, and only a spent
    /// approval permits that.
    fn compare(&self, counts: &Value) -> Verdict {
        // A count that is absent is not that of the entries.
        let count = |name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or(1 << 40);
        let (line, programs, denied) = (count("line"), count("programs"), count("denied"));
        let recorded = self.line + self.programs;
        if line < self.line || programs < self.programs || line + programs != recorded + count("unrecorded") {
            return Verdict::Broken(format!("{recorded} steps are recorded, the result counts {counts}"));
        }
        let asked: u64 = self.asked.values().map(|(asked, _)| asked).sum();
        let spent: u64 = self.asked.values().map(|(asked, spent)| asked.min(spent)).sum();
        let started = (self.denied + asked).checked_sub(denied);
        match started.filter(|started| *started <= asked) {
            None => Verdict::Broken(format!(
                "{} steps were refused and {asked} required approval, the result counts {denied} denied",
                self.denied
            )),
            Some(started) => Verdict::when(started <= spent, || {
                format!("{started} steps that required approval were started, and {spent} approvals were spent")
            }),
        }
    }
}

/// Pairs of entries of which the second was not read yet.
#[derive(Default)]
pub(super) struct Pairs {
    open: HashMap<(String, &'static str, String), Source>,
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
        let request = || {
            let attempt = entry.number("attempt").unwrap_or_default();
            let hash = entry.text("request_hash").unwrap_or_default();
            // The rows of a batch are under way at the same time, and two may be the same.
            entry.text("batch").map_or_else(|| format!("{hash} try {attempt}"), |row| format!("{hash} in {row}"))
        };
        let (kind, part, name) = match entry.event.as_str() {
            "exec.intent" => ("command", Part::Begins, seq()),
            "exec.result" => ("command", Part::Ends, intent()),
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
                    None => Verdict::Broken(format!("the {kind} {} was not begun, or has ended before", key.2)),
                };
                claims.record(entry.source(), "finished", verdict)?;
            }
        }
        Ok(())
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
