//! Every answer has a schema that says all of it: each kind of line that a verb can print is printed here, and fits
//! strictly; what is not ours is marked, and nothing else; the exit statuses are those of the table.

mod fit;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cp_testkit::{Outcome, PROGRAMS, Place};
use cp_tests::{check_contract, reference, verbs_of};
use serde_json::Value;

use self::fit::Schemas;
use crate::contract::{prints_envelopes, with_silent_prelude};

/// A verb, and the schemas of its program.
struct Verb<'a> {
    of: cp_tests::Verb,
    outputs: BTreeSet<&'static str>,
    schemas: &'a Schemas,
}

impl Verb<'_> {
    /// The kinds of the lines that a command line printed, each of which fits the schema of its kind.
    fn kinds(&self, line: &str, ran: &Outcome, faults: &mut Vec<String>) -> BTreeSet<String> {
        let exits = self.of.entry["exit_codes"].as_array().unwrap();
        if !exits.contains(&ran.status.into()) {
            faults.push(format!("{line}: exit {} is not one of {exits:?}", ran.status));
        }
        let mut kinds = BTreeSet::new();
        for answer in ran.records() {
            match self.kind(&answer) {
                Ok(kind) => drop(kinds.insert(kind)),
                Err(e) => faults.push(format!("{line}: {e}\n{answer}")),
            }
        }
        kinds
    }

    fn kind(&self, answer: &Value) -> Result<String, String> {
        // What passes may be anything, and cp-shell answers requests in an envelope of its own.
        let bare = if self.outputs.contains("passed") { "passed" } else { "response" };
        let Some(ok) = answer["ok"].as_bool() else { return self.fits(bare, answer) };
        if !ok {
            return self.fits("error", &answer["error"]);
        }
        let data = &answer["data"];
        match answer["type"].as_str() {
            Some("summary") => self.fits("summary", data),
            _ if self.outputs.contains("passed") => self.fits("passed", data),
            // The name of a record is that of its schema, where there is one.
            Some(kind) if self.outputs.contains(kind) => self.fits(kind, data),
            _ => {
                let own = self.outputs.iter().filter(|name| !["error", "summary"].contains(name));
                let outcomes: Vec<_> = own.map(|name| self.fits(name, data)).collect();
                let fitting: Vec<&String> = outcomes.iter().flatten().collect();
                match fitting[..] {
                    [only] => Ok(only.clone()),
                    [] => Err(format!("{outcomes:?}")),
                    _ => Err(format!("it fits all of {fitting:?}")),
                }
            }
        }
    }

    fn fits(&self, name: &str, value: &Value) -> Result<String, String> {
        if !self.outputs.contains(name) {
            return Err(format!("{} does not say that it prints `{name}`", self.of.words()));
        }
        self.schemas.fits(name, value).map(|()| name.to_owned())
    }
}

/// Command lines that print every kind of line of every verb: functions, which each line begins with, then for each
/// verb a heading and its lines. None shows what a projection leaves.
const LINES: &str = include_str!("lines.sh");

/// The functions.
fn setup() -> &'static str {
    LINES.split("\n# cp-").next().unwrap()
}

/// The verbs with their lines.
fn lines() -> impl Iterator<Item = (String, Vec<&'static str>)> {
    let blocks = LINES.split("\n# cp-").skip(1);
    blocks.map(|block| {
        let mut lines = block.lines().filter(|line| !line.is_empty());
        (format!("cp-{}", lines.next().unwrap()), lines.collect())
    })
}

/// The events of a ledger that any program may write: its own life, and the audit. The last are chosen by `--event` in
/// examples.
const OF_EVERY_LEDGER: [&str; 7] =
    ["ledger.open", "ledger.made", "ledger.recovered", "command", "error", "deploy", "tick"];

fn events_below(directory: &Path, into: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            events_below(&path, into);
        } else if path.extension().is_some_and(|end| end == "jsonl") {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let entries = lines.filter(|line| line["seq"].is_u64());
            into.extend(entries.filter_map(|line| Some(line["event"].as_str()?.to_owned())));
        }
    }
}

#[test]
fn every_kind_of_answer_of_every_verb_is_shown_and_fits_its_schema() {
    let (mut missing, mut faults) = (BTreeMap::new(), Vec::new());
    let (mut known, mut written, mut events) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut statuses: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for program in PROGRAMS {
        let schemas = Schemas::of(reference(program));
        let mut used = BTreeSet::new();
        for verb in verbs_of(program) {
            let verb = Verb { of: verb, outputs: verb.texts("outputs").into_iter().collect(), schemas: &schemas };
            let (words, class) = (verb.of.words(), verb.of.entry["type"].as_str().unwrap());
            let mut seen = BTreeSet::new();
            let mut look = |line: &str, ran: &Outcome| {
                statuses.entry(class).or_default().insert(ran.status);
                seen.extend(verb.kinds(line, ran, &mut faults));
            };
            for example in verb.of.texts("examples") {
                let place = Place::new();
                let ran = place.sh(&with_silent_prelude(example)).success();
                events_below(&place.home, &mut written);
                if prints_envelopes(program, example) {
                    // What passes a tee or answers a request is no envelope of the program.
                    if !verb.outputs.contains("passed") && !verb.outputs.contains("response") {
                        check_contract(&ran);
                    }
                    // What `--fields` chooses is less than a schema asks for.
                    if !example.contains("--fields") {
                        look(example, &ran);
                    }
                }
            }
            let own = lines().filter(|(verb, _)| *verb == words).flat_map(|(_, lines)| lines).map(str::to_owned);
            for line in own.chain([format!("{words} --no-such-option")]) {
                look(&line, &Place::new().sh(&format!("{}\n{line}", setup())));
            }
            let unseen: Vec<&str> = verb.outputs.iter().copied().filter(|output| !seen.contains(*output)).collect();
            if !unseen.is_empty() {
                missing.insert(words.clone(), unseen);
            }
            known.insert(words);
            events.extend(verb.of.texts("events"));
            used.extend(verb.outputs);
        }
        let unused: Vec<&str> =
            cp_tests::keys(&reference(program)["schemas"]).into_iter().filter(|name| !used.contains(name)).collect();
        if !unused.is_empty() {
            faults.push(format!("{program}: no verb prints {unused:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(missing.is_empty(), "no line in the table shows {missing:#?}");
    let strange: Vec<_> = lines().map(|(verb, _)| verb).filter(|verb| !known.contains(verb)).collect();
    assert!(strange.is_empty(), "no program has {strange:?}");
    let (listed, other): (Vec<&str>, Vec<&str>) =
        written.iter().map(String::as_str).partition(|event| events.contains(event));
    assert!(other.iter().all(|event| OF_EVERY_LEDGER.contains(event)), "no verb says that it writes {other:?}");
    assert!(listed.len() >= 15, "{listed:?}");
    // What a class may leave with is seen, but what takes a signal, or a change at the right moment.
    for (class, exits) in [
        ("query", &[0, 1, 2, 3, 4][..]),
        ("append", &[0, 2, 3, 4, 6]),
        ("governed", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("write", &[0, 2, 3, 5, 6]),
    ] {
        let unseen: Vec<_> = exits.iter().filter(|exit| !statuses[class].contains(exit)).collect();
        assert!(unseen.is_empty(), "no line of a {class} verb leaves with {unseen:?}");
    }
}
