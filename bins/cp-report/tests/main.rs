//! `cp-report` as a shell user meets it, and its pages as a browser shows them.

#![expect(clippy::unwrap_used, reason = "what makes a ledger or opens a page fails the test that asked for it")]

mod browser;
mod layout;
mod made;
mod report;
mod verdicts;
