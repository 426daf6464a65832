//! The claims of entries about each other: each end has one start, a reference leads to its line, and a grant is used
//! once. Texts are not compared, so that a run has no false claim wherever it was stopped.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};

use cp_common::Result;
use cp_common::wire::Receipt;
use serde_json::Value;

use super::entry::Entry;
use super::{Claims, Place, Verdict};
use crate::events::{EVENTS, Pair};

/// The starts without an end so far, the ends without a start, and the last end that has one.
#[derive(Default)]
struct Open {
    starts: Vec<Place>,
    ends: Vec<Place>,
    ended: Option<u64>,
}

/// What an entry names, which must be on a ledger.
struct Reference {
    place: Place,
    claim: &'static str,
    named: Named,
    /// True if the ledger that must have it was read; else a receipt says which one it is.
    is_read: bool,
    receipt: Option<Receipt>,
}

/// A thing that entries name, in words, and the ledger that it belongs to, if the words mean others elsewhere.
type Named = (Option<usize>, String);

/// The entries of all ledgers so far.
#[derive(Default)]
pub(super) struct Fold {
    pairs: BTreeMap<(usize, &'static str, String), Open>,
    /// Keyed hashes of what is there, because each line is.
    there: HashSet<u64>,
    key: RandomState,
    references: Vec<Reference>,
    /// The ledgers on which a run began, with its name.
    runs: HashSet<(usize, String)>,
    /// The requests for approval.
    asked: Vec<(Place, String)>,
    /// The last use of each grant, by the hash of its line, and the call that used it.
    spent: HashMap<String, (Place, Option<String>)>,
    /// The calls of each ledger about which was asked, with the last request until it is used.
    calls: HashMap<(usize, String), Option<String>>,
    /// The number of steps of each command without an end so far, by its line.
    steps: HashMap<(usize, u64), u64>,
    /// The tokens that were used, each with what it was used for: a token may cover a set, but each member of it once.
    tokens: HashMap<String, Place>,
}

impl Fold {
    /// Takes an entry.
    pub(super) fn add(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        self.pair(entry, claims)?;
        let (place, id) = (entry.place, entry.text("id").unwrap_or_default());
        let seq = place.seq.unwrap_or_default();
        self.has((None, format!("line {seq} with {}", entry.hash)));
        // The receipts that a program put there, never what a model or a tool said.
        let calls = entry.at("data/external_calls").and_then(Value::as_array).into_iter().flatten();
        let receipts = calls.filter_map(|call| call.get("receipt")).chain(entry.at("data/receipt"));
        for receipt in receipts.filter_map(|receipt| serde_json::from_value::<Receipt>(receipt.clone()).ok()) {
            let line = format!("line {} with {}", receipt.seq, receipt.hash);
            self.name(place, "receipt", (None, line), false, Some(receipt));
        }
        match entry.event.as_str() {
            "run_start" => drop(self.runs.insert((place.ledger, run_of(entry)))),
            "approval.asked" => {
                self.has((None, format!("request {id}")));
                self.asked.push((place, id.to_owned()));
                // A command asks about its steps while it runs.
                let is_of_step = entry.at("data/approval/action").is_some_and(|action| action == "run");
                if let Some(call) = entry.text("call").filter(|_| !is_of_step) {
                    self.calls.insert((place.ledger, call.to_owned()), Some(id.to_owned()));
                }
            }
            "approval.granted" => {
                self.has((None, format!("grant {} of {id}", entry.hash)));
                self.answer(place, id);
            }
            "approval.denied" => self.answer(place, id),
            "approval.spent" => self.spend(entry, id, claims)?,
            "exec.step" => match (entry.text("decision"), entry.text("approval")) {
                (Some("allow" | "deny"), None) => {}
                (Some("ask"), Some(id)) => self.answer(place, id),
                _ => claims.broken(place, "approval", "its decision and its approval contradict each other")?,
            },
            "exec.intent" => _ = self.has((Some(place.ledger), format!("command in line {seq}"))),
            _ => {}
        }
        // A tool may leave nothing but the result of its call, which is an error if the call was denied.
        if ["exec.intent", "exec.changes", "mcp.call", "tool_result"].contains(&entry.event.as_str())
            && entry.at("data/is_error") != Some(&Value::Bool(true))
        {
            self.effect(entry, claims)?;
        }
        // An edit or an undo has no command.
        let intent = entry.at("data/intent");
        if entry.event == "exec.step" || entry.event == "exec.changes" && intent.is_some() {
            let is_before = intent.and_then(Value::as_u64) < place.seq;
            let kind = if is_before { "command" } else { "earlier command" };
            let command = format!("{kind} in line {}", intent.unwrap_or(&Value::Null));
            self.name(place, "step", (Some(place.ledger), command), true, None);
        }
        intent.and_then(Value::as_u64).map_or(Ok(()), |intent| self.command(entry, intent, claims))
    }

    /// Takes an entry about a command: each step and the list of its changes are there once, and the result counts the
    /// steps.
    fn command(&mut self, entry: &Entry, intent: u64, claims: &mut Claims<'_>) -> Result<()> {
        let place = entry.place;
        let what = match entry.event.as_str() {
            "exec.step" => format!("step {}", entry.at("data/step").unwrap_or(&Value::Null)),
            "exec.changes" => "list of changes".to_owned(),
            "exec.result" => {
                let there = self.steps.remove(&(place.ledger, intent)).unwrap_or_default();
                let count = |name: &str| entry.at(&format!("data/steps/{name}")).and_then(Value::as_u64);
                // A command that did not start, or was killed, has no counts.
                let counted = count("line").zip(count("programs")).zip(count("unrecorded"));
                let counted = counted.map_or(there, |((line, programs), unrecorded)| {
                    line.saturating_add(programs).saturating_sub(unrecorded)
                });
                let why = || format!("it counts {counted} steps, and the ledger has {there}");
                return if counted == there { Ok(()) } else { claims.broken(place, "step", why()) };
            }
            _ => return Ok(()),
        };
        if entry.event == "exec.step" {
            *self.steps.entry((place.ledger, intent)).or_default() += 1;
        }
        if self.has((Some(place.ledger), format!("{what} of the command in line {intent}"))) {
            return Ok(());
        }
        claims.broken(place, "step", format!("the command in line {intent} has another {what}"))
    }

    fn pair(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        let pair = EVENTS.get(&entry.event).and_then(|event| event.pair.as_ref());
        let Some(Pair { of: kind, start: is_start, by: names }) = pair else { return Ok(()) };
        // A response from a recording has no request.
        if entry.at("data/cached") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let (is_start, place) = (*is_start, entry.place);
        let name = names.iter().map(|name| name.split('|').find_map(|path| entry.at(path)).unwrap_or(&Value::Null));
        let name = name.map(Value::to_string).collect::<Vec<_>>().join(" ");
        let open = self.pairs.entry((place.ledger, kind.as_str(), name)).or_default();
        // A call that waits for approval is begun again when its run goes on.
        if kind == "call" && is_start && (open.ended.is_some() || !open.starts.is_empty()) {
            return Ok(());
        }
        let (own, other) =
            if is_start { (&mut open.starts, &mut open.ends) } else { (&mut open.ends, &mut open.starts) };
        let Some(found) = other.pop() else {
            own.push(place);
            return Ok(());
        };
        let end = if is_start { found } else { place };
        open.ended = end.seq;
        claims.record(end, "finished", Verdict::Holds)
    }

    /// Notes what is there. False if it was there before.
    fn has(&mut self, named: Named) -> bool {
        self.there.insert(self.key.hash_one(named))
    }

    fn name(&mut self, place: Place, claim: &'static str, named: Named, is_read: bool, receipt: Option<Receipt>) {
        self.references.push(Reference { place, claim, named, is_read, receipt });
    }

    /// Takes an entry that names a request for approval. Those of a run are on its ledger.
    fn answer(&mut self, place: Place, id: &str) {
        let is_read = self.runs.iter().any(|(ledger, _)| *ledger == place.ledger);
        self.name(place, "approval", (None, format!("request {id}")), is_read, None);
    }

    /// Takes a use of a grant: its receipt leads to the grant, and no other use has it.
    fn spend(&mut self, entry: &Entry, id: &str, claims: &mut Claims<'_>) -> Result<()> {
        let (place, call) = (entry.place, entry.text("call").map(str::to_owned));
        if let Some(call) = &call {
            self.calls.entry((place.ledger, call.clone())).or_default().take_if(|asked| asked == id);
        }
        let Some(receipt) = entry.data::<Receipt>("receipt") else {
            return claims.broken(place, "approval", "it names no grant");
        };
        let named = (None, format!("grant {} of {id}", receipt.hash));
        if let Some((before, of)) = self.spent.insert(receipt.hash.clone(), (place, call.clone())) {
            // What waited for another answer in the meantime is begun again, and uses its grants again.
            let is_between = |(asked, other): &(Place, String)| *other != id && (before..place).contains(asked);
            if of != call || !self.asked.iter().any(is_between) {
                let (line, (ledger, _)) = (before.seq.unwrap_or_default(), &claims.ledgers[before.ledger]);
                return claims.broken(
                    place,
                    "approval",
                    format!("line {line} of {} used its grant before", ledger.ledger),
                );
            }
        }
        self.name(place, "approval", named, false, Some(receipt));
        Ok(())
    }

    /// Judges an effect that required confirmation, or has it, or whose call was asked about.
    fn effect(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        let place = entry.place;
        let is_in_run = self.runs.contains(&(place.ledger, run_of(entry)));
        let call = ["call", "call_id", "id"].iter().find_map(|name| entry.text(name)).filter(|_| is_in_run);
        let asked = call.and_then(|call| self.calls.get(&(place.ledger, call.to_owned())));
        if let Some(Some(id)) = asked {
            return claims.broken(place, "approval", format!("no grant of {id}, which was asked for it, was used"));
        }
        let Some(token) = entry.text("confirmed") else {
            let why = "it required confirmation, and ran without it";
            return if entry.at("data/requires").is_some() { claims.broken(place, "approval", why) } else { Ok(()) };
        };
        let hash = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name));
        if let Some(before) = self.tokens.insert(format!("{token}\n{}", hash.unwrap_or_default()), place) {
            let line = before.seq.unwrap_or_default();
            return claims.broken(place, "approval", format!("line {line} used its token before"));
        }
        // A model cannot obtain a token, so that its call has an approval.
        match call.filter(|_| asked.is_none()) {
            Some(call) => claims.broken(place, "approval", format!("no approval of {call} was used for it")),
            None => claims.record(place, "approval", Verdict::Holds),
        }
    }

    /// Judges what could not be before all entries were seen.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for ((_, kind, name), open) in &self.pairs {
            for place in &open.starts {
                let verdict = Verdict::Unknown(format!("the {kind} is unfinished: it has no end"));
                claims.record(*place, "finished", verdict)?;
            }
            for place in &open.ends {
                let why = match open.ended {
                    Some(line) => format!("the {kind} ended in line {line} already"),
                    None => format!("the {kind} that it ends ({name}) was not begun"),
                };
                claims.broken(*place, "finished", why)?;
            }
        }
        for Reference { place, claim, named, is_read, receipt } in self.references {
            let verdict = if self.there.contains(&self.key.hash_one(&named)) {
                Verdict::Holds
            } else if is_read || receipt.is_some_and(|receipt| claims.have_read(&receipt)) {
                Verdict::Broken(format!("the ledger has no {}", named.1))
            } else {
                Verdict::Unknown(format!("the {} is on no ledger that was read", named.1))
            };
            claims.record(place, claim, verdict)?;
        }
        Ok(())
    }
}

fn run_of(entry: &Entry) -> String {
    entry.at("run").and_then(Value::as_str).unwrap_or_default().to_owned()
}
