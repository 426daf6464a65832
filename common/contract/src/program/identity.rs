//! The identity of a program: its name, its verbs and their documentation.

use std::ffi::OsString;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::wire::Result;
use crate::wire::error::EXITS;

/// The class of a verb, which determines its gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Class {
    /// Reads only.
    Query,
    /// Adds data and removes none.
    Append,
    /// The policy and the budget decide.
    Governed,
    /// Changes or deletes data; requires a confirm token.
    Write,
}

/// The format of standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Input {
    /// The whole input, or each line, is one text.
    Text,
    /// Envelopes, one a line.
    Records,
    /// Bare JSON objects, one a line.
    Rows,
    /// A file in a format of its own.
    Bytes,
    /// A person at a terminal.
    Person,
}

/// The documentation of a verb. Its options are defined with clap.
#[derive(Clone, Copy, Debug)]
pub struct VerbDoc {
    /// The words after the program's name; empty for the default verb, which needs none.
    pub path: &'static str,
    /// The class, which determines the gate.
    pub class: Class,
    /// The name of the main output in the program's schemas.
    pub output: &'static str,
    /// The names of other output: records, the preview of a dry run, the closing line of a stream. Output that follows
    /// from the class is omitted.
    pub also: &'static [&'static str],
    /// The possible exit statuses beyond those of the class.
    pub exits: &'static [u8],
    /// Command lines that run without changes in an empty home.
    pub examples: &'static [&'static str],
    /// True if it also requires `--dangerous`.
    pub dangerous: bool,
    /// The formats of standard input; empty if it is not read.
    pub input: &'static [Input],
    /// The order of a list.
    pub sort: Option<&'static str>,
    /// The events that the verb appends to a ledger, in addition to those of every ledger and of the audit.
    pub events: &'static [&'static str],
    /// True if the caller treats every failure except status 2 with a text as permission, and does not wait for long.
    /// Unless `--format json` or `text` is given, the verb writes no envelope and exits with 0 or 2 within
    /// [`VerbDoc::PATIENCE`].
    pub fails_closed: bool,
}

impl VerbDoc {
    /// Time limit of a verb that fails closed; shorter than the timeout of any caller.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Returns the names of all output, the main output first. A write adds `preview`; every verb adds `error`.
    pub fn outputs(&self) -> Vec<&'static str> {
        let preview = (self.class == Class::Write).then_some("preview");
        let others = self.also.iter().copied().chain(preview).chain(["error"]);
        let mut outputs = vec![self.output];
        outputs.extend(others.filter(|name| *name != self.output));
        outputs
    }

    /// Returns the possible exit statuses in order.
    pub fn all_exits(&self) -> Vec<u8> {
        // Success, and failures that every verb can have: internal, usage, not found, forbidden, conflict, interrupted.
        let mut exits = vec![0, 1, 2, 3, 4, 6, 130];
        exits.extend(match self.class {
            Class::Query | Class::Append => &[][..],
            Class::Governed => &[5, 7, 8, 9],
            Class::Write => &[5],
        });
        if self.input.contains(&Input::Records) {
            // A failure from upstream determines the exit status.
            exits.extend(EXITS.iter().map(|(exit, _)| *exit));
        }
        exits.extend(self.exits);
        exits.sort_unstable();
        exits.dedup();
        exits
    }

    /// A verb with this path, class and main output, and the defaults.
    pub const fn new(path: &'static str, class: Class, output: &'static str) -> Self {
        Self { path, class, output, ..Self::EMPTY }
    }

    /// The defaults of a verb.
    pub const EMPTY: Self = Self {
        path: "",
        class: Class::Query,
        output: "",
        also: &[],
        exits: &[],
        examples: &[],
        dangerous: false,
        input: &[],
        sort: None,
        events: &[],
        fails_closed: false,
    };
}

/// A check of `doctor`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Check {
    /// The subject of the check.
    pub check: String,
    /// The result.
    pub status: Status,
    /// The finding.
    pub message: String,
    /// The way to fix it.
    pub fix: Option<String>,
}

/// The result of a [`Check`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Passed.
    Pass,
    /// Works, but not fully.
    Warn,
    /// Does not work.
    Fail,
}

impl Check {
    /// Makes a passed check.
    pub fn pass(check: &str, message: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Status::Pass, message: message.into(), fix: None }
    }

    /// Makes a check that did not pass, with the way to fix it.
    pub fn not_fine(check: &str, status: Status, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status, message: message.into(), fix: Some(fix.into()) }
    }
}

/// The source of a credential, never the credential.
#[derive(Clone, Debug, Serialize)]
pub struct CredentialSource {
    /// The provider.
    pub provider: String,
    /// The variable or file that holds it.
    pub source: String,
}

/// The outcome of a command line, for the ledger.
pub struct Finished<'a> {
    /// The words of the verb.
    pub verb: &'a str,
    /// The command line. The ledger redacts it.
    pub argv: Vec<OsString>,
    /// The exit status.
    pub exit: u8,
    /// The error code.
    pub code: Option<&'static str>,
    /// The error message.
    pub message: Option<&'a str>,
    /// Duration in milliseconds.
    pub duration_ms: u64,
}

/// The [`Program::schemas`] of these names, which are files in the directory `schemas` of the program.
#[macro_export]
macro_rules! schemas {
    ($($name:ident)*) => {
        &[$((stringify!($name), include_str!(concat!("../schemas/", stringify!($name), ".json")))),*]
    };
}

/// The definition of a program.
pub struct Program {
    /// The name of binary, folder and manual page.
    pub name: &'static str,
    /// Description, one line, as in the manual page.
    pub about: &'static str,
    /// Risk tier: T0 reads, T1 writes, T2 cannot be undone.
    pub risk_tier: &'static str,
    /// The specification that it implements, and the frameworks.
    pub compliance: Option<(&'static str, &'static [&'static str])>,
    /// The verbs, without those of every program.
    pub verbs: &'static [VerbDoc],
    /// The headings of verbs in help, each verb once; empty if one heading is enough.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// The environment variables that the program reads, with descriptions, without those of every program.
    pub environment: &'static [(&'static str, &'static str)],
    /// The JSON Schemas of the verbs' output, by name.
    pub schemas: &'static [(&'static str, &'static str)],
    /// The checks of `doctor`.
    pub checks: fn(&mut Context) -> Vec<Check>,
    /// The available credentials, which `context` reports; `None` if the program needs none.
    pub credentials: Option<fn(&Context) -> Vec<CredentialSource>>,
    /// Records a command line that has finished.
    pub audit: fn(&Context, &Finished<'_>) -> Result<()>,
}

/// The version of every program of this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
