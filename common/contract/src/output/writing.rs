//! Writing: the held record, the buffer, and delivery to the reader.

use super::{ClosingLine, FLUSH_AT, Held, Output, Reader, Shape, Sink, last, printable};
use crate::wire::Result;

impl Output {
    /// Writes everything that is finished to the reader.
    pub fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = self.deliver(&buffer);
        self.buffer = buffer;
        if matches!(self.sink, Sink::Stdout) {
            self.buffer.clear();
        }
        outcome
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<()> {
        let outcome = match self.sink {
            Sink::Stdout if self.reader == Reader::Gone => Ok(()),
            Sink::Stdout => last::deliver(bytes, self.counts, self.line == ClosingLine::Written),
            #[cfg(test)]
            Sink::Memory => Ok(()),
        };
        match outcome {
            Err(e) if e.is_reader_gone() && self.reader == Reader::IsOutlived => {
                self.reader = Reader::Gone;
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn emit(&mut self, held: Held) -> Result<()> {
        self.filtering();
        if self.held.is_some() {
            self.set_shape(Shape::Stream);
        }
        self.release()?;
        self.held = Some(held);
        if self.shape == Shape::Stream { self.release() } else { Ok(()) }
    }

    /// Writes the held record as an open one.
    pub(super) fn release(&mut self) -> Result<()> {
        match self.held.take() {
            None => Ok(()),
            Some(Held::Own { mut open, .. }) => {
                open.extend_from_slice(b"}\n");
                self.put(&open)
            }
            Some(Held::Upstream { mut opened, .. }) => {
                opened.push(b'\n');
                self.put(&opened)
            }
        }
    }

    pub(super) fn set_shape(&mut self, shape: Shape) {
        self.shape = shape;
        last::stand().shape = shape;
    }

    pub(super) fn put_text(&mut self, text: &str) -> Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        self.put(printable(text).as_bytes())?;
        self.put(b"\n")
    }

    pub(super) fn put(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= FLUSH_AT {
            // A long line is not copied to the buffer.
            self.flush()?;
            return self.deliver(bytes);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }
}
