//! Proves a ledger file: every line's shape and hash, the chain through all of them, and that each is JSON in normal
//! form.

use std::collections::BTreeMap;
use std::path::Path;

use cp_common::{Result, json, signals};
use serde::Serialize;

use crate::blob;
use crate::format::line::{Hash, Line, claimed_seq};
use crate::proof::leaves::origin_in;
use crate::proof::{CHECKPOINT, FAULTS_LISTED, Fault, Kind, NotProved, RECOVERED, SEAL};
use crate::read::{End, Raw, lines};

/// How much of a file is proved between two reports of progress.
const STRIDE: u64 = 4 << 20;

/// Options of the verification.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// True if each line must also be JSON in normal form.
    pub json: bool,
    /// True if bytes after the last line feed are a fault: the file is complete.
    pub closed: bool,
}

/// The end of some lines, which the next line must follow.
#[derive(Clone, Copy, Debug, Default)]
pub struct State {
    /// The hash of the last line: as it says, and as computed.
    hashes: Option<(Hash, Hash)>,
    /// True if the last line was intact.
    intact: bool,
    /// The number that comes next, if no line in between was damaged.
    next: Option<u64>,
    /// Damaged lines since that number was known.
    slack: u64,
}

/// The report on one file.
#[derive(Clone, Debug, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Report {
    /// How many lines there are, damaged ones included.
    pub lines: u64,
    /// How many lines are intact.
    #[serde(skip)]
    pub intact: u64,
    /// How many bytes there are.
    pub bytes: u64,
    /// The number of the first intact line.
    pub first_seq: Option<u64>,
    /// The number of the last intact line.
    pub last_seq: Option<u64>,
    /// The hash of the last intact line, which stands for all lines before it.
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub hash: Option<Hash>,
    /// True if one of them is a line of a ledger, also a damaged one. A file of another program has none.
    #[serde(skip)]
    pub is_claimed: bool,
    /// True if bytes follow the last line feed.
    #[serde(skip)]
    pub in_flight: bool,
    /// True if a line refers to the lines before it or to files beside the ledger.
    #[serde(skip)]
    pub refers: bool,
    /// How many faults there are.
    pub fault_count: u64,
    /// The first hundred of them.
    pub faults: Vec<Fault>,
    /// The properties that were proved, and how many of each; see cp-ledger(5).
    pub proved: BTreeMap<&'static str, u64>,
    /// The properties that could not be proved, and why.
    pub not_proved: Vec<NotProved>,
    /// The end that a following segment must follow.
    #[serde(skip)]
    pub end: State,
}

impl Report {
    /// Adds a property that could not be proved.
    pub fn not_proved(&mut self, what: &'static str, why: impl Into<String>) {
        self.not_proved.push(NotProved { what, why: why.into() });
    }

    /// Adds a fault of the file as a whole, at its end.
    pub fn add_at_end(&mut self, kind: Kind, message: String) {
        self.add(Fault { line: self.lines, offset: self.bytes, seq: self.last_seq, kind, message });
    }

    /// Adds a fault of a line.
    pub(super) fn fault(&mut self, raw: &Raw<'_>, kind: Kind, message: impl Into<String>) {
        // A partial line has no number yet.
        let seq = claimed_seq(raw.bytes).map(|(seq, _)| seq).filter(|_| raw.end != End::File);
        self.add(Fault { line: raw.number, offset: raw.offset, seq, kind, message: message.into() });
    }

    /// Adds a fault.
    fn add(&mut self, fault: Fault) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_LISTED {
            self.faults.push(fault);
        }
    }
}

/// Proves a file or a stream. `before` is the end of the segment before it. `progress` gets how many bytes are done.
pub fn verify(
    path: &Path,
    before: Option<State>,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let mut lines = lines(path)?;
    let report = Report { end: before.unwrap_or_default(), ..Report::default() };
    let mut pass = Pass { report, begins: before.is_none(), json: options.json };
    let (size, mut told) = (lines.size(), 0);
    while let Some(raw) = lines.next()? {
        if raw.offset >= told {
            signals::check()?;
            progress(raw.offset, size);
            told = raw.offset + STRIDE;
        }
        pass.report.is_claimed = pass.report.is_claimed || raw.is_claimed();
        if raw.end == End::File {
            pass.report.in_flight = true;
            if options.closed {
                pass.report.lines += 1;
                pass.report.fault(&raw, Kind::Torn, "the line is not whole");
            }
        } else {
            pass.line(&raw);
        }
    }
    pass.report.bytes = lines.offset();
    Ok(pass.report)
}

/// One pass over the lines.
struct Pass {
    report: Report,
    /// True if no file comes before this one.
    begins: bool,
    json: bool,
}

impl Pass {
    fn line(&mut self, raw: &Raw<'_>) {
        self.report.lines += 1;
        let end = self.report.end;
        let damaged = |hashes| State { hashes, intact: false, slack: end.slack + 1, ..end };
        let Some(line) = raw.stored() else {
            let what = if raw.end == End::Limit { "the line is too long" } else { "not the shape of a line" };
            self.report.fault(raw, Kind::Shape, what);
            self.report.end = damaged(None);
            return;
        };
        self.report.refers |= refers(&line);
        let (seq, computed) = (line.seq(), Hash::of(line.hashed()));
        if computed.hex().as_bytes() != line.hash_hex() {
            self.report.fault(raw, Kind::Hash, "the bytes are not those that were hashed");
            // Either the content or the hash was changed: the next line still knows what it was.
            self.report.end = damaged(Some((line.hash(), computed)));
            return;
        }
        self.report.intact += 1;
        let is_first = self.begins && self.report.lines == 1;
        if let Some((kind, what)) = if is_first { misbegun(&line) } else { misfit(&end, seq, line.prev_hex()) } {
            self.report.fault(raw, kind, what);
        }
        if self.json && !json::is_normal(line.bytes()) {
            match json::check(line.bytes()) {
                Ok(()) => self.report.fault(raw, Kind::NormalForm, "JSON, but not in normal form"),
                Err(fault) => self.report.fault(raw, Kind::Json, format!("not JSON: {fault}")),
            }
        }
        self.report.first_seq = self.report.first_seq.or(Some(seq));
        (self.report.last_seq, self.report.hash) = (Some(seq), Some(computed));
        let hashes = Some((computed, computed));
        self.report.end = State { hashes, intact: true, next: seq.checked_add(1), slack: 0 };
    }
}

/// True if a line refers to other lines or to files beside the ledger.
fn refers(line: &Line<'_>) -> bool {
    [SEAL, CHECKPOINT, RECOVERED].iter().any(|event| line.is_event(event)) || blob::is_referred_to(line.body())
}

/// Why an intact line does not follow what is before it, if it does not.
fn misfit(before: &State, seq: u64, prev: &[u8]) -> Option<(Kind, String)> {
    match before.hashes {
        Some((recorded, computed)) if prev != recorded.hex().as_bytes() && prev != computed.hex().as_bytes() => {
            return Some((Kind::Chain, "does not follow the line before it".to_owned()));
        }
        // The hash proves the place after a damaged line better than a count of lines, which may have been joined.
        Some(_) if !before.intact => return None,
        _ => {}
    }
    let next = before.next?;
    let fits = seq >= next && seq - next <= before.slack;
    (!fits).then(|| (Kind::Seq, format!("has the number {seq} where {next} comes next")))
}

/// Why a ledger cannot begin with an intact line, if it cannot.
fn misbegun(line: &Line<'_>) -> Option<(Kind, String)> {
    if line.is_event("segment.open") {
        return None;
    }
    let what = match origin_in(line).filter(|_| line.is_event("ledger.open") && line.seq() == 0) {
        Some(origin) if Hash::of_origin(&origin) == line.prev() => return None,
        Some(_) => "does not follow from the ledger's origin",
        None => "a ledger does not begin like this: lines before it are missing",
    };
    Some((Kind::Chain, what.to_owned()))
}
