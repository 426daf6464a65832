//! Every answer has a schema that says all of it: each kind of line that a verb can print is printed here, and fits
//! strictly; what is not ours is marked, and nothing else; the exit statuses are those of the table.

mod fit;

use std::collections::{BTreeMap, BTreeSet};

use cp_testkit::{Outcome, PROGRAMS, Place};
use cp_tests::reference;
use serde_json::Value;

use self::fit::Schemas;
use crate::contract::{prints_envelopes, with_silent_prelude};

fn list(value: &Value) -> BTreeSet<String> {
    value.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
}

/// A verb, its kinds of lines, and its exit statuses, as `reference` has them.
struct Verb<'a> {
    words: String,
    outputs: BTreeSet<String>,
    exits: Vec<i64>,
    schemas: &'a Schemas,
}

impl Verb<'_> {
    /// The kinds of the lines that a command line printed, each of which fits the schema of its kind.
    fn kinds(&self, line: &str, ran: &Outcome, faults: &mut Vec<String>) -> BTreeSet<String> {
        if !self.exits.contains(&i64::from(ran.status)) {
            faults.push(format!("{line}: exit {} is not one of {:?}", ran.status, self.exits));
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
                let own = self.outputs.iter().filter(|name| !["error", "summary"].contains(&name.as_str()));
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
            return Err(format!("{} does not say that it prints `{name}`", self.words));
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

/// The lines of a verb: those of the table, its examples, and one that fails. What `--fields` chooses is less than a
/// schema asks for.
fn lines_of(words: &str, program: &str, command: &Value) -> Vec<String> {
    let own = lines().filter(|(verb, _)| verb == words).flat_map(|(_, lines)| lines);
    let examples = command["examples"].as_array().unwrap().iter().map(|line| line.as_str().unwrap());
    let examples = examples.filter(|line| prints_envelopes(program, line) && !line.contains("--fields"));
    own.map(|line| format!("{}\n{line}", setup()))
        .chain(examples.map(with_silent_prelude))
        .chain([format!("{words} --no-such-option")])
        .collect()
}

#[test]
fn every_kind_of_answer_of_every_verb_is_shown_and_fits_its_schema() {
    let (mut missing, mut faults) = (BTreeMap::new(), Vec::new());
    let mut known = BTreeSet::new();
    let mut statuses: BTreeMap<String, BTreeSet<i32>> = BTreeMap::new();
    for program in PROGRAMS {
        let reference = reference(program);
        let schemas = Schemas::of(&reference);
        for command in reference["commands"].as_array().unwrap() {
            let words = format!("{program} {}", command["path"].as_str().unwrap()).trim().to_owned();
            let exits = command["exit_codes"].as_array().unwrap().iter().map(|exit| exit.as_i64().unwrap()).collect();
            let verb = Verb { words, outputs: list(&command["outputs"]), exits, schemas: &schemas };
            known.insert(verb.words.clone());
            let mut seen = BTreeSet::new();
            for line in lines_of(&verb.words, program, command) {
                let ran = Place::new().sh(&line);
                statuses.entry(command["type"].as_str().unwrap().to_owned()).or_default().insert(ran.status);
                seen.extend(verb.kinds(line.trim_start_matches(setup()), &ran, &mut faults));
            }
            let unseen: Vec<String> = verb.outputs.difference(&seen).cloned().collect();
            if !unseen.is_empty() {
                missing.insert(verb.words.clone(), unseen);
            }
        }
        let used: BTreeSet<String> =
            reference["commands"].as_array().unwrap().iter().flat_map(|command| list(&command["outputs"])).collect();
        let unused: Vec<&String> =
            reference["schemas"].as_object().unwrap().keys().filter(|name| !used.contains(*name)).collect();
        if !unused.is_empty() {
            faults.push(format!("{program}: no verb prints {unused:?}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
    assert!(missing.is_empty(), "no line in the table shows {missing:#?}");
    let strange: Vec<_> = lines().map(|(verb, _)| verb).filter(|verb| !known.contains(verb)).collect();
    assert!(strange.is_empty(), "no program has {strange:?}");
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
