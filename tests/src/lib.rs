//! What the tests of all programs check: the contract on the wire, and transcripts of a shell.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failure to set up is a failed test")]

mod contract;
pub mod transcript;

use cp_testkit::{PROGRAMS, Place};
use serde_json::Value;

pub use contract::{check_contract, table_row};

/// The output of `reference`, which must keep the contract.
pub fn reference(program: &str) -> Value {
    let ran = Place::new().program(program).arg("reference").run();
    check_contract(&ran);
    ran.success().data()
}

/// The verbs of a program, as `reference` lists them.
pub fn commands(program: &str) -> Vec<Value> {
    reference(program)["commands"].as_array().expect("a list of verbs").clone()
}

/// Every verb of every program: its words, and its entry in `reference`.
pub fn verbs() -> Vec<(String, Value)> {
    let words = |program: &str, verb: &Value| {
        format!("{program} {}", verb["path"].as_str().expect("its words")).trim_end().to_owned()
    };
    let of = |program| commands(program).into_iter().map(move |verb| (words(program, &verb), verb));
    let verbs: Vec<_> = PROGRAMS.into_iter().flat_map(of).collect();
    assert!(verbs.len() > 70, "{verbs:?}");
    verbs
}
