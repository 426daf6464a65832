//! What the tests of all programs check: the contract on the wire, and transcripts of a shell.
#![expect(clippy::expect_used, clippy::missing_panics_doc, reason = "a failure to set up is a failed test")]

mod contract;
pub mod transcript;

pub use contract::{check_contract, table_row};
