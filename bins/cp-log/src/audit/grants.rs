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
    /// Uses of grants, with the id and the receipt of the grant.
    spent: Vec<(Source, String, Option<Receipt>)>,
    /// Requests: the ledger, the id and the line of each.
    waits: Vec<(PathBuf, String, Option<u64>)>,
    /// The calls for which a grant was used.
    calls: HashSet<(PathBuf, String)>,
    starts: Vec<Start>,
    /// The tokens that were spent, and for what: one token may cover a set, but each member of it once.
    tokens: HashSet<String>,
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
                self.spent.push((entry.source(), id(), receipt));
                self.calls.extend(entry.text("call").map(|call| (entry.ledger.to_owned(), call.to_owned())));
            }
            "exec.step" => return self.step(entry, claims),
            "exec.intent" => self.start(entry, entry.data.get("requires"), entry.data.get("confirmed")),
            "exec.operation" => {
                let what = entry.data.get("what").unwrap_or(&Value::Null);
                let overwrites = |write: &&Value| write.get("mode").is_some_and(|mode| mode == "overwrite");
                let replaces = what.pointer("/writes/0").filter(overwrites);
                self.start(entry, replaces, what.get("confirmed"));
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
        let what = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name)).map(str::to_owned);
        let what = what.or_else(|| entry.data.get("what").map(Value::to_string)).unwrap_or_default();
        let stage = entry.number("stage").unwrap_or_default();
        let in_what = entry.data.get("what").and_then(|what| what.get("call")?.as_str());
        self.starts.push(Start {
            source: entry.source(),
            run: entry.run.clone(),
            call: entry.text("call").or(in_what).map(str::to_owned),
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
        for (source, id, receipt) in &self.spent {
            claims.record(source.clone(), "approval", self.use_of(source, id, receipt.as_ref(), &mut used))?;
        }
        for start in &self.starts {
            if let Some(verdict) = self.confirmed(start) {
                claims.record(start.source.clone(), "approval", verdict)?;
            }
        }
        Ok(())
    }

    /// The verdict on a use of a grant: its receipt leads to the grant, and no other use has it. A line that waited for
    /// another answer in the meantime started again, and uses its grants again.
    fn use_of<'a>(
        &self,
        source: &'a Source,
        id: &str,
        receipt: Option<&'a Receipt>,
        used: &mut HashMap<&'a str, &'a Source>,
    ) -> Verdict {
        let Some(receipt) = receipt else { return Verdict::Broken("it names no grant".to_owned()) };
        let waited = |before: &Source| {
            let between = before.seq..source.seq;
            self.waits.iter().any(|(ledger, other, seq)| {
                *ledger == source.ledger && other != id && between.contains(seq) && before.ledger == *ledger
            })
        };
        if used.insert(&receipt.hash, source).is_some_and(|before| !waited(before)) {
            return Verdict::Broken("its grant was used before".to_owned());
        }
        match self.granted.get(&receipt.hash) {
            Some(granted) => Verdict::when(granted == id, || format!("the grant that it names is of `{granted}`")),
            None if self.ledgers.contains(Path::new(&receipt.ledger)) => {
                Verdict::Broken("the line that it names is not a grant".to_owned())
            }
            None => Verdict::Unknown("the grant is on a ledger that was not read".to_owned()),
        }
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
