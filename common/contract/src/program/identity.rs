//! The identity of a program: its name, its verbs and their documentation.

use std::time::Duration;

use serde::Serialize;

use crate::context::Context;
use crate::wire::Result;
use crate::wire::error::EXITS;

/// The class of a verb: what gates it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Class {
    /// Reads, and writes nothing.
    Query,
    /// Adds, and takes nothing away.
    Append,
    /// Policy and budget decide.
    Governed,
    /// Changes or deletes: needs a confirm token.
    Write,
}

/// What a verb takes on standard input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Input {
    /// The whole of it, or each line, is one text.
    Text,
    /// Envelopes, one a line.
    Records,
    /// Bare JSON objects, one a line.
    Rows,
    /// A file of a format of its own.
    Bytes,
    /// A person at a terminal.
    Person,
}

/// The entry of a verb in the table of verbs. Its options are in clap.
#[derive(Clone, Copy, Debug)]
pub struct VerbDoc {
    /// Its words after the program's name; empty for the verb that is meant when none is named.
    pub path: &'static str,
    /// What gates it.
    pub class: Class,
    /// The name of its output in the program's schemas.
    pub output: &'static str,
    /// The names of what else it may print: other records, the dry run, the closing line of a stream. What follows from its class is
    /// not named.
    pub also: &'static [&'static str],
    /// The exit statuses that it may leave with beyond those of its class.
    pub exits: &'static [u8],
    /// Command lines that run as they are, in an empty home.
    pub examples: &'static [&'static str],
    /// Whether it also needs `--dangerous`.
    pub dangerous: bool,
    /// What it takes on standard input: empty where it does not read it.
    pub input: &'static [Input],
    /// The order in which a list comes, where it is one.
    pub sort: Option<&'static str>,
    /// The events that it writes on a ledger, beside those of every ledger and of the audit.
    pub events: &'static [&'static str],
    /// Whether it answers in text at a terminal where no format is asked for: a person is setting the programs up.
    pub is_for_person: bool,
    /// Whether its caller takes every failure except status 2 with a text for permission, and does not wait for long. Unless `--format json` or
    /// `text` is given, it then writes no envelope and leaves with 0 or 2, within [`VerbDoc::PATIENCE`].
    pub fails_closed: bool,
}

impl VerbDoc {
    /// How long a verb that fails closed may take: less than any caller waits.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// The names of all that it prints, what it prints first in front: `preview` for a write, and `error` for all.
    pub fn outputs(&self) -> Vec<&'static str> {
        let preview = (self.class == Class::Write).then_some("preview");
        let all = [self.output].into_iter().chain(self.also.iter().copied()).chain(preview).chain(["error"]);
        let mut outputs = Vec::new();
        for name in all {
            if !outputs.contains(&name) {
                outputs.push(name);
            }
        }
        outputs
    }

    /// The exit statuses that it may leave with, in order.
    pub fn all_exits(&self) -> Vec<u8> {
        // It works, or fails: here, by its command line, for what is not there, for what is not allowed, for what is otherwise than
        // it was or must be; or it is interrupted.
        let mut exits = vec![0, 1, 2, 3, 4, 6, 130];
        exits.extend(match self.class {
            Class::Query | Class::Append => &[][..],
            Class::Governed => &[5, 7, 8, 9],
            Class::Write => &[5],
        });
        if self.input.contains(&Input::Records) {
            // A failure from upstream gives its exit.
            exits.extend(EXITS.iter().map(|(exit, _)| *exit));
        }
        exits.extend(self.exits);
        exits.sort_unstable();
        exits.dedup();
        exits
    }

    /// What is true of a verb that does not say otherwise.
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
        is_for_person: false,
        fails_closed: false,
    };
}

/// One line of `doctor`.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Check {
    /// What was looked at.
    pub check: String,
    /// How it is.
    pub status: Status,
    /// The finding.
    pub message: String,
    /// What to do about it.
    pub fix: Option<String>,
}

/// How a [`Check`] came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Status {
    /// Fine.
    Pass,
    /// Works, but not as well as it could.
    Warn,
    /// Does not work.
    Fail,
}

impl Check {
    /// A check that came out fine.
    pub fn pass(check: &str, message: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status: Status::Pass, message: message.into(), fix: None }
    }

    /// A check that came out `status`, and what to do about it.
    pub fn not_fine(check: &str, status: Status, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { check: check.to_owned(), status, message: message.into(), fix: Some(fix.into()) }
    }
}

/// Whether the program has the credentials it needs, never the credentials.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Credentials {
    /// Whether any are there. A program that needs none says true.
    pub configured: bool,
    /// Whether they are valid. Null where only a request would tell, and none was made.
    pub valid: Option<bool>,
    /// When they expire, RFC 3339 UTC. Null where they do not say: keys that a person made.
    pub expires_at: Option<String>,
    /// Whether the program can renew them itself.
    pub refreshable: bool,
    /// Where each was found: the name of a provider and the name of a variable or file.
    pub sources: Vec<CredentialSource>,
}

impl Credentials {
    /// Those of a program that needs none.
    pub fn none_needed() -> Self {
        Self { configured: true, valid: Some(true), ..Self::default() }
    }

    /// Those that were found here.
    pub fn found(sources: Vec<CredentialSource>) -> Self {
        Self { configured: !sources.is_empty(), valid: sources.is_empty().then_some(false), sources, ..Self::default() }
    }
}

/// Where a credential was found.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CredentialSource {
    /// Whose it is.
    pub provider: String,
    /// The variable or file that holds it.
    pub source: String,
}

/// What happened, for the ledger.
#[derive(Clone, Debug, Serialize)]
pub struct Finished<'a> {
    /// The verb's words.
    pub verb: &'a str,
    /// The command line. The sink redacts it.
    pub argv: &'a [String],
    /// For each word of it that is not UTF-8 its bytes in base64.
    pub argv_bytes: &'a [Option<String>],
    /// The exit status.
    pub exit: u8,
    /// The code, if it failed.
    pub code: Option<&'static str>,
    /// Why it failed.
    pub message: Option<&'a str>,
    /// How long it took.
    pub duration_ms: u64,
}

/// Where a program's command lines, refusals and errors are recorded.
pub trait Audit {
    /// Records that a command line has finished.
    fn finished(&mut self, what: &Finished<'_>) -> Result<()>;
}

/// The sink of a program's audit; `None` for a program that keeps none.
pub type AuditSink = Result<Option<Box<dyn Audit>>>;

/// What a program is.
pub struct Program {
    /// Its name: binary, folder, manual page.
    pub name: &'static str,
    /// One line, as in its manual page.
    pub about: &'static str,
    /// T0 reads, T1 writes, T2 cannot be undone.
    pub risk_tier: &'static str,
    /// Its verbs, but those that every program has.
    pub verbs: &'static [VerbDoc],
    /// What the parser calls the verb that a free text or an empty command line goes to. It is a word that nobody can type.
    pub implicit: Option<&'static str>,
    /// The headings under which help lists the verbs: each of them once. None where one heading is enough.
    pub groups: &'static [(&'static str, &'static [&'static str])],
    /// Settings by their keys that its `doctor` takes as options, to look at what is not configured.
    pub doctor: &'static [&'static str],
    /// The variables of the environment that it reads, and what each decides, but those that every program reads.
    pub environment: &'static [(&'static str, &'static str)],
    /// JSON Schemas of what its verbs print, by name.
    pub schemas: &'static [(&'static str, &'static str)],
    /// What its `doctor` looks at.
    pub checks: fn(&mut Context) -> Vec<Check>,
    /// The credentials that `context` reports.
    pub credentials: fn(&Context) -> Credentials,
    /// The sink of the audit, if the program has one.
    pub audit: fn(&Context) -> AuditSink,
}

impl Program {
    /// The name of a verb as a person types it: the hidden implicit verb has none.
    pub fn shown<'a>(&self, verb: &'a str) -> &'a str {
        if self.implicit == Some(verb) { "" } else { verb }
    }
}

/// The version of every program of this workspace.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
