//! Decisions: what needed one has it, each is good for one start, and what was denied was not started.

use std::collections::{HashMap, HashSet};

use cp_common::Result;
use serde_json::Value;

use super::claim::{Claims, Source, Verdict};
use super::entry::Entry;

/// What became of a call that was decided about.
enum Decided {
    /// It may be started; how often it was.
    Approved(Source, u64),
    Denied(Source),
}

/// The decisions so far.
#[derive(Default)]
pub(super) struct Decisions {
    calls: HashMap<(String, String), Decided>,
    /// The tokens that were spent, and for what: one token may cover a set, but each member of it once.
    spent: HashSet<String>,
}

impl Decisions {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let key = |name: &str| (entry.scope(), entry.text(name).unwrap_or_default().to_owned());
        match entry.event.as_str() {
            "approved" => {
                let before = self.calls.insert(key("call"), Decided::Approved(entry.source(), 0));
                before.map_or(Ok(()), |before| settle(before, claims))
            }
            "denied" => {
                let before = self.calls.insert(key("call"), Decided::Denied(entry.source()));
                before.map_or(Ok(()), |before| settle(before, claims))
            }
            "tool_call" => match self.calls.get_mut(&key("id")) {
                None => Ok(()),
                Some(Decided::Denied(_)) => {
                    let why = "it was denied, and started all the same".to_owned();
                    claims.say(entry.source(), "approval", Verdict::Broken(why))
                }
                Some(Decided::Approved(_, starts)) => {
                    *starts += 1;
                    if *starts == 1 {
                        return Ok(());
                    }
                    let why = "it was approved once, and started again".to_owned();
                    claims.say(entry.source(), "approval", Verdict::Broken(why))
                }
            },
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

    /// What had to be confirmed has the token that was spent, and no other start has spent it.
    fn token(
        &mut self,
        entry: &Entry<'_>,
        requires: Option<&Value>,
        confirmed: Option<&Value>,
        claims: &mut Claims<'_>,
    ) -> Result<()> {
        let must_be = requires.is_some_and(|what| !what.is_null());
        let verdict = match confirmed.and_then(Value::as_str) {
            None if must_be => Verdict::Broken("it had to be confirmed, and was not".to_owned()),
            None => return Ok(()),
            Some(token) => {
                let what = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name));
                let what = what.map(str::to_owned).or_else(|| entry.data.get("what").map(Value::to_string));
                let stage = entry.number("stage").unwrap_or_default();
                let is_first = self.spent.insert(format!("{token}\n{stage}\n{}", what.unwrap_or_default()));
                Verdict::when(is_first, || "its token was spent before".to_owned())
            }
        };
        claims.say(entry.source(), "approval", verdict)
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        let mut rest: Vec<Decided> = self.calls.into_values().collect();
        rest.sort_by_key(|decided| match decided {
            Decided::Approved(source, _) | Decided::Denied(source) => (source.ledger.clone(), source.seq),
        });
        rest.into_iter().try_for_each(|decided| settle(decided, claims))
    }
}

/// Says of a decision that nothing more can happen to it. What contradicts it was said when it came.
fn settle(decided: Decided, claims: &mut Claims<'_>) -> Result<()> {
    match decided {
        Decided::Approved(source, 0) => {
            claims.say(source, "approval", Verdict::Unknown("what was approved was not started".to_owned()))
        }
        Decided::Approved(source, _) | Decided::Denied(source) => claims.say(source, "approval", Verdict::Holds),
    }
}
