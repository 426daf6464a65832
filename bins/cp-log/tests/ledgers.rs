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

    /// A place with the ledger `l.jsonl` of so many lines.
    #[track_caller]
    pub(crate) fn with(lines: usize) -> Self {
        let place = Self::new();
        place.ledger("l.jsonl", lines);
        place
    }

    /// The same, signed by the key `K`.
    #[track_caller]
    pub(crate) fn signed(lines: usize) -> Self {
        let place = Self::with(lines);
        place.sign("l.jsonl");
        place
    }

    /// Signs a ledger with the key `K`, which it makes.
    #[track_caller]
    pub(crate) fn sign(&self, name: &str) {
        self.lines(&["keygen", "K", "--signer", "example.com/log"], "");
        self.lines(&["checkpoint", "-f", name, "--sign-with", "K"], "");
    }

    /// Writes bytes behind those of a file.
    pub(crate) fn add(&self, name: &str, bytes: &[u8]) {
        self.work.write(name, [&self.work.bytes(name), bytes].concat());
    }

    /// Replaces words in a file.
    pub(crate) fn replace(&self, name: &str, from: &str, to: &str) {
        self.work.write(name, self.work.read(name).replace(from, to));
    }
}
