//! A working directory with ledgers in it, and the program there.

use std::ops::Deref;
use std::path::PathBuf;

use cp_testkit::Place;
use serde_json::Value;

pub(crate) struct Ledgers(Place);

impl Deref for Ledgers {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Ledgers {
    pub(crate) fn new() -> Self {
        Self(Place::of("cp-log"))
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.join(name)
    }

    /// What the program prints when it succeeds: one JSON value for each line.
    #[track_caller]
    pub(crate) fn lines(&self, arguments: &[&str], input: &str) -> Vec<Value> {
        self.feed(arguments, input).success().records()
    }

    /// The closing line of a run that must exit with `exit`.
    #[track_caller]
    pub(crate) fn closing(&self, arguments: &[&str], input: &str, exit: i32) -> Value {
        self.feed(arguments, input).code(exit).closing()
    }

    /// The lines of a ledger, which must be there.
    #[track_caller]
    pub(crate) fn stored(&self, name: &str) -> Vec<Value> {
        cp_testkit::records_of(&self.work.bytes(name))
    }

    /// Makes a ledger of so many lines, the opening one included.
    #[track_caller]
    pub(crate) fn ledger(&self, name: &str, lines: usize) {
        let input = (1..lines).map(|n| format!("line {n}")).collect::<Vec<_>>().join("\n");
        self.lines(&["append", "-f", name, "--event", "tick", "--sync", "none"], &input);
    }

    /// Makes so many ledgers of one line in `shards`, each with a name of its own.
    pub(crate) fn many(&self, count: usize) {
        std::fs::create_dir(self.path("shards")).unwrap();
        // Each needs an origin of its own: a first line is made anew, by the formula of the format.
        self.lines(&["create", "l.jsonl"], "");
        let first = self.work.read("l.jsonl");
        let origin = self.stored("l.jsonl")[0]["data"]["origin"].as_str().unwrap().to_owned();
        for n in 0..count {
            let name = format!("example.com/{n}");
            let beginning = cp_ledger::format::line::Hash::of(format!("cp-ledger/1\n{name}\n").as_bytes());
            let start = first.find(",\"event\"").unwrap();
            let members = first[start..first.find(",\"prev\"").unwrap()].replace(&origin, &name);
            let mut line = Vec::new();
            let time = "2026-11-21T03:00:00.000000Z";
            cp_ledger::format::line::compose(0, time, members.as_bytes(), &beginning, &mut line).unwrap();
            self.work.write(format!("shards/{n}.jsonl"), line);
        }
    }
}
