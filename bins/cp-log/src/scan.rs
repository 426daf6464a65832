//! `cp-log scan`: where on standard input the secrets are that would be taken out of an entry. It prints no value.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::output::Severity;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::lines::Lines;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_redact::Redactor;
use rustix::stdio::stdin;
use serde::Serialize;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "scan",
    class: Class::Query,
    output: "secret",
    also: &["summary"],
    examples: &["echo 'nothing secret here' | {} scan -"],
    input: &[Input::Bytes],
    ..VerbDoc::EMPTY
};

/// Say where secrets are on standard input, and fail if there are any
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// -, for standard input
    #[arg(required = true, value_name = "INPUT")]
    stdin: PathBuf,
}

/// A secret that was found. Its value is not said.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Secret {
    /// The line it begins on, from 1.
    line: u64,
    /// The character of that line it begins with, from 1.
    column: u64,
    /// The kind of secret, as the mark in an entry names it.
    kind: &'static str,
    /// How many characters it has.
    length: u64,
    /// How all secrets of its kind begin, and `…`.
    masked: String,
}

impl Reply for Secret {
    fn text(&self) -> String {
        format!("-:{}:{}: {}", self.line, self.column, self.kind)
    }
}

/// The largest input: it is looked at as a whole, because a secret may have many lines.
const LARGEST: usize = 256 << 20;
/// An input with a NUL in so many first bytes is not text.
const HEAD: usize = 8 << 10;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.stdin != Path::new("-") {
        return Err(Error::usage("only standard input is scanned").hint("cp-log scan - <FILE"));
    }
    context.out.streaming()?;
    let (mut lines, mut bytes) = (Lines::new(stdin()), Vec::new());
    // `None`: no bytes are available yet.
    while lines.some(&mut bytes, Duration::from_secs(1))? != Some(0) {
        if bytes.len() > LARGEST {
            return Err(Error::validation(format!("more than {} MiB", LARGEST >> 20)).hint("scan it in parts"));
        }
    }
    if bytes[..bytes.len().min(HEAD)].contains(&0) {
        context.out.notice("not_text", Severity::Info, "standard input is not text, so nothing was looked at");
        return Ok(());
    }
    let (text, mut place, mut count) = (String::from_utf8_lossy(&bytes), Place::default(), 0_u64);
    for found in Redactor::from_environment().find(&text) {
        place.go_to(&text, found.at.start);
        count += 1;
        let secret = Secret {
            line: place.line + 1,
            column: place.column + 1,
            kind: found.rule,
            length: text[found.at].chars().count() as u64,
            masked: format!("{}…", found.prefix),
        };
        context.out.record(Kind::Item, &secret)?;
    }
    context.out.extra("count", count);
    if count == 0 {
        return Ok(());
    }
    let message = format!("{count} secret{}", if count == 1 { "" } else { "s" });
    Err(Error::new(Code::Integrity, message).with("count", count))
}

/// A place in a text, by line and column from 0.
#[derive(Default)]
struct Place {
    at: usize,
    line: u64,
    column: u64,
}

impl Place {
    fn go_to(&mut self, text: &str, at: usize) {
        let passed = &text[self.at..at];
        let feeds = memchr::memchr_iter(b'\n', passed.as_bytes()).count() as u64;
        let rest = passed.rfind('\n').map_or(passed, |feed| &passed[feed + 1..]).chars().count() as u64;
        self.column = if feeds > 0 { rest } else { self.column + rest };
        self.line += feeds;
        self.at = at;
    }
}
