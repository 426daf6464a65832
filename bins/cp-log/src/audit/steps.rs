//! Steps: the programs that a command started or was refused, and the commands that these programs requested. Each step belongs to a
//! running command, and the counts on the command's result are those of its steps.

use std::collections::HashMap;

use cp_common::Result;
use serde_json::Value;

use super::claim::{Claims, Entry, Verdict};

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
        let count = |name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or_default();
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
