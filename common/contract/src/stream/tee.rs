//! Passes records on byte for byte and records them on the way.

use crate::context::Context;
use crate::context::options::{InputKind, StreamOptions};
use crate::stream::filter::{Body, empty, refuse_terminal, unclosed};
use crate::stream::lines::Lines;
use crate::wire::record::{Kind, Record};
use crate::wire::{Error, Result};

/// The recording that `tee` performs for each line before it passes the line on.
pub trait Recorder {
    /// Records one line. A failure that is not fatal is reported on standard error, and the line is passed on.
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()>;

    /// Writes the recorded lines before they are passed on, to the disk if `is_end`. It runs before a read that could
    /// block, when a batch is full, and at the end; a recorder must not write recorded lines elsewhere.
    fn write(&mut self, is_end: bool) -> Result<()>;
}

/// Number of bytes of waiting lines at which the recorder writes a batch.
const BATCH: usize = 64 << 10;

/// Lines that are recorded but perhaps not written yet. They are passed on after they are written.
struct Waiting<'a> {
    /// `None` in a dry run.
    recorder: Option<&'a mut dyn Recorder>,
    bytes: Vec<u8>,
    lines: u64,
    /// Number of lines passed on.
    passed: u64,
    /// False if the last line was passed on without a line feed, as it came.
    terminated: bool,
}

impl Waiting<'_> {
    /// Records a line. Returns the exit status that belongs to a closing line.
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<Option<u8>> {
        let (mut closing, mut is_summary) = (None, false);
        if let Body::Record(record) = &body {
            closing = record.closed.then(|| if record.ok { 0 } else { record.code().row().exit });
            is_summary = record.ok && record.kind == Some(Kind::Summary);
        }
        if let (Some(recorder), false) = (&mut self.recorder, is_summary) {
            recorder.record(body, context)?;
        }
        Ok(closing)
    }

    /// Passes the lines on after the recorder has written them.
    fn pass(&mut self, is_end: bool, context: &mut Context) -> Result<()> {
        let (mut bytes, lines) = (std::mem::take(&mut self.bytes), std::mem::take(&mut self.lines));
        // Lines that cannot be recorded are not passed on.
        self.recorder.as_mut().map_or(Ok(()), |recorder| recorder.write(is_end))?;
        context.out.raw(&bytes)?;
        self.passed += lines;
        bytes.clear();
        self.bytes = bytes;
        Ok(())
    }
}

/// Passes standard input on byte for byte and records it: no line is passed on before it is written. A closing line
/// waits until the lines are on the disk; it is then passed on, or replaced by the failure, which reports the number of
/// lines that were passed on. A signal does not stop the tee before the input ends. A dry run records nothing.
pub fn tee(recorder: &mut dyn Recorder, is_dry_run: bool, options: StreamOptions, context: &mut Context) -> Result<()> {
    refuse_terminal()?;
    context.out.filtering();
    context.out.outlive_reader();
    let recorder = (!is_dry_run).then_some(recorder);
    let mut waiting = Waiting { recorder, bytes: Vec::new(), lines: 0, passed: 0, terminated: true };
    pass_all(&mut waiting, options, context).map_err(|error| {
        // The lines before the failure are recorded, unless recording them failed.
        let _ = waiting.pass(false, context);
        if !waiting.terminated {
            let _ = context.out.raw(b"\n");
        }
        error.with("passed", waiting.passed)
    })
}

fn pass_all(waiting: &mut Waiting<'_>, options: StreamOptions, context: &mut Context) -> Result<()> {
    let mut lines = Lines::new(rustix::stdio::stdin());
    lines.drain_after_signals();
    let mut kind = options.kind();
    let mut closing = None;
    while let Some(line) = lines.next_or_blank(&mut || {
        waiting.pass(false, context)?;
        context.out.flush()
    })? {
        let bytes = lines.bytes(&line).map_err(Error::fatal)?;
        let is_blank = bytes.trim_ascii().is_empty();
        if kind.is_none() && !is_blank {
            kind = Some(if Record::looks_like_one(bytes) { InputKind::Records } else { InputKind::Text });
        }
        if line.number > 1 {
            context.out.streaming()?;
        }
        // Only in a text is a blank line an item.
        let line_kind = kind.unwrap_or(InputKind::Text);
        if line_kind == InputKind::Text || !is_blank {
            closing = match Body::of(line_kind, bytes).and_then(|body| waiting.record(body, context)) {
                Err(error) if !error.is_fatal() => {
                    context.warn(&format!("line {} is passed on but not recorded: {error}", line.number));
                    None
                }
                recorded => recorded?,
            };
        }
        waiting.terminated = line.terminated;
        waiting.bytes.extend_from_slice(lines.raw(&line));
        waiting.lines += 1;
        if closing.is_some() || waiting.bytes.len() >= BATCH {
            waiting.pass(closing.is_some(), context)?;
        }
        if let Some(status) = closing {
            context.out.ended_with(status);
        }
    }
    // Blank lines may come after a closing line.
    waiting.pass(true, context)?;
    if waiting.passed == 0 {
        return Err(empty());
    }
    if closing.is_none() {
        if kind == Some(InputKind::Records) {
            unclosed(waiting.terminated, options, context)?;
        }
        context.out.ended_with(0);
    }
    Ok(())
}
