//! Decisions and budgets: a start that requires approval has one, an approval permits one start, and a denied call was not started. The usage
//! that a run claims is the sum over its entries, and within its limit of turns.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use cp_common::Result;
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// The decisions so far.
#[derive(Default)]
pub(super) struct Decisions {
    /// Each granted approval, by its ledger and id, and how often it was spent. Approvals do not belong to a run.
    granted: HashMap<(PathBuf, String), (Source, u64)>,
    /// Each denied approval, by its scope and call.
    denied: HashMap<(String, String), Source>,
    /// The tokens that were spent, and for what: one token may cover a set, but each member of it once.
    spent: HashSet<String>,
}

impl Decisions {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let key = |name: &str| (entry.scope(), entry.text(name).unwrap_or_default().to_owned());
        let approval = || (entry.ledger.to_owned(), entry.text("id").unwrap_or_default().to_owned());
        match entry.event.as_str() {
            "approval.granted" => {
                if let Some(source) = self.denied.remove(&key("call")) {
                    claims.record(source, "approval", Verdict::Holds)?;
                }
                let before = self.granted.insert(approval(), (entry.source(), 0));
                before.map_or(Ok(()), |before| settle(before, claims))
            }
            "approval.denied" => {
                let before = self.denied.insert(key("call"), entry.source());
                before.map_or(Ok(()), |source| claims.record(source, "approval", Verdict::Holds))
            }
            // A grant from another ledger is found by its receipt.
            "approval.spent" => match self.granted.get_mut(&approval()) {
                None => Ok(()),
                Some((_, spent)) => {
                    *spent += 1;
                    if *spent == 1 {
                        return Ok(());
                    }
                    let why = "approved once, run again".to_owned();
                    claims.record(entry.source(), "approval", Verdict::Broken(why))
                }
            },
            "tool_call" if self.denied.contains_key(&key("id")) => {
                let why = "denied, but run".to_owned();
                claims.record(entry.source(), "approval", Verdict::Broken(why))
            }
            "exec.intent" => self.token(entry, entry.data.get("requires"), entry.data.get("confirmed"), claims),
            "exec.operation" => {
                let what = entry.data.get("what");
                let first = what.and_then(|what| what.get("writes")).and_then(|writes| writes.get(0));
                let replaces = first.filter(|write| write.get("mode").is_some_and(|mode| mode == "overwrite"));
                self.token(entry, replaces, what.and_then(|what| what.get("confirmed")), claims)
            }
            _ => Ok(()),
        }
    }

    /// Judges the token of a start that required confirmation: it must be present, and no other start may have spent it.
    fn token(
        &mut self,
        entry: &Entry<'_>,
        requires: Option<&Value>,
        confirmed: Option<&Value>,
        claims: &mut Claims<'_>,
    ) -> Result<()> {
        let must_be = requires.is_some_and(|what| !what.is_null());
        let verdict = match confirmed.and_then(Value::as_str) {
            None if must_be => Verdict::Broken("required confirmation, run without it".to_owned()),
            None => return Ok(()),
            Some(token) => {
                let what = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name));
                let what = what.map(str::to_owned).or_else(|| entry.data.get("what").map(Value::to_string));
                let stage = entry.number("stage").unwrap_or_default();
                let is_first = self.spent.insert(format!("{token}\n{stage}\n{}", what.unwrap_or_default()));
                Verdict::when(is_first, || "its token was spent before".to_owned())
            }
        };
        claims.record(entry.source(), "approval", verdict)
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for source in in_order(self.denied.into_values(), |source| source) {
            claims.record(source, "approval", Verdict::Holds)?;
        }
        in_order(self.granted.into_values(), |granted| &granted.0).into_iter().try_for_each(|each| settle(each, claims))
    }
}

fn in_order<T>(all: impl Iterator<Item = T>, source: impl Fn(&T) -> &Source) -> Vec<T> {
    let mut all: Vec<T> = all.collect();
    all.sort_by(|a, b| (&source(a).ledger, source(a).seq).cmp(&(&source(b).ledger, source(b).seq)));
    all
}

/// Closes a grant, to which nothing more can happen. Contradictions were reported with their entries.
fn settle((source, spent): (Source, u64), claims: &mut Claims<'_>) -> Result<()> {
    let verdict = match spent {
        0 => Verdict::Unknown("approved, never run".to_owned()),
        _ => Verdict::Holds,
    };
    claims.record(source, "approval", verdict)
}

/// The members of a usage that count tokens.
const TOKENS: [&str; 4] = ["input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"];

/// The sums over the entries of a run.
#[derive(Default)]
struct Sum {
    iterations: u64,
    tool_calls: u64,
    tool_errors: u64,
    tokens: [u64; TOKENS.len()],
    max_iterations: Option<u64>,
    was_resumed: bool,
}

/// The sums of the runs, until each is over.
#[derive(Default)]
pub(super) struct Budgets(HashMap<String, Sum>);

impl Budgets {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        if entry.run.is_none() {
            return Ok(());
        }
        let scope = entry.scope();
        let limits = || entry.data.get("limits").and_then(|limits| limits.get("max_iterations")?.as_u64());
        match entry.event.as_str() {
            "run_start" => {
                self.0.insert(scope, Sum { max_iterations: limits(), ..Sum::default() });
            }
            "run_resumed" => {
                if let Some(sum) = self.0.get_mut(&scope) {
                    (sum.max_iterations, sum.was_resumed) = (limits(), true);
                }
            }
            "message" | "context_compacted" => {
                if let Some(sum) = self.0.get_mut(&scope) {
                    sum.iterations += u64::from(entry.event == "message");
                    let used = entry.data.get("usage");
                    for (total, name) in sum.tokens.iter_mut().zip(TOKENS) {
                        *total += used.and_then(|used| used.get(name)?.as_u64()).unwrap_or_default();
                    }
                }
            }
            "tool_result" => {
                if let Some(sum) = self.0.get_mut(&scope) {
                    sum.tool_calls += 1;
                    sum.tool_errors += u64::from(entry.data.get("is_error") == Some(&Value::Bool(true)));
                }
            }
            "run_paused" | "run_end" => {
                let Some(tally) = entry.data.get("tally") else { return Ok(()) };
                let verdict = self.0.get(&scope).map_or_else(
                    || Verdict::Unknown("the beginning of the run is on no ledger that was read".to_owned()),
                    |sum| sum.judge(tally),
                );
                claims.record(entry.source(), "budget", verdict)?;
                if entry.event == "run_end" {
                    self.0.remove(&scope);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

impl Sum {
    fn judge(&self, tally: &Value) -> Verdict {
        let number = |value: &Value, name: &str| value.get(name).and_then(Value::as_u64).unwrap_or_default();
        // The tally includes agents, whose entries are on the ledgers of their own runs.
        let has_agents = number(tally, "agent_iterations") > 0;
        let usage = tally.get("usage").cloned().unwrap_or_default();
        let counts = [
            ("iterations", self.iterations, number(tally, "iterations"), false),
            ("tool_calls", self.tool_calls, number(tally, "tool_calls"), false),
            ("tool_errors", self.tool_errors, number(tally, "tool_errors"), false),
        ];
        let tokens = self.tokens.iter().zip(TOKENS).map(|(sum, name)| (name, *sum, number(&usage, name), has_agents));
        let differs = |sum: u64, said: u64, at_least: bool| if at_least { said < sum } else { said != sum };
        let first = counts.into_iter().chain(tokens).find(|(_, sum, said, more)| differs(*sum, *said, *more));
        match (first, self.max_iterations) {
            (Some((name, sum, said, _)), _) if self.was_resumed && sum > said => Verdict::Unknown(format!(
                "the entries have {sum} {name}, the run says {said}: it was stopped between an entry and its count"
            )),
            (Some((name, sum, said, _)), _) => {
                Verdict::Broken(format!("the entries have {sum} {name}, the run says {said}"))
            }
            (None, Some(most)) if number(tally, "iterations") > most => {
                Verdict::Broken(format!("{} turns were taken, {most} were allowed", number(tally, "iterations")))
            }
            (None, _) => Verdict::Holds,
        }
    }
}
