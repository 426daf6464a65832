//! The entries of one file, forward or backward: lines of a ledger, or any lines of JSON.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use cp_common::{Code, Error, Result, clock, json};
use cp_ledger::format::line::{Line, TS_LEN, decimal, inside, is_time, member, members};
use cp_ledger::read::source::{Source, is_stdin, open_source, seekable};
use cp_ledger::read::tail::{for_blocks, is_ledger_file};
use cp_ledger::read::{Backward, End, Lines, Raw};

use crate::reading::{Select, Target};

/// One entry.
pub(crate) struct View<'a> {
    /// The bytes of the line, as they were written.
    pub(crate) written: &'a [u8],
    /// The entry: the same bytes, or for a line that no ledger holds what it says.
    pub(crate) entry: &'a [u8],
    /// Its place in the ledger, or which line of the file it is, from 0.
    pub(crate) seq: u64,
    /// When it was written; empty where it does not say.
    pub(crate) ts: &'a str,
    body: &'a [u8],
}

impl<'a> View<'a> {
    pub(crate) fn of_line(line: &Line<'a>) -> Self {
        Self { written: line.bytes(), entry: line.bytes(), seq: line.seq(), ts: line.ts(), body: line.body() }
    }

    pub(crate) fn of_foreign(written: &'a [u8], entry: &'a [u8], seq: u64) -> Self {
        Self { written, entry, seq, ts: time_of(entry), body: inside(entry).unwrap_or_default() }
    }

    /// The value of a member, as JSON.
    pub(crate) fn member(&self, name: &str) -> Option<&'a [u8]> {
        member(self.body, name)
    }
}

/// One step of a reader.
pub(crate) enum Step<'a> {
    /// An entry that matches.
    Entry(View<'a>),
    /// A line that is damaged; those after it are read.
    Fault(Error),
    /// The next read may block.
    Wait,
}

/// In which order a file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

/// The position of a reader of a plain file, so that it can be closed and opened again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    file: (u64, u64),
    size: u64,
    offset: u64,
    number: u64,
    format: LineFormat,
}

/// The format of the lines of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineFormat {
    /// Of a ledger: what has another shape is damaged.
    Ledger,
    /// Of another program.
    Foreign,
    /// Of a file that was not named and is not a ledger, which is skipped.
    Passed,
}

enum Input {
    Forward(Lines),
    Backward(Backward),
}

/// Reads one file.
pub(crate) struct Reader {
    target: Target,
    input: Input,
    format: LineFormat,
    /// How many lines are before the next one. Only known of lines that no ledger holds: those of ledgers say it themselves.
    number: u64,
    size: u64,
    /// The plain file that is read, if it is one.
    file: Option<(u64, u64)>,
    entry: Vec<u8>,
}

impl Reader {
    pub(crate) fn open(target: &Target, direction: Direction) -> Result<Self> {
        let path = &target.path;
        let (input, format, size, file) = match direction {
            Direction::Forward => match open_source(path)? {
                Source::File(file, size) => {
                    let format = format_of(is_ledger_file(&file), target);
                    let id = identity(&file, path)?;
                    (Input::Forward(Lines::new(file, path, 0, size)), format, size, Some(id))
                }
                Source::Stream(stream) => {
                    let mut lines = Lines::of_stream(stream, path);
                    let format = format_of(Line::parse(lines.peek()?).is_some(), target);
                    (Input::Forward(lines), format, 0, None)
                }
            },
            Direction::Backward => {
                let (file, size) = seekable(path)?;
                let format = format_of(is_ledger_file(&file), target);
                let id = identity(&file, path)?;
                let named = std::fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()));
                // A copy that has no name cannot be opened again.
                let id = Some(id).filter(|id| named == Some(*id) && !is_stdin(path));
                (Input::Backward(Backward::new(file, path, size)), format, size, id)
            }
        };
        let mut reader = Self { target: target.clone(), input, format, number: 0, size, file, entry: Vec::new() };
        if let (LineFormat::Foreign, Input::Backward(lines)) = (format, &reader.input) {
            reader.number = count_lines(lines.file(), size, path)?;
        }
        Ok(reader)
    }

    /// The position, if the file can be opened again there.
    pub(crate) fn position(&self) -> Option<Position> {
        let offset = match &self.input {
            Input::Forward(lines) => lines.offset(),
            Input::Backward(lines) => lines.end(),
        };
        self.file.map(|file| Position { file, size: self.size, offset, number: self.number, format: self.format })
    }

    /// Continues at the position of a closed reader of the same file.
    pub(crate) fn resume(target: &Target, direction: Direction, at: &Position) -> Result<Self> {
        let path = &target.path;
        let file = cp_ledger::read::open(path)?;
        if identity(&file, path)? != at.file {
            return Err(Error::new(Code::Conflict, "the file was replaced while it was read").in_file(path));
        }
        let input = match direction {
            Direction::Forward => Input::Forward(Lines::new(file, path, at.offset, at.size)),
            Direction::Backward => Input::Backward(Backward::new(file, path, at.offset)),
        };
        let (number, size, file) = (at.number, at.size, Some(at.file));
        Ok(Self { target: target.clone(), input, format: at.format, number, size, file, entry: Vec::new() })
    }

    /// Passes what comes next to `each`, until it breaks or the file ends. True if it broke: a further call goes on behind that.
    pub(crate) fn each(
        &mut self,
        select: &Select,
        each: &mut dyn FnMut(Step<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        if self.format == LineFormat::Passed {
            return Ok(false);
        }
        loop {
            let (is_forward, is_stream) = match &self.input {
                Input::Forward(lines) => (true, lines.is_stream()),
                Input::Backward(_) => (false, false),
            };
            let raw = match &mut self.input {
                Input::Forward(lines) => {
                    if lines.may_block() && each(Step::Wait)?.is_break() {
                        return Ok(true);
                    }
                    if self.format == LineFormat::Ledger { select.next(lines)? } else { lines.next()? }
                }
                Input::Backward(lines) => {
                    self.number = self.number.saturating_sub(1);
                    lines.next()?
                }
            };
            let Some(raw) = raw else { return Ok(false) };
            let number = self.number;
            self.number += u64::from(is_forward);
            // Being written, or cut off: not a line yet. What can be read only once is complete.
            if raw.end == End::File && !is_stream {
                continue;
            }
            // Lines that were passed over are not counted.
            let number = (raw.number > 0 || self.format == LineFormat::Foreign).then_some(number);
            if let Some(step) = self.format.step(&raw, number, &self.target.path, select, &mut self.entry)
                && each(step)?.is_break()
            {
                return Ok(true);
            }
        }
    }
}

fn format_of(is_ledger: bool, target: &Target) -> LineFormat {
    match (is_ledger, target.named) {
        (true, _) => LineFormat::Ledger,
        (false, true) => LineFormat::Foreign,
        (false, false) => LineFormat::Passed,
    }
}

fn identity(file: &File, path: &Path) -> Result<(u64, u64)> {
    let metadata = file.metadata().map_err(|e| Error::io("cannot read its metadata", e).in_file(path))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// How many lines a file has, one that is being written included.
pub(crate) fn count_lines(file: &File, size: u64, path: &Path) -> Result<u64> {
    let (mut count, mut last) = (0, b'\n');
    for_blocks(file, 0, size, |block| {
        count += memchr::memchr_iter(b'\n', block).count() as u64;
        last = block.last().copied().unwrap_or(last);
        Ok(())
    })
    .map_err(|e| Error::io("cannot read", e).in_file(path))?;
    Ok(count + u64::from(last != b'\n'))
}

impl LineFormat {
    /// The step of a line; `None` if it does not match. `number` is how many lines are before it, if they were counted. `entry` holds the
    /// entry of a line that no ledger has.
    pub(crate) fn step<'a>(
        self,
        raw: &Raw<'a>,
        number: Option<u64>,
        path: &Path,
        select: &Select,
        entry: &'a mut Vec<u8>,
    ) -> Option<Step<'a>> {
        let fault = |error: Error| {
            let error = number.into_iter().fold(error, |error, before| error.at_line(before + 1));
            Some(Step::Fault(error.in_file(path)))
        };
        if self == Self::Ledger {
            let damaged = |what: &str| {
                let what = if number.is_some() { what.to_owned() } else { format!("byte {}: {what}", raw.offset) };
                let error = Error::new(Code::Integrity, what).with("offset", raw.offset);
                fault(error.hint("run cp-log verify for details"))
            };
            let line = if raw.end == End::Limit { None } else { Line::parse(raw.bytes) };
            let Some(line) = line else { return damaged("not a line of a ledger") };
            let view = View::of_line(&line);
            if !select.matches(&view) {
                return None;
            }
            if !line.is_intact() {
                return damaged("its hash is not that of its bytes");
            }
            if !json::is_normal(line.bytes()) && json::check(line.bytes()).is_err() {
                return damaged("not JSON");
            }
            return Some(Step::Entry(view));
        }
        if raw.end == End::Limit {
            return fault(Error::validation("the line is too long"));
        }
        if raw.bytes.trim_ascii().is_empty() {
            return None;
        }
        let seq = number.unwrap_or_default();
        if let Err(e) = entry_of(raw.bytes, seq, entry) {
            return fault(e);
        }
        let view = View::of_foreign(raw.bytes, entry, seq);
        select.matches(&view).then_some(Step::Entry(view))
    }
}

/// The members between `ts` and `data` that an entry can have.
const MEMBERS: [&str; 8] = ["event", "agent", "session", "run", "turn", "role", "content", "message"];
/// The members in which other programs write the time.
const TIMES: [&str; 3] = ["ts", "timestamp", "time"];

/// Writes the entry that a line of JSON is; `seq` is its place in the file.
fn entry_of(line: &[u8], seq: u64, out: &mut Vec<u8>) -> Result<()> {
    let mut text = Vec::with_capacity(line.len());
    json::normalize(line, &mut text)
        .map_err(|fault| Error::validation(format!("not valid JSON: {fault}")).with("offset", fault.offset))?;
    let object = inside(&text).ok_or_else(|| Error::validation("not a JSON object"))?;
    let member = |name: &str| member(object, name);
    out.clear();
    out.extend_from_slice(b"{\"seq\":");
    decimal(seq, out);
    let time = TIMES.iter().find_map(|name| {
        let text = json::unquote(member(name)?)?;
        clock::instant_of(&text).map(|time| (*name, time))
    });
    if let Some((_, time)) = &time {
        put("ts", b"", out);
        json::string(time, out);
    }
    let mut taken: Vec<&str> = time.iter().map(|(name, _)| *name).filter(|name| *name == "ts").collect();
    for name in MEMBERS {
        if let Some(value) = member(name).filter(|value| fits(name, value)) {
            put(name, value, out);
            taken.push(name);
        }
    }
    let own = member("data").and_then(inside).unwrap_or_default();
    taken.extend(member("data").and_then(inside).map(|_| "data"));
    let is_rest = |name: &[u8]| {
        !taken.iter().any(|taken| taken.as_bytes() == name) && !members(own).any(|(known, _)| known == name)
    };
    let mut data = own.to_vec();
    for (name, value) in members(object).filter(|(name, _)| is_rest(name)) {
        if !data.is_empty() {
            data.push(b',');
        }
        data.push(b'"');
        data.extend_from_slice(name);
        data.extend_from_slice(b"\":");
        data.extend_from_slice(value);
    }
    if !data.is_empty() {
        put("data", b"{", out);
        out.extend_from_slice(&data);
        out.push(b'}');
    }
    out.push(b'}');
    Ok(())
}

fn put(name: &str, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
    out.extend_from_slice(value);
}

/// True if a value is of the kind that an entry has there.
fn fits(name: &str, value: &[u8]) -> bool {
    match name {
        "turn" => value.iter().all(u8::is_ascii_digit),
        "content" => true,
        "message" => value.starts_with(b"\"") || value.starts_with(b"{"),
        _ => value.starts_with(b"\""),
    }
}

/// The time of an entry that [`entry_of`] wrote; empty if its line has none.
pub(crate) fn time_of(entry: &[u8]) -> &str {
    let time = inside(entry).and_then(|object| member(object, "ts"));
    let text = time.and_then(|value| value.get(1..=TS_LEN)).filter(|text| is_time(text));
    text.and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> String {
        let mut out = Vec::new();
        entry_of(line.as_bytes(), 7, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn foreign_line_becomes_an_entry() {
        assert_eq!(
            entry(r#"{"ts": "2026-11-21T03:00:00Z", "agent": "a", "event": "e", "message": "m"}"#),
            r#"{"seq":7,"ts":"2026-11-21T03:00:00.000000Z","event":"e","agent":"a","message":"m"}"#
        );
        assert_eq!(
            entry(r#"{"seq":1e400,"time":"2026-11-21T03:00:00+01:00","event":3,"data":{"a":1,"x":2},"x":9,"b":[]}"#),
            r#"{"seq":7,"ts":"2026-11-21T02:00:00.000000Z","data":{"a":1,"x":2,"seq":1e400,"time":"2026-11-21T03:00:00+01:00","event":3,"b":[]}}"#
        );
        assert_eq!(entry(r#"{"ts":"noon","data":1}"#), r#"{"seq":7,"data":{"ts":"noon","data":1}}"#);
        assert_eq!(entry("{}"), r#"{"seq":7}"#);
        assert_eq!(time_of(entry(r#"{"ts":"2026-11-21T03:00:00Z"}"#).as_bytes()), "2026-11-21T03:00:00.000000Z");
        assert_eq!(time_of(entry("{}").as_bytes()), "");
    }

    #[test]
    fn entry_of_refuses_non_objects() {
        for line in ["", "[1]", "word", r#"{"a":1,"a":2}"#] {
            assert!(entry_of(line.as_bytes(), 0, &mut Vec::new()).is_err(), "{line}");
        }
    }
}
