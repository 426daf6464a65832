//! The entries of one file, forward or backward: lines of a ledger, or any lines of JSON.

use std::fs::File;
use std::ops::ControlFlow;
use std::os::unix::fs::MetadataExt as _;

use cp_common::{Code, Error, Result, json};
use cp_ledger::format::line::{Line, member};
use cp_ledger::read::source::{Source, open_source};
use cp_ledger::read::tail::is_ledger_file;
use cp_ledger::read::{Backward, End, Lines, Raw};

use crate::reading::{Select, Target};

/// One entry.
pub(crate) struct View<'a> {
    /// The bytes of the line, as they were written.
    pub(crate) written: &'a [u8],
    /// Its place in the ledger.
    pub(crate) seq: u64,
    /// When it was written.
    pub(crate) ts: &'a str,
    /// Its members between `ts` and `prev`.
    pub(crate) body: &'a [u8],
}

impl<'a> View<'a> {
    pub(crate) fn of_line(line: &Line<'a>) -> Self {
        Self { written: line.bytes(), seq: line.seq(), ts: line.ts(), body: line.body() }
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
}

enum Input {
    Forward(Lines),
    Backward(Backward),
}

/// Reads one file.
pub(crate) struct Reader {
    target: Target,
    input: Input,
    /// True if the file is not a ledger, and was found in a directory.
    is_passed_over: bool,
    /// True if it begins within the file, so that lines before it were not counted.
    is_resumed: bool,
    size: u64,
    /// The plain file that is read, if it is one.
    file: Option<(u64, u64)>,
}

impl Reader {
    /// Opens a file at its beginning or end, or where an earlier reader of it stood.
    pub(crate) fn open(target: &Target, direction: Direction, at: Option<Position>) -> Result<Self> {
        let path = &target.path;
        let reader = |input, is_passed_over, size, file| Self {
            target: target.clone(),
            input,
            is_passed_over,
            is_resumed: at.is_some(),
            size,
            file,
        };
        let (file, size) = match open_source(path)? {
            Source::File(file, size) => (file, size),
            Source::Stream(_) if direction == Direction::Backward => {
                return Err(Error::usage("a stream has no end to begin with").in_file(path).hint("name a file"));
            }
            stream @ Source::Stream(_) => {
                return Ok(reader(Input::Forward(Lines::of(stream, path)), false, 0, None));
            }
        };
        let is_passed_over = at.is_none() && !is_ledger_or_empty(&file, size, target)?;
        let id = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
        let own = file.metadata().map(id).map_err(|e| Error::io("cannot read its metadata", e).in_file(path))?;
        if at.is_some_and(|at| at.file != own) {
            return Err(Error::new(Code::Conflict, "the file was replaced while it was read").in_file(path));
        }
        let size = at.map_or(size, |at| at.size);
        let input = match direction {
            Direction::Forward => Input::Forward(Lines::new(file, path, at.map_or(0, |at| at.offset), size)),
            Direction::Backward => Input::Backward(Backward::new(file, path, at.map_or(size, |at| at.offset))),
        };
        Ok(reader(input, is_passed_over, size, Some(own)))
    }

    /// The position, if the file can be opened again there.
    pub(crate) fn position(&self) -> Option<Position> {
        let offset = match &self.input {
            Input::Forward(lines) => lines.offset(),
            Input::Backward(lines) => lines.end(),
        };
        self.file.map(|file| Position { file, size: self.size, offset })
    }

    /// Passes what comes next to `each`, until it breaks or the file ends. True if it broke: a further call goes on
    /// behind that.
    pub(crate) fn each(
        &mut self,
        select: &Select,
        each: &mut dyn FnMut(Step<'_>) -> Result<ControlFlow<()>>,
    ) -> Result<bool> {
        if self.is_passed_over {
            return Ok(false);
        }
        loop {
            let is_stream = matches!(&self.input, Input::Forward(lines) if lines.is_stream());
            let raw = match &mut self.input {
                Input::Forward(lines) => {
                    if lines.may_block() && each(Step::Wait)?.is_break() {
                        return Ok(true);
                    }
                    select.next(lines)?
                }
                Input::Backward(lines) => lines.next()?,
            };
            let Some(raw) = raw else { return Ok(false) };
            // Being written, or cut off: not a line yet. What can be read only once is complete.
            if raw.end == End::File && !is_stream {
                continue;
            }
            if let Some(step) = step(&raw, if self.is_resumed { 0 } else { raw.number }, &self.target, select)
                && each(step)?.is_break()
            {
                return Ok(true);
            }
        }
    }
}

/// True if a file is a ledger, or empty. One that was named must be.
pub(crate) fn is_ledger_or_empty(file: &File, size: u64, target: &Target) -> Result<bool> {
    if size == 0 || is_ledger_file(file, &target.path)? {
        return Ok(true);
    }
    if target.must_be_ledger() { Err(not_a_ledger(target)) } else { Ok(false) }
}

/// The error about a file of another program.
pub(crate) fn not_a_ledger(target: &Target) -> Error {
    Error::validation("not a ledger: none of its lines is a line of a ledger").in_file(&target.shown())
}

/// The step of a line; `None` if it does not match. `number` is which line of the file it is, from 1; 0 if that is not
/// known.
pub(crate) fn step<'a>(raw: &Raw<'a>, number: u64, target: &Target, select: &Select) -> Option<Step<'a>> {
    let damaged = |what: &str| {
        let what = if number == 0 { format!("byte {}: {what}", raw.offset) } else { what.to_owned() };
        let error = Error::new(Code::Integrity, what).with("offset", raw.offset).hint("run cp-log verify for details");
        let error = if number == 0 { error } else { error.at_line(number) };
        Some(Step::Fault(error.in_file(&target.shown())))
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
    if json::check(line.bytes()).is_err() {
        return damaged("not JSON");
    }
    Some(Step::Entry(view))
}
