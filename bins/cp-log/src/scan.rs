//! `cp-log scan`: where in files the secrets are that would be taken out of an entry. It prints no value.

use std::fs::File;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::lines::Lines;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, signals};
use cp_redact::Redactor;
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

/// Say where secrets are in files, and fail if there are any
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files, or directories with all that is in them; `-` is standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// A secret that was found. Its value is not said.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Secret {
    /// The file, or `-`.
    file: String,
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
        format!("{}:{}:{}: {}", self.file, self.line, self.column, self.kind)
    }
}

/// How much of a file is looked at together.
const WINDOW: usize = 1 << 20;
/// How much of that is left for the next time: no secret is longer.
const OVERLAP: usize = 128 << 10;
/// The number of bytes before a place that may determine the kind of secret.
const BEFORE: usize = 4 << 10;
/// A file with a NUL in so many first bytes is not text.
const HEAD: usize = 8 << 10;
/// How deep directories may lie in each other.
const DEPTH: usize = 128;
/// The directories of version control systems, which are skipped.
const SKIPPED: [&str; 5] = [".git", ".hg", ".svn", ".jj", ".bzr"];

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let mut scan = Scan { redactor: Redactor::from_environment(), counts: Counts::default() };
    for file in &args.files {
        scan.operand(file, context)?;
    }
    let Counts { files, skipped, failed, with_secrets, secrets } = scan.counts;
    if files + skipped + failed == 0 {
        return Err(Error::not_found("no file to scan").hint("name a file, a directory with files, or -"));
    }
    context.out.extra("files", files);
    context.out.extra("skipped_files", skipped);
    context.out.extra("count", secrets);
    if secrets == 0 {
        return Ok(());
    }
    let plural = |count: u64, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    let message = format!("{} in {} of {files}", plural(secrets, "secret"), plural(with_secrets, "file"));
    Err(Error::new(Code::Integrity, message).with("count", secrets).with("files", files))
}

#[derive(Default)]
struct Counts {
    files: u64,
    /// Files that are not text.
    skipped: u64,
    /// Operands and files that cannot be read.
    failed: u64,
    with_secrets: u64,
    secrets: u64,
}

struct Scan {
    redactor: Redactor,
    counts: Counts,
}

impl Scan {
    fn operand(&mut self, path: &Path, context: &mut Context) -> Result<()> {
        if path == Path::new("-") {
            return self.source(rustix::stdio::stdin(), "-", context);
        }
        let named = || path.display().to_string();
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.directory(path, 0, context),
            Ok(metadata) if metadata.is_file() => self.file(path, context),
            Ok(_) => self.fail(
                context,
                Error::validation("neither a file nor a directory").in_file(path).hint("`-` reads standard input"),
            ),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.fail(context, Error::not_found(format!("{} does not exist", named())))
            }
            Err(e) => self.fail(context, Error::io("cannot read", e).in_file(path)),
        }
    }

    fn fail(&mut self, context: &mut Context, error: Error) -> Result<()> {
        self.counts.failed += 1;
        context.out.item_failed(error)
    }

    /// All files in a directory, in the order of their names. Links are not followed: what they lead to is somewhere else.
    fn directory(&mut self, path: &Path, depth: usize, context: &mut Context) -> Result<()> {
        let listed = std::fs::read_dir(path).and_then(Iterator::collect::<std::io::Result<Vec<_>>>);
        let mut entries = match listed {
            Ok(entries) if depth < DEPTH => entries,
            Ok(_) => {
                return self.fail(context, Error::validation("too many directories in each other").in_file(path));
            }
            Err(e) => return self.fail(context, Error::io("cannot read", e).in_file(path)),
        };
        entries.sort_by_key(std::fs::DirEntry::file_name);
        for entry in entries {
            signals::check()?;
            let name = entry.file_name();
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && !SKIPPED.iter().any(|skipped| name == *skipped) => {
                    self.directory(&entry.path(), depth + 1, context)?;
                }
                Ok(kind) if kind.is_file() => self.file(&entry.path(), context)?,
                Ok(_) => {}
                Err(e) => self.fail(context, Error::io("cannot read", e).in_file(&entry.path()))?,
            }
        }
        Ok(())
    }

    fn file(&mut self, path: &Path, context: &mut Context) -> Result<()> {
        match File::open(path) {
            Ok(file) => self.source(file, &path.display().to_string(), context),
            Err(e) => self.fail(context, Error::io("cannot read", e).in_file(path)),
        }
    }

    fn source(&mut self, source: impl AsFd, name: &str, context: &mut Context) -> Result<()> {
        let mut window = Window::default();
        let mut lines = Lines::new(source);
        let before = self.counts.secrets;
        loop {
            let more = match window.fill(&mut lines) {
                Ok(more) => more,
                Err(e) if e.is_fatal() => return Err(e),
                Err(e) => return self.fail(context, e.in_file(Path::new(name))),
            };
            if window.is_first && window.bytes[..window.bytes.len().min(HEAD)].contains(&0) {
                self.counts.skipped += 1;
                return Ok(());
            }
            for secret in window.secrets(&self.redactor, name, more) {
                self.counts.secrets += 1;
                context.out.record(Kind::Item, &secret)?;
            }
            context.out.flush()?;
            if !more {
                break;
            }
        }
        self.counts.files += 1;
        self.counts.with_secrets += u64::from(self.counts.secrets > before);
        Ok(())
    }
}

/// A piece of a file, with the bytes before it.
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
    fn secrets(&mut self, redactor: &Redactor, name: &str, more: bool) -> Vec<Secret> {
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
                file: name.to_owned(),
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
