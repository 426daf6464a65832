//! `cp-log verify` of a bundle: prove its ledgers with nothing but the file and public keys, and report what was proved and
//! what was not.

use std::path::{Path, PathBuf};

use cp_common::wire::Reply;
use cp_common::{Context, Error, Result, signals};
use cp_ledger::format::line::Hash;
use cp_ledger::proof::FAULTS_LISTED;
use cp_ledger::proof::note::Verifier;
use cp_ledger::read::source::lines_of;
use cp_ledger::read::{End, Lines};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::check_ledger::{Open, Proved};
use super::format;
use crate::verified::integrity_error;

/// The result of checking a bundle.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Checked {
    /// The file.
    file: String,
    /// True if nothing is wrong.
    holds: bool,
    /// The result for each ledger.
    ledgers: Vec<Proved>,
    /// How many lines of ledgers there are.
    lines: u64,
    /// How many large values.
    blobs: u64,
    /// Properties that are not proved, in words.
    not_proved: Vec<String>,
    /// How many faults there are.
    fault_count: u64,
    /// The first hundred of them.
    faults: Vec<Fault>,
}

/// Something that is wrong, and where.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fault {
    /// The line of the bundle, from 1.
    line: u64,
    /// The description of the fault.
    message: String,
}

impl Checked {
    fn error(&self) -> Option<Error> {
        let first = self.faults.first()?;
        let more = if self.fault_count > 1 { format!("; {} faults in all", self.fault_count) } else { String::new() };
        let message = format!("line {}: {}{more}", first.line, first.message);
        let error = integrity_error(&self.file, message, self).with("line", first.line);
        Some(error.hint("ask for the bundle again; cp-log verify shows the faults of the ledger itself"))
    }

    fn fault(&mut self, line: u64, message: impl Into<String>) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_LISTED {
            self.faults.push(Fault { line, message: message.into() });
        }
    }
}

impl Reply for Checked {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for ledger in &self.ledgers {
            let part = if ledger.whole { "whole" } else { "in part" };
            let signed = match (ledger.signed_size, ledger.signed_by.as_slice()) {
                (None, _) => "unsigned".to_owned(),
                (Some(size), []) => format!("{size} lines under a checkpoint"),
                (Some(size), names) => format!("{size} lines signed by {}", names.join(", ")),
            };
            let Proved { file, origin, lines: shown, size, .. } = ledger;
            lines.push(format!("{file} ({origin}): {shown} of {size} lines, {part}, {signed}"));
            let gaps: Vec<String> = ledger.gaps.iter().map(|[first, last]| format!("{first} to {last}")).collect();
            if !gaps.is_empty() {
                lines.push(format!("  lines left out: {}", gaps.join(", ")));
            }
        }
        lines.extend(self.faults.iter().map(|fault| format!("  line {}: {}", fault.line, fault.message)));
        lines.extend(self.not_proved.iter().map(|what| format!("not proved: {what}")));
        lines.push(if self.holds { "the bundle holds" } else { "the bundle does not hold" }.to_owned());
        lines.join("\n")
    }
}

/// Proves a bundle.
pub(crate) fn check(file: &Path, lines: Lines, keys: &[PathBuf], context: &mut Context) -> Result<()> {
    let keys: Vec<Verifier> = keys.iter().map(|key| Verifier::load(key)).collect::<Result<_>>()?;
    let checked = Check::new(file, &keys).read(lines)?;
    match checked.error() {
        None => context.out.answer(&checked),
        Some(error) => context.out.refuse(&checked, error),
    }
}

/// The first fault of a bundle; none if it holds.
pub(crate) fn first_fault(file: &Path) -> Result<Option<String>> {
    let checked = Check::new(file, &[]).read(lines_of(file)?)?;
    Ok(checked.faults.into_iter().next().map(|fault| format!("line {}: {}", fault.line, fault.message)))
}

/// A bundle that is being read.
struct Check<'a> {
    keys: &'a [Verifier],
    checked: Checked,
    /// The hash of everything before the current line.
    hash: Sha256,
    open: Option<Open>,
    is_closed: bool,
}

impl<'a> Check<'a> {
    fn new(file: &Path, keys: &'a [Verifier]) -> Self {
        let checked = Checked {
            file: file.display().to_string(),
            holds: false,
            ledgers: Vec::new(),
            lines: 0,
            blobs: 0,
            not_proved: Vec::new(),
            fault_count: 0,
            faults: Vec::new(),
        };
        Self { keys, checked, hash: Sha256::new(), open: None, is_closed: false }
    }

    fn read(mut self, mut lines: Lines) -> Result<Checked> {
        let mut last = 0;
        while let Some(raw) = lines.next()? {
            last = raw.number;
            if self.is_closed {
                self.checked.fault(last, "there is something after the closing line");
            } else if raw.end == End::LineFeed {
                if let Err(message) = self.line(raw.number, raw.bytes) {
                    self.checked.fault(raw.number, message);
                }
            } else {
                self.checked.fault(last, "the line is not whole");
            }
            self.hash.update(raw.bytes);
            self.hash.update(b"\n");
            if last % 1024 == 0 {
                signals::check()?;
            }
        }
        self.end_ledger();
        if !self.is_closed {
            self.checked.fault(last.max(1), "the closing line is missing: the bundle is not whole");
        }
        self.conclude();
        Ok(self.checked)
    }

    fn line(&mut self, number: u64, bytes: &[u8]) -> Result<(), String> {
        let (kind, data) = match format::unsealed(bytes) {
            Ok(record) => record,
            Err(message) if number == 1 => return Err(format!("not a bundle: {message}")),
            Err(message) => return Err(message),
        };
        if (number == 1) != (kind == format::BUNDLE) {
            return Err(format!("a bundle begins with one record `{}`, and this is `{kind}`", format::BUNDLE));
        }
        match kind.as_str() {
            format::BUNDLE => {
                let head: format::Head = format::read(&data)?;
                if head.version != format::VERSION {
                    return Err(format!("version {} is not known, only {}", head.version, format::VERSION));
                }
                Ok(())
            }
            format::LEDGER => {
                self.end_ledger();
                self.open = Some(Open::new(number, format::read(&data)?)?);
                Ok(())
            }
            format::LINE => {
                self.checked.lines += 1;
                let line: format::Line<'_> = format::read(&data)?;
                self.open.as_mut().ok_or("it belongs to no ledger")?.line(&line)
            }
            format::BLOB => {
                let blob: format::Blob<'_> = format::read(&data)?;
                self.checked.blobs += u64::from(blob.offset == 0);
                self.open.as_mut().ok_or("it belongs to no ledger")?.blob(&blob)
            }
            format::SUMMARY => self.closing(&format::read(&data)?),
            other => Err(format!("a bundle has no record `{other}`")),
        }
    }

    fn closing(&mut self, closing: &format::Closing) -> Result<(), String> {
        self.end_ledger();
        self.is_closed = true;
        if Hash::from_raw(&self.hash.clone().finalize().into()).to_string() != closing.sha256 {
            return Err("checksum mismatch before the closing record".to_owned());
        }
        let found = (self.checked.ledgers.len() as u64, self.checked.lines, self.checked.blobs);
        if found != (closing.ledgers, closing.lines, closing.blobs) {
            return Err(format!(
                "it counts {} ledgers, {} lines and {} blobs",
                closing.ledgers, closing.lines, closing.blobs
            ));
        }
        Ok(())
    }

    fn end_ledger(&mut self) {
        let Some(open) = self.open.take() else { return };
        let line = open.number;
        let (proved, missing, faults) = open.finish(self.keys);
        for fault in faults {
            self.checked.fault(line, fault);
        }
        if missing > 0 {
            self.checked.not_proved.push(format!("{}: {missing} large values were not there any more", proved.file));
        }
        self.checked.ledgers.push(proved);
    }

    fn conclude(&mut self) {
        let checked = &mut self.checked;
        checked.holds = checked.fault_count == 0;
        let unsigned = checked.ledgers.iter().filter(|ledger| ledger.signed_size.is_none()).count();
        let after: u64 = checked.ledgers.iter().map(|ledger| ledger.after_checkpoint).sum();
        let part = checked.ledgers.iter().filter(|ledger| !ledger.whole).count();
        let mut say = |what: String| checked.not_proved.push(what);
        if unsigned > 0 {
            say(format!("unsigned ledgers: {unsigned}; the maker of the bundle may have rewritten them"));
        }
        if self.keys.is_empty() {
            say("no key was given, so no signature was checked".to_owned());
        }
        if after > 0 {
            say(format!("lines after the checkpoint of their ledger: {after}; no signature covers them"));
        }
        if part > 0 {
            say(format!("ledgers with lines left out: {part}; those lines are known to exist, not what they say"));
        }
        say("the times: each is the writer's clock".to_owned());
    }
}
