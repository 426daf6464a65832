//! The claims of entries about each other: each end has one start, a reference leads to its line, and a grant is used
//! once. The entries may have any order, and texts are not compared, so that a run has no false claim wherever it
//! was stopped.

use std::collections::{BTreeMap, HashMap, HashSet};

use cp_common::Result;
use cp_common::wire::Receipt;
use serde_json::Value;

use super::claims::{Claims, Place, Verdict};
use super::entry::Entry;
use super::receipts::Receipts;

/// What it is, the events of its start and of its end, and the members that name it in each.
type Pair = (&'static str, &'static str, &'static str, &'static [&'static str], &'static [&'static str]);

/// The rows of a batch are under way at the same time, and two may be the same, so that they have names.
const REQUEST: &[&str] = &["data/request_hash", "data/batch|data/attempt"];
const CALL: &[&str] = &["run", "turn", "data/id"];
const PAIRS: [Pair; 4] = [
    ("command", "exec.intent", "exec.result", &["seq"], &["data/intent"]),
    ("request", "llm.request", "llm.response", REQUEST, REQUEST),
    ("call", "tool_call", "tool_result", CALL, CALL),
    ("call of a server", "mcp.call", "mcp.result", &["seq"], &["data/call"]),
];

/// The starts without an end so far, the ends without a start, and the last end that has one.
#[derive(Default)]
struct Open {
    starts: Vec<Place>,
    ends: Vec<Place>,
    ended: Option<u64>,
}

/// A use of a grant.
struct Use {
    place: Place,
    id: String,
    receipt: Option<Receipt>,
    call: Option<String>,
}

/// An effect that required confirmation, or has it.
struct Effect {
    place: Place,
    run: String,
    call: Option<String>,
    is_command: bool,
    is_confirmed: bool,
    /// The effect before it that had its token.
    before: Option<Place>,
}

/// The entries of all ledgers so far.
#[derive(Default)]
pub(super) struct Fold {
    pairs: BTreeMap<(usize, &'static str, String), Open>,
    commands: HashSet<Place>,
    /// What names a command: its place, and that of the command.
    parts: Vec<(Place, Place)>,
    /// The ledgers on which a run began, with its name.
    runs: HashSet<(usize, String)>,
    /// The requests for approval, and the places of each.
    asked: HashMap<String, Vec<Place>>,
    /// Entries that name a request.
    answers: Vec<(Place, String)>,
    /// The ids of grants by the hashes of their lines.
    granted: HashMap<String, String>,
    spent: Vec<Use>,
    effects: Vec<Effect>,
    /// The tokens that were used, each with what it was used for: a token may cover a set, but each member of it once.
    tokens: HashMap<String, Place>,
    receipts: Receipts,
}

impl Fold {
    /// Takes an entry.
    pub(super) fn add(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        self.receipts.gather(entry);
        self.pair(entry, claims)?;
        let id = || entry.text("id").unwrap_or_default().to_owned();
        let place = entry.place;
        match entry.event.as_str() {
            "run_start" => drop(self.runs.insert((place.ledger, run_of(entry)))),
            "approval.asked" => self.asked.entry(id()).or_default().push(place),
            "approval.granted" => {
                self.granted.insert(entry.hash.clone(), id());
                self.answers.push((place, id()));
            }
            "approval.denied" => self.answers.push((place, id())),
            "approval.spent" => {
                let receipt = entry.at("data/receipt").cloned().and_then(|value| serde_json::from_value(value).ok());
                self.spent.push(Use { place, id: id(), receipt, call: entry.text("call").map(str::to_owned) });
            }
            "exec.step" => self.step(entry, claims)?,
            "exec.intent" => {
                self.commands.insert(place);
                self.effect(entry, entry.at("data/requires").is_some(), entry.text("confirmed"));
            }
            "exec.changes" if entry.text("operation") == Some("filesystem.write_file") => {
                let file = entry.at("data/files").and_then(|files| files.as_array()?.last());
                let is_new = file.is_none_or(|file| file["change"] == "created");
                self.effect(entry, !is_new, entry.text("confirmed"));
            }
            _ => {}
        }
        // An edit or an undo has no command.
        let is_part = ["exec.step", "exec.evidence"].contains(&entry.event.as_str())
            || entry.event == "exec.changes" && entry.number("intent").is_some();
        if is_part {
            self.parts.push((place, Place { seq: entry.number("intent"), ..place }));
        }
        Ok(())
    }

    fn pair(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        let is_of = |(_, start, end, ..): &&Pair| entry.event == *start || entry.event == *end;
        let Some((kind, start, _, start_name, end_name)) = PAIRS.iter().find(is_of) else { return Ok(()) };
        // A response from a recording has no request.
        if entry.at("data/cached") == Some(&Value::Bool(true)) {
            return Ok(());
        }
        let (is_start, place) = (entry.event == *start, entry.place);
        let names = if is_start { start_name } else { end_name };
        let name = names.iter().map(|name| name.split('|').find_map(|path| entry.at(path)).unwrap_or(&Value::Null));
        let name = name.map(Value::to_string).collect::<Vec<_>>().join(" ");
        let open = self.pairs.entry((place.ledger, kind, name)).or_default();
        // A call that waits for approval is begun again when its run goes on.
        if *kind == "call" && is_start && (open.ended.is_some() || !open.starts.is_empty()) {
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

    /// Takes the decision about a step, which names an approval exactly if it required one.
    fn step(&mut self, entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
        let why = match (entry.text("decision"), entry.text("approval")) {
            (Some("allow" | "deny"), None) => return Ok(()),
            (Some("ask"), Some(id)) => {
                self.answers.push((entry.place, id.to_owned()));
                return Ok(());
            }
            (Some("ask"), None) => "it required approval, and names none".to_owned(),
            (decision, approval) => {
                let [decision, approval] = [decision, approval].map(|text| text.unwrap_or("none"));
                format!("the decision {decision} and the approval {approval} contradict each other")
            }
        };
        claims.record(entry.place, "approval", Verdict::Broken(why))
    }

    fn effect(&mut self, entry: &Entry, requires: bool, token: Option<&str>) {
        if token.is_none() && !requires {
            return;
        }
        let hash = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name)).map(str::to_owned);
        let what = hash.or_else(|| entry.at("data/files").map(Value::to_string)).unwrap_or_default();
        let stage = entry.number("stage").unwrap_or_default();
        let call = entry.text("call").map(str::to_owned);
        let before = token.and_then(|token| self.tokens.insert(format!("{token}\n{stage}\n{what}"), entry.place));
        let (is_command, is_confirmed) = (entry.event == "exec.intent", token.is_some());
        self.effects.push(Effect { place: entry.place, run: run_of(entry), call, is_command, is_confirmed, before });
    }

    /// Judges what could not be before all entries were seen.
    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for ((_, kind, name), open) in &self.pairs {
            for place in &open.starts {
                claims.record(
                    *place,
                    "finished",
                    Verdict::Unknown(format!("the {kind} is unfinished: it has no end")),
                )?;
            }
            for place in &open.ends {
                let why = match open.ended {
                    Some(line) => format!("the {kind} ended in line {line} already"),
                    None => format!("the {kind} that it ends ({name}) was not begun"),
                };
                claims.record(*place, "finished", Verdict::Broken(why))?;
            }
        }
        for (place, command) in &self.parts {
            let why =
                || format!("line {} has no command", command.seq.map_or("null".to_owned(), |seq| seq.to_string()));
            let verdict = if self.commands.contains(command) { Verdict::Holds } else { Verdict::Broken(why()) };
            claims.record(*place, "step", verdict)?;
        }
        for (place, id) in &self.answers {
            claims.record(*place, "approval", self.answer(*place, id))?;
        }
        let mut used = HashMap::new();
        for one in &self.spent {
            claims.record(one.place, "approval", self.used(one, &mut used, claims))?;
        }
        for effect in &self.effects {
            if let Some(verdict) = self.confirmed(effect) {
                claims.record(effect.place, "approval", verdict)?;
            }
        }
        self.receipts.finish(claims)
    }

    fn answer(&self, place: Place, id: &str) -> Verdict {
        if self.asked.contains_key(id) {
            Verdict::Holds
        } else if self.runs.iter().any(|(ledger, _)| *ledger == place.ledger) {
            Verdict::Broken(format!("the ledger has no request {id}"))
        } else {
            Verdict::Unknown(format!("the request {id} is on no ledger that was read"))
        }
    }

    /// The verdict on a use of a grant: its receipt leads to the grant, and no other use has it.
    fn used<'a>(&self, one: &'a Use, used: &mut HashMap<&'a str, &'a Use>, claims: &Claims<'_>) -> Verdict {
        let Some(receipt) = &one.receipt else { return Verdict::Broken("it names no grant".to_owned()) };
        if let Some(before) = used.insert(&receipt.hash, one)
            && !self.is_begun_again(before, one)
        {
            let line = before.place.seq.unwrap_or_default();
            return Verdict::Broken(format!("line {line} of {} used its grant before", claims.name(before.place)));
        }
        match self.granted.get(&receipt.hash) {
            Some(id) if *id == one.id => Verdict::Holds,
            Some(id) => Verdict::Broken(format!("it is a use of {}, and the grant that it names is of {id}", one.id)),
            None if claims.has(&receipt.ledger) => {
                Verdict::Broken(format!("line {} of {} is not a grant", receipt.seq, receipt.ledger))
            }
            None => Verdict::Unknown("the grant is on a ledger that was not read".to_owned()),
        }
    }

    /// True if what used a grant waited for another answer in the meantime: it is begun again, and uses its grants
    /// again.
    fn is_begun_again(&self, before: &Use, one: &Use) -> bool {
        let mut others = self.asked.iter().filter(|(id, _)| **id != one.id).flat_map(|(_, places)| places);
        before.call == one.call && others.any(|other| (before.place..one.place).contains(other))
    }

    /// The verdict on an effect. None if it may need no confirmation: a run overwrites the files that it can restore.
    fn confirmed(&self, effect: &Effect) -> Option<Verdict> {
        let is_in_run = self.runs.contains(&(effect.place.ledger, effect.run.clone()));
        if !effect.is_confirmed {
            let must_be = effect.is_command || !is_in_run;
            return must_be.then(|| Verdict::Broken("it required confirmation, and ran without it".to_owned()));
        }
        if let Some(before) = effect.before {
            let line = before.seq.unwrap_or_default();
            return Some(Verdict::Broken(format!("line {line} used its token before")));
        }
        // A model cannot obtain a token, so that its call has an approval.
        let is_approved = |call: &String| {
            self.spent.iter().any(|one| one.place.ledger == effect.place.ledger && one.call.as_ref() == Some(call))
        };
        let unapproved = effect.call.as_ref().filter(|call| is_in_run && !is_approved(call));
        Some(
            unapproved.map_or(Verdict::Holds, |call| Verdict::Broken(format!("no approval of {call} was used for it"))),
        )
    }
}

fn run_of(entry: &Entry) -> String {
    entry.at("run").and_then(Value::as_str).unwrap_or_default().to_owned()
}
