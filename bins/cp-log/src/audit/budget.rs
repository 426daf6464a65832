//! Budgets: what a run says it has used is the sum of what its entries say, and within its limit of turns.

use std::collections::HashMap;

use cp_common::Result;
use serde_json::Value;

use super::claim::{Claims, Entry, Verdict};

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
