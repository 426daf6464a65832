//! Passes records on byte for byte and records them on the way.

use crate::context::Context;
use crate::context::options::{InputKind, StreamOptions};
use crate::stream::filter::{Body, Seen, empty, refuse_terminal, row_of, too_long};
use crate::stream::lines::{Lines, Next};
use crate::wire::record::{Kind, Record};
use crate::wire::{Code, Error, Result};

/// The recording that `tee` performs for each line before it passes the line on.
pub trait Recorder {
    /// Records one line. A failure that is not fatal is reported on standard error, and the line is passed on.
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()>;

    /// Writes the gathered lines before they are passed on. It runs before a read that could block, and when a batch is
    /// full; a recorder must not write gathered lines elsewhere.
    fn idle(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }

    /// Returns after all recorded lines are durable.
    fn acknowledge(&mut self, context: &mut Context) -> Result<()>;
}

struct Nothing;

impl Recorder for Nothing {
    fn record(&mut self, _body: Body<'_>, _context: &mut Context) -> Result<()> {
        Ok(())
    }

    fn acknowledge(&mut self, _context: &mut Context) -> Result<()> {
        Ok(())
    }
}

/// Number of bytes of waiting lines at which the recorder writes a batch.
const BATCH: usize = 64 << 10;

/// Lines that are recorded but perhaps not written yet. They are passed on after they are written.
#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Number of lines passed on.
    passed: u64,
}

impl Waiting {
    fn push(&mut self, line: &[u8]) {
        self.bytes.extend_from_slice(line);
        self.ends.push(self.bytes.len());
    }

    /// Passes the lines on after the recorder has written them.
    fn pass(&mut self, recorder: &mut dyn Recorder, context: &mut Context) -> Result<()> {
        if let Err(e) = recorder.idle(context) {
            // These lines are not recorded, so they are not passed on.
            *self = Self { passed: self.passed, ..Self::default() };
            return Err(e);
        }
        let mut start = 0;
        for end in self.ends.drain(..) {
            context.out.pass(&self.bytes[start..end])?;
            start = end;
            self.passed += 1;
        }
        self.bytes.clear();
        Ok(())
    }
}

/// Passes standard input on byte for byte and records it: no line is passed on before it is written. A closing line
/// waits until the recorder has acknowledged; it is then passed on, or replaced by the failure, which reports the
/// number of lines that were passed on. A signal does not stop the tee before the input ends.
/// A dry run records nothing.
pub fn tee(recorder: &mut dyn Recorder, is_dry_run: bool, options: StreamOptions, context: &mut Context) -> Result<()> {
    let recorder = if is_dry_run { &mut Nothing } else { recorder };
    refuse_terminal()?;
    context.out.filtering();
    context.out.outlive_reader();
    let mut waiting = Waiting::default();
    let passed = pass_all(&mut waiting, recorder, options, context);
    let error = match passed {
        Ok(()) => return Ok(()),
        Err(error) => error,
    };
    // The lines before the failure are recorded, unless recording them failed.
    let _ = waiting.pass(recorder, context);
    Err(error.with("passed", waiting.passed))
}

fn pass_all(
    waiting: &mut Waiting,
    recorder: &mut dyn Recorder,
    options: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    let mut lines = Lines::new(rustix::stdio::stdin());
    lines.drain_after_signals();
    let mut kind = options.kind();
    let mut seen = Seen { terminated: true, ..Seen::default() };
    loop {
        let line = match lines.next(&mut || {
            waiting.pass(recorder, context)?;
            context.out.flush()
        })? {
            Next::End => break,
            Next::TooLong(number) => return Err(too_long(number).fatal()),
            Next::Line(line) => line,
        };
        let bytes = lines.bytes(&line);
        let kind = *kind
            .get_or_insert_with(|| if Record::looks_like_one(bytes) { InputKind::Records } else { InputKind::Text });
        seen.lines += 1;
        seen.terminated = line.terminated;
        if seen.lines > 1 {
            context.out.streaming()?;
        }
        let closing = match record_line(recorder, kind, bytes, context) {
            Ok(closing) => closing,
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                context.warn(&format!("line {} is passed on but not recorded: {error}", line.number));
                None
            }
        };
        seen.closed = closing.is_some();
        if let Some(status) = closing {
            waiting.pass(recorder, context)?;
            recorder.acknowledge(context)?;
            context.out.pass(bytes)?;
            waiting.passed += 1;
            context.out.ended_with(status);
            continue;
        }
        waiting.push(bytes);
        if waiting.bytes.len() + waiting.ends.len() >= BATCH {
            waiting.pass(recorder, context)?;
        }
    }
    if seen.lines == 0 {
        return Err(empty());
    }
    if seen.closed {
        return Ok(());
    }
    if kind == Some(InputKind::Records) && options.closed {
        recorder.acknowledge(context)?;
        return Err(Error::new(Code::Io, "the input ended without its closing line").fatal());
    }
    if kind == Some(InputKind::Records) && !seen.terminated {
        context.warn("the input ended without its closing line");
    }
    waiting.pass(recorder, context)?;
    recorder.acknowledge(context)?;
    context.out.ended_with(0);
    Ok(())
}

/// Records a line. Returns the exit status that belongs to a closing line.
fn record_line(
    recorder: &mut dyn Recorder,
    kind: InputKind,
    bytes: &[u8],
    context: &mut Context,
) -> Result<Option<u8>> {
    let record = match kind {
        InputKind::Text => return recorder.record(Body::Text(bytes), context).map(|()| None),
        InputKind::Rows => return recorder.record(Body::Row(row_of(bytes)?), context).map(|()| None),
        InputKind::Records => Record::parse(bytes)?,
    };
    let status = if record.ok { 0 } else { record.code().row().exit };
    let closing = record.closed.then_some(status);
    if record.kind != Some(Kind::Summary) || !record.ok {
        recorder.record(Body::Record(record), context)?;
    }
    Ok(closing)
}
