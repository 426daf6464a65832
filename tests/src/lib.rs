//! What the tests of all programs check: the contract on the wire, and transcripts of a shell.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failure to set up is a failed test")]

mod contract;
pub mod transcript;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cp_testkit::{PROGRAMS, Place};
use serde_json::Value;

pub use contract::{check_contract, codes, contract, keys, words};

static REFERENCES: LazyLock<BTreeMap<&str, Value>> = LazyLock::new(|| {
    let reference = |program| {
        let ran = Place::new().program(program).arg("reference").run();
        check_contract(&ran);
        (program, ran.success().data())
    };
    PROGRAMS.map(reference).into()
});

/// The output of `reference`, which must keep the contract.
pub fn reference(program: &str) -> &'static Value {
    &REFERENCES[program]
}

/// A verb as `reference` lists it.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// Its program.
    pub program: &'static str,
    /// Its entry in the list.
    pub entry: &'static Value,
}

/// Every verb of every program.
pub fn verbs() -> impl Iterator<Item = Verb> {
    PROGRAMS.into_iter().flat_map(verbs_of)
}

/// The verbs of a program.
pub fn verbs_of(program: &'static str) -> impl Iterator<Item = Verb> {
    let entries = reference(program)["commands"].as_array().expect("a list of verbs");
    assert!(entries.len() > 5, "{program}: {entries:?}");
    entries.iter().map(move |entry| Verb { program, entry })
}

impl Verb {
    /// Its words after the program; empty for what the program does without a verb.
    pub fn path(&self) -> &'static str {
        self.entry["path"].as_str().expect("its words")
    }

    /// The program and the words.
    pub fn words(&self) -> String {
        format!("{} {}", self.program, self.path()).trim_end().to_owned()
    }

    /// Its options and operands.
    pub fn params(&self) -> &'static [Value] {
        self.entry["params"].as_array().expect("a list of parameters")
    }

    /// The names of its options and operands, or another member of them.
    pub fn names(&self, member: &'static str) -> impl Iterator<Item = &'static str> + use<> {
        self.params().iter().filter_map(move |param| param[member].as_str())
    }

    /// True if it has this option.
    pub fn has(&self, option: &str) -> bool {
        self.names("name").any(|name| name == option)
    }

    /// The texts of a list in its entry.
    pub fn texts(&self, member: &str) -> Vec<&'static str> {
        words(&self.entry[member])
    }

    /// The schema of what it prints.
    pub fn schema(&self) -> &'static Value {
        let name = self.entry["output_schema"].as_str().expect("the name of a schema");
        &reference(self.program)["schemas"][name]["json_schema"]
    }
}
