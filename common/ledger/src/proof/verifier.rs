//! Proves a ledger file: every line's shape and hash, the chain through all of them, and that each is JSON in normal
//! form.
//!
//! Lines are hashed where they lie, without parsing; chunks of a file are proved on their own, and their ends are
//! joined afterwards.

use std::path::Path;

use cp_common::{Result, json, signals};

use crate::format::line::{Hash, Line, claimed_seq, inside, members};
use crate::proof::leaves::origin_in;
use crate::proof::opening::refers;
use crate::proof::{FAULTS_LISTED, Fault, Kind};
use crate::read::source::{Source, open_source};
use crate::read::{End, Lines, Raw};

/// How much of a file is proved between two reports of progress.
const CHUNK: u64 = 4 << 20;

/// Options of the verification.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// True if each line must also be JSON in normal form.
    pub json: bool,
    /// True if bytes after the last line feed are a fault: the file is complete.
    pub closed: bool,
}

/// The end of some lines, which the next line must follow.
#[derive(Clone, Copy, Debug)]
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

impl State {
    const UNKNOWN: Self = Self { hashes: None, intact: false, next: None, slack: 0 };
}

/// The report on one file.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many lines there are, damaged ones included.
    pub lines: u64,
    /// How many lines are intact.
    pub intact: u64,
    /// How many bytes were looked at.
    pub bytes: u64,
    /// The number of the first intact line.
    pub first: Option<u64>,
    /// The number and the hash of the last intact line.
    pub last: Option<(u64, Hash)>,
    /// How many lines are JSON objects that claim no place in a chain: those of other programs.
    pub unchained: u64,
    /// True if bytes follow the last line feed.
    pub in_flight: bool,
    /// True if a line refers to the lines before it or to files beside the ledger.
    pub refers: bool,
    /// How often a writer's clock was behind that of the line before.
    pub clock_backwards: u64,
    /// The first faults.
    pub faults: Vec<Fault>,
    /// How many faults there are.
    pub fault_count: u64,
    /// The end that a following segment must follow.
    pub end: State,
}

impl Report {
    /// A report on a file of which nothing is known yet.
    pub fn empty(bytes: u64) -> Self {
        Self {
            lines: 0,
            intact: 0,
            bytes,
            first: None,
            last: None,
            unchained: 0,
            in_flight: false,
            refers: false,
            clock_backwards: 0,
            faults: Vec::new(),
            fault_count: 0,
            end: State::UNKNOWN,
        }
    }

    /// Adds a fault to those that the lines themselves showed.
    pub fn add(&mut self, fault: Fault) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_LISTED {
            self.faults.push(fault);
        }
    }
}

/// Proves a file. `before` is the end of the segment before it. `progress` gets how many bytes are done.
pub fn verify(
    path: &Path,
    before: Option<State>,
    options: &Options,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Report> {
    let (file, size) = match open_source(path)? {
        Source::File(file, size) => (file, size),
        Source::Stream(reader) => return verify_stream(Lines::of_stream(reader, path), before, options),
    };
    let mut whole = Joined::new(before);
    let chunks = size.div_ceil(CHUNK).max(1);
    for chunk in 0..chunks {
        let mut lines = Lines::new(file.try_clone()?, path, (chunk * CHUNK).saturating_sub(1), size);
        whole.join(Chunk::read(&mut lines, chunk * CHUNK, (chunk + 1) * CHUNK, *options)?);
        progress(size.min((chunk + 1) * CHUNK), size);
    }
    Ok(whole.report(size))
}

/// Proves lines that can be read only once, as one chunk.
pub fn verify_stream(mut lines: Lines, before: Option<State>, options: &Options) -> Result<Report> {
    let mut whole = Joined::new(before);
    whole.join(Chunk::read(&mut lines, 0, u64::MAX, *options)?);
    Ok(whole.report(lines.offset()))
}

/// The lines that start in a part of a file, proved as far as they can be alone.
struct Chunk {
    lines: u64,
    intact: u64,
    unchained: u64,
    in_flight: bool,
    refers: bool,
    clock_backwards: u64,
    /// The first intact line: which one of the chunk it is, and what it says.
    first: Option<First>,
    last: Option<(u64, Hash)>,
    last_ts: Option<String>,
    faults: Vec<Fault>,
    fault_count: u64,
    end: State,
    json: bool,
}

struct First {
    line: u64,
    offset: u64,
    seq: u64,
    prev: Hash,
    ts: String,
    /// The required `prev` if this is the first line of all; `None` if a ledger cannot begin like this.
    origin: Option<Hash>,
    /// True if its place was already judged by the hash of a damaged line before it.
    anchored: bool,
}

impl Chunk {
    /// Reads the lines that start in `from..to`. The reader stands one byte before, to see whether a line starts at
    /// `from`.
    fn read(reader: &mut Lines, from: u64, to: u64, options: Options) -> Result<Self> {
        let mut chunk = Self {
            lines: 0,
            intact: 0,
            unchained: 0,
            in_flight: false,
            refers: false,
            clock_backwards: 0,
            first: None,
            last: None,
            last_ts: None,
            faults: Vec::new(),
            fault_count: 0,
            end: State::UNKNOWN,
            json: options.json,
        };
        if from > 0 {
            reader.next()?;
        }
        while let Some(raw) = reader.next()? {
            if raw.offset >= to {
                break;
            }
            if raw.end == End::File {
                chunk.in_flight = true;
                if options.closed {
                    chunk.lines += 1;
                    chunk.fault(&raw, None, Kind::Torn, "the line is not whole");
                }
                break;
            }
            chunk.line(&raw);
        }
        signals::check()?;
        Ok(chunk)
    }

    fn line(&mut self, raw: &Raw<'_>) {
        self.lines += 1;
        let Some(line) = raw.stored() else {
            self.unchained += u64::from(raw.end != End::Limit && is_unchained(raw.bytes));
            let what = if raw.end == End::Limit { "the line is too long" } else { "not the shape of a line" };
            self.fault(raw, claimed_seq(raw.bytes).map(|(seq, _)| seq), Kind::Shape, what);
            self.end = State { hashes: None, intact: false, slack: self.end.slack + 1, ..self.end };
            return;
        };
        self.refers |= refers(&line);
        let (seq, computed) = (line.seq(), Hash::of(line.hashed()));
        if computed.hex().as_bytes() != line.hash_hex() {
            self.fault(raw, Some(seq), Kind::Hash, "the bytes are not those that were hashed");
            // Either the content or the hash was changed: the next line still knows what it was.
            let hashes = Some((line.hash(), computed));
            self.end = State { hashes, intact: false, slack: self.end.slack + 1, ..self.end };
            return;
        }
        self.intact += 1;
        if let Some((kind, what)) = misfit(&self.end, seq, line.prev_hex()) {
            self.fault(raw, Some(seq), kind, &what);
        }
        if self.first.is_none() {
            let origin = origin_of(&line);
            let (ts, prev) = (line.ts().to_owned(), line.prev());
            let anchored = self.end.hashes.is_some();
            self.first = Some(First { line: self.lines, offset: raw.offset, seq, prev, ts, origin, anchored });
        }
        if self.last_ts.as_deref().is_some_and(|before| line.ts() < before) {
            self.clock_backwards += 1;
        }
        match &mut self.last_ts {
            Some(ts) => {
                ts.clear();
                ts.push_str(line.ts());
            }
            none => *none = Some(line.ts().to_owned()),
        }
        if self.json && !json::is_normal(line.bytes()) {
            match json::check(line.bytes()) {
                Ok(()) => self.fault(raw, Some(seq), Kind::NormalForm, "JSON, but not in normal form"),
                Err(fault) => self.fault(raw, Some(seq), Kind::Json, &format!("not JSON: {fault}")),
            }
        }
        self.last = Some((seq, computed));
        self.end = State { hashes: Some((computed, computed)), intact: true, next: seq.checked_add(1), slack: 0 };
    }

    fn fault(&mut self, raw: &Raw<'_>, seq: Option<u64>, kind: Kind, message: &str) {
        self.fault_count += 1;
        if self.faults.len() < FAULTS_LISTED {
            self.faults.push(Fault { line: self.lines, offset: raw.offset, seq, kind, message: message.to_owned() });
        }
    }
}

/// True if a line is a JSON object without a hash: a line of another program, rather than one of ours that was damaged.
fn is_unchained(bytes: &[u8]) -> bool {
    let mut text = Vec::with_capacity(bytes.len());
    let is_json = json::normalize(bytes, &mut text).is_ok();
    let claims = |name: &[u8]| matches!(name, b"hash" | b"prev" | b"entry_hash" | b"previous_hash");
    is_json && inside(&text).is_some_and(|object| !members(object).any(|(name, _)| claims(name)))
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

/// The required `prev` of the first line of a ledger.
fn origin_of(line: &Line<'_>) -> Option<Hash> {
    if line.is_event("segment.open") {
        return Some(line.prev());
    }
    if !line.is_event("ledger.open") || line.seq() != 0 {
        return None;
    }
    origin_in(line).map(|origin| Hash::of_origin(&origin))
}

/// Chunks joined to a whole.
struct Joined {
    report: Report,
    begins: bool,
    state: State,
    last_ts: Option<String>,
}

impl Joined {
    fn new(before: Option<State>) -> Self {
        let report = Report::empty(0);
        Self { report, begins: before.is_none(), state: before.unwrap_or(State::UNKNOWN), last_ts: None }
    }

    fn join(&mut self, chunk: Chunk) {
        let misfit =
            chunk.first.as_ref().and_then(|first| self.misfit(first).map(|(kind, message)| (first, kind, message)));
        if let Some((first, kind, message)) = misfit {
            self.report.fault_count += 1;
            let fault = Fault { line: first.line, offset: first.offset, seq: Some(first.seq), kind, message };
            self.add_fault(fault);
        }
        let backwards =
            chunk.first.as_ref().is_some_and(|first| self.last_ts.as_ref().is_some_and(|last| first.ts < *last));
        self.report.clock_backwards += chunk.clock_backwards + u64::from(backwards);
        self.report.fault_count += chunk.fault_count;
        for fault in chunk.faults {
            self.add_fault(fault);
        }
        self.report.faults.sort_by_key(|fault| fault.offset);
        self.report.faults.truncate(FAULTS_LISTED);
        self.report.first = self.report.first.or(chunk.first.map(|first| first.seq));
        self.report.last = chunk.last.or(self.report.last);
        self.last_ts = chunk.last_ts.or(self.last_ts.take());
        self.report.intact += chunk.intact;
        self.report.unchained += chunk.unchained;
        self.report.lines += chunk.lines;
        self.report.in_flight |= chunk.in_flight;
        self.report.refers |= chunk.refers;
        if chunk.lines > 0 {
            self.state = State {
                next: chunk.end.next.or(self.state.next),
                slack: chunk.end.slack + if chunk.end.next.is_some() { 0 } else { self.state.slack },
                ..chunk.end
            };
        }
    }

    /// Why the first intact line of a chunk does not follow the lines before the chunk.
    fn misfit(&self, first: &First) -> Option<(Kind, String)> {
        if first.anchored {
            return None;
        }
        if self.begins && self.report.lines == 0 && first.line == 1 {
            return match &first.origin {
                Some(origin) if *origin == first.prev => None,
                Some(_) => Some((Kind::Chain, "does not follow from the ledger's origin".to_owned())),
                None => {
                    Some((Kind::Chain, "a ledger does not begin like this: lines before it are missing".to_owned()))
                }
            };
        }
        let between = first.line - 1;
        let before = if between == 0 {
            self.state
        } else {
            State { hashes: None, intact: false, slack: self.state.slack + between, ..self.state }
        };
        misfit(&before, first.seq, first.prev.hex().as_bytes())
    }

    fn add_fault(&mut self, fault: Fault) {
        self.report.faults.push(Fault { line: fault.line + self.report.lines, ..fault });
    }

    fn report(mut self, size: u64) -> Report {
        self.report.bytes = size;
        self.report.end = self.state;
        self.report
    }
}
