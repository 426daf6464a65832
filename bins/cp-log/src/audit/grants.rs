//! Approvals: an answer and a step lead to their request, a grant is used once, and what required confirmation has it. The entries may stand
//! in any order, and texts are not compared.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use cp_common::Result;
use cp_common::program::approval::id_of;
use cp_common::wire::{Approval, Receipt};
use serde_json::Value;

use super::claim::{Claims, Entry, Source, Verdict};

/// The requests, grants and starts of all ledgers so far.
#[derive(Default)]
pub(super) struct Grants {
    ledgers: HashSet<PathBuf>,
    /// The ledgers on which a run began, with its name.
    runs: HashSet<(PathBuf, String)>,
    /// The requests by their ledger and id.
    asked: HashSet<(PathBuf, String)>,
    /// The ids of grants by the hashes of their lines.
    granted: HashMap<String, String>,
    /// Entries that name a request, with its id.
    answers: Vec<(Source, String)>,
    /// Uses of grants.
    spent: Vec<Use>,
    /// Commands: the ledger, the line and the hash of each, and the lines of their ends.
    commands: Vec<(PathBuf, Option<u64>, String)>,
    ends: HashMap<(PathBuf, Option<u64>), Option<u64>>,
    /// Requests: the ledger, the id and the line of each.
    waits: Vec<(PathBuf, String, Option<u64>)>,
    /// The calls for which a grant was used.
    calls: HashSet<(PathBuf, String)>,
    starts: Vec<Start>,
    /// The tokens that were spent, and for what: one token may cover a set, but each member of it once.
    tokens: HashSet<String>,
}

/// A use of a grant.
struct Use {
    source: Source,
    id: String,
    receipt: Option<Receipt>,
    call: Option<String>,
}

/// An effect that required confirmation, or has it.
struct Start {
    source: Source,
    run: Option<String>,
    call: Option<String>,
    is_command: bool,
    is_confirmed: bool,
    /// True if nothing before it had its token.
    is_first: bool,
}

impl Grants {
    /// Takes an entry, and judges the id of a request.
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        if !self.ledgers.contains(entry.ledger) {
            self.ledgers.insert(entry.ledger.to_owned());
        }
        let id = || entry.text("id").unwrap_or_default().to_owned();
        match entry.event.as_str() {
            "run_start" => drop(self.runs.insert((entry.ledger.to_owned(), entry.run.clone().unwrap_or_default()))),
            "approval.asked" => {
                self.asked.insert((entry.ledger.to_owned(), id()));
                self.waits.push((entry.ledger.to_owned(), id(), entry.source().seq));
                return claims.record(entry.source(), "approval", id_verdict(entry));
            }
            "approval.granted" => {
                self.granted.insert(entry.hash.clone(), id());
                self.answers.push((entry.source(), id()));
            }
            "approval.denied" => self.answers.push((entry.source(), id())),
            "approval.spent" => {
                let receipt = entry.data.get("receipt").cloned().and_then(|value| serde_json::from_value(value).ok());
                let call = entry.text("call").map(str::to_owned);
                self.calls.extend(call.iter().map(|call| (entry.ledger.to_owned(), call.clone())));
                self.spent.push(Use { source: entry.source(), id: id(), receipt, call });
            }
            "exec.step" => return self.step(entry, claims),
            "exec.intent" => {
                let hash = command_of(entry).unwrap_or_default().to_owned();
                self.commands.push((entry.ledger.to_owned(), entry.source().seq, hash));
                self.start(entry, entry.data.get("requires"), entry.data.get("confirmed"));
            }
            "exec.result" => {
                let command = (entry.ledger.to_owned(), entry.number("intent"));
                self.ends.insert(command, entry.source().seq);
            }
            "exec.changes" if entry.text("operation") == Some("filesystem.write_file") => {
                let change = entry.data.get("files").and_then(|files| files.as_array()?.last()?.get("change"));
                let replaces = change.filter(|change| *change != "created");
                self.start(entry, replaces, entry.data.get("confirmed"));
            }
            _ => {}
        }
        Ok(())
    }

    /// Judges the decision about a step, which names an approval exactly if it required one.
    fn step(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let why = match (entry.text("decision"), entry.text("approval")) {
            (Some("allow" | "deny"), None) => return Ok(()),
            (Some("ask"), Some(id)) => {
                self.answers.push((entry.source(), id.to_owned()));
                return Ok(());
            }
            (Some("ask"), None) => "it required approval, and names none".to_owned(),
            (decision, approval) => {
                let [decision, approval] = [decision, approval].map(|text| text.unwrap_or("null"));
                format!("the decision {decision} and the approval {approval} contradict")
            }
        };
        claims.record(entry.source(), "approval", Verdict::Broken(why))
    }

    fn start(&mut self, entry: &Entry<'_>, requires: Option<&Value>, confirmed: Option<&Value>) {
        let token = confirmed.and_then(Value::as_str);
        if token.is_none() && requires.is_none_or(Value::is_null) {
            return;
        }
        let what = command_of(entry).map(str::to_owned);
        let what = what.or_else(|| entry.data.get("files").map(Value::to_string)).unwrap_or_default();
        let stage = entry.number("stage").unwrap_or_default();
        self.starts.push(Start {
            source: entry.source(),
            run: entry.run.clone(),
            call: entry.text("call").map(str::to_owned),
            is_command: entry.event == "exec.intent",
            is_confirmed: token.is_some(),
            is_first: token.is_none_or(|token| self.tokens.insert(format!("{token}\n{stage}\n{what}"))),
        });
    }

    /// Judges what could not be before all entries were seen.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        let ids: HashSet<&str> = self.asked.iter().map(|(_, id)| id.as_str()).collect();
        let of_runs: HashSet<&Path> = self.runs.iter().map(|(ledger, _)| ledger.as_path()).collect();
        for (source, id) in &self.answers {
            let verdict = if ids.contains(id.as_str()) {
                Verdict::Holds
            } else if of_runs.contains(source.ledger.as_path()) {
                Verdict::Broken(format!("the ledger has no request `{id}`"))
            } else {
                Verdict::Unknown(format!("the request `{id}` is on no ledger that was read"))
            };
            claims.record(source.clone(), "approval", verdict)?;
        }
        let mut used = HashMap::new();
        for one in &self.spent {
            claims.record(one.source.clone(), "approval", self.use_of(one, &mut used))?;
        }
        for start in &self.starts {
            if let Some(verdict) = self.confirmed(start) {
                claims.record(start.source.clone(), "approval", verdict)?;
            }
        }
        Ok(())
    }

    /// The verdict on a use of a grant: its receipt leads to the grant, and no other use has it. A line that waited for
    /// another answer in the meantime started again, and the same call or command uses its grants again.
    fn use_of<'a>(&self, one: &'a Use, used: &mut HashMap<&'a str, &'a Use>) -> Verdict {
        let Use { source, id, receipt, .. } = one;
        let Some(receipt) = receipt else { return Verdict::Broken("it names no grant".to_owned()) };
        let waited = |before: &Source| {
            let between = before.seq..source.seq;
            self.waits.iter().any(|(ledger, other, seq)| {
                *ledger == source.ledger && other != id && between.contains(seq) && before.ledger == *ledger
            })
        };
        match used.insert(&receipt.hash, one) {
            Some(before) if !waited(&before.source) => {
                return Verdict::Broken("its grant was used before".to_owned());
            }
            Some(before) if !self.is_same(before, one) => {
                return Verdict::Broken("another call or command used its grant before".to_owned());
            }
            Some(_) | None => {}
        }
        match self.granted.get(&receipt.hash) {
            Some(granted) => Verdict::when(granted == id, || format!("the grant that it names is of `{granted}`")),
            None if self.ledgers.contains(Path::new(&receipt.ledger)) => {
                Verdict::Broken("the line that it names is not a grant".to_owned())
            }
            None => Verdict::Unknown("the grant is on a ledger that was not read".to_owned()),
        }
    }

    /// True if two uses may be of the same call, or without a call of the same command.
    fn is_same(&self, one: &Use, other: &Use) -> bool {
        match (&one.call, &other.call) {
            (None, None) => {
                let (one, other) = (self.commands_at(&one.source), self.commands_at(&other.source));
                one.is_empty() && other.is_empty() || one.iter().any(|hash| other.contains(hash))
            }
            (one, other) => one == other,
        }
    }

    /// The commands that a line may belong to: those under way, and the next one.
    fn commands_at(&self, source: &Source) -> HashSet<&str> {
        let here = || self.commands.iter().filter(|(ledger, ..)| *ledger == source.ledger);
        let is_open = |seq: &Option<u64>| {
            let end = self.ends.get(&(source.ledger.clone(), *seq));
            *seq < source.seq && end.is_none_or(|end| *end > source.seq)
        };
        let open = here().filter(|(_, seq, _)| is_open(seq));
        let next = here().filter(|(_, seq, _)| *seq > source.seq).min_by_key(|(_, seq, _)| *seq);
        open.chain(next).map(|(.., hash)| hash.as_str()).collect()
    }

    /// The verdict on an effect. None if it may need no confirmation: a run overwrites the files that it can restore.
    fn confirmed(&self, start: &Start) -> Option<Verdict> {
        let is_in_run =
            start.run.as_ref().is_some_and(|run| self.runs.contains(&(start.source.ledger.clone(), run.clone())));
        if !start.is_confirmed {
            let must_be = start.is_command || !is_in_run;
            return must_be.then(|| Verdict::Broken("required confirmation, run without it".to_owned()));
        }
        if !start.is_first {
            return Some(Verdict::Broken("its token was spent before".to_owned()));
        }
        // A model cannot obtain a token, so that its call has an approval.
        let call = start.call.as_ref().filter(|_| is_in_run);
        let unapproved = call.filter(|call| !self.calls.contains(&(start.source.ledger.clone(), (*call).clone())));
        Some(
            unapproved
                .map_or(Verdict::Holds, |call| Verdict::Broken(format!("no approval of {call} was spent for it"))),
        )
    }
}

/// The verdict on a request: its id is the hash of what it is bound to.
fn id_verdict(entry: &Entry<'_>) -> Verdict {
    let approval = entry.data.get("approval").cloned().and_then(|value| serde_json::from_value::<Approval>(value).ok());
    match approval.map(|approval| id_of(&approval)) {
        Some(Ok(id)) => Verdict::same(&id, entry.text("id").unwrap_or("null")),
        _ => Verdict::Broken("the request cannot be parsed".to_owned()),
    }
}

/// The hash of a command.
fn command_of<'a>(entry: &'a Entry<'_>) -> Option<&'a str> {
    ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grant_is_used_again_by_same_call_or_command_only() {
        let source = |seq| Source { ledger: "a".into(), seq: Some(seq) };
        let of = |call: Option<&str>, seq| Use {
            source: source(seq),
            id: "APR-1".to_owned(),
            receipt: None,
            call: call.map(str::to_owned),
        };
        // Two commands start, one begins again, and a third one follows.
        let mut grants = Grants::default();
        for (seq, hash) in [(1, "x"), (2, "y"), (11, "x"), (21, "z")] {
            grants.commands.push(("a".into(), Some(seq), hash.to_owned()));
            grants.ends.insert(("a".into(), Some(seq)), Some(seq + 8));
        }
        for (one, other, is_same) in [
            (of(Some("c1"), 3), of(Some("c1"), 22), true),
            (of(Some("c1"), 3), of(Some("c2"), 12), false),
            (of(Some("c1"), 3), of(None, 12), false),
            (of(None, 3), of(None, 12), true),
            (of(None, 0), of(None, 12), true),
            (of(None, 3), of(None, 22), false),
            (of(None, 40), of(None, 41), true),
        ] {
            assert_eq!(grants.is_same(&one, &other), is_same, "{:?} {:?}", one.source.seq, other.source.seq);
        }
    }
}
