//! `cp-log scan`: where on standard input the secrets are that would be taken out of an entry. It prints no value.

use std::os::fd::AsFd;
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

/// How much of the input is looked at together.
const WINDOW: usize = 1 << 20;
/// How much of that is left for the next time: no secret is longer.
const OVERLAP: usize = 128 << 10;
/// The number of bytes before a place that may determine the kind of secret.
const BEFORE: usize = 4 << 10;
/// An input with a NUL in so many first bytes is not text.
const HEAD: usize = 8 << 10;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.stdin != Path::new("-") {
        return Err(Error::usage("only standard input is scanned").hint("cp-log scan - <FILE"));
    }
    context.out.streaming()?;
    let (redactor, mut window, mut lines) = (Redactor::from_environment(), Window::default(), Lines::new(stdin()));
    let (mut count, mut more) = (0_u64, true);
    while more {
        more = window.fill(&mut lines)?;
        if window.is_first && window.bytes[..window.bytes.len().min(HEAD)].contains(&0) {
            context.out.notice("not_text", Severity::Info, "standard input is not text, so nothing was looked at");
            return Ok(());
        }
        for secret in window.secrets(&redactor, more) {
            count += 1;
            context.out.record(Kind::Item, &secret)?;
        }
        context.out.flush()?;
    }
    context.out.extra("count", count);
    if count == 0 {
        return Ok(());
    }
    let message = format!("{count} secret{}", if count == 1 { "" } else { "s" });
    Err(Error::new(Code::Integrity, message).with("count", count))
}

/// A piece of the input, with the bytes before it.
#[derive(Default)]
struct Window {
    /// Bytes that were read and are not yet text.
    bytes: Vec<u8>,
    text: String,
    /// How much of the text was reported in the window before.
    done: usize,
    /// Where the text begins.
    line: u64,
    column: u64,
    is_first: bool,
    started: bool,
}

impl Window {
    /// Reads until there is enough, or nothing more.
    fn fill<F: AsFd>(&mut self, lines: &mut Lines<F>) -> Result<bool> {
        self.is_first = !std::mem::replace(&mut self.started, true);
        while self.bytes.len() + self.text.len() < WINDOW {
            // `None`: no bytes are available yet.
            if lines.some(&mut self.bytes, Duration::from_secs(1))? == Some(0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The secrets in it; if more is to come, the last of it is left for the next window.
    fn secrets(&mut self, redactor: &Redactor, more: bool) -> Vec<Secret> {
        let whole = if more { whole_characters(&self.bytes) } else { self.bytes.len() };
        self.text.push_str(&String::from_utf8_lossy(&self.bytes[..whole]));
        self.bytes.drain(..whole);
        let limit =
            if more { self.text.floor_char_boundary(self.text.len().saturating_sub(OVERLAP)) } else { self.text.len() };
        let mut place = Place { text: &self.text, at: 0, line: self.line, column: self.column };
        let mut until = self.done;
        let mut secrets = Vec::new();
        for found in redactor.find(&self.text) {
            if found.at.start < self.done || found.at.start >= limit {
                continue;
            }
            place.go_to(found.at.start);
            secrets.push(Secret {
                line: place.line + 1,
                column: place.column + 1,
                kind: found.rule,
                length: self.text[found.at.clone()].chars().count() as u64,
                masked: format!("{}…", found.prefix),
            });
            until = found.at.end;
        }
        if more {
            let from = self.text.floor_char_boundary(limit.saturating_sub(BEFORE));
            let mut place = Place { text: &self.text, at: 0, line: self.line, column: self.column };
            place.go_to(from);
            (self.line, self.column) = (place.line, place.column);
            self.done = until.max(limit) - from;
            self.text.drain(..from);
        }
        secrets
    }
}

/// How many bytes make whole characters: the last may be cut.
fn whole_characters(bytes: &[u8]) -> usize {
    let start = (1..=bytes.len().min(4)).map(|back| bytes.len() - back).find(|at| bytes[*at] & 0xc0 != 0x80);
    match start {
        Some(start) if std::str::from_utf8(&bytes[start..]).is_err() && bytes[start] >= 0xc2 => start,
        _ => bytes.len(),
    }
}

/// A place in a text, by line and column from 0.
struct Place<'a> {
    text: &'a str,
    at: usize,
    line: u64,
    column: u64,
}

impl Place<'_> {
    fn go_to(&mut self, at: usize) {
        let passed = &self.text[self.at..at];
        let feeds = memchr::memchr_iter(b'\n', passed.as_bytes()).count() as u64;
        let rest = passed.rfind('\n').map_or(passed, |feed| &passed[feed + 1..]).chars().count() as u64;
        self.column = if feeds > 0 { rest } else { self.column + rest };
        self.line += feeds;
        self.at = at;
    }
}
