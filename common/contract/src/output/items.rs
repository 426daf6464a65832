//! Items and records: the place and outcome of each item, failures, the held record, and delivery to the reader.

use rustix::stdio::stdout;
use rustix::termios::isatty;
use serde_json::Value;

use super::{FAILURES_SHOWN, FLUSH_AT, Format, Held, ItemStatus, Output, Place, Progress, Reader, Shape, printable};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Error, Result};

impl Output {
    /// Returns the place of the input line that the next records answer.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Sets the place of the input line that the next records answer.
    pub fn set_place(&mut self, place: Place) {
        self.place = place;
    }

    /// Marks the current item as deferred: [`crate::stream::filter::settle`] counts it later.
    pub fn defer_item(&mut self) {
        self.item_status = ItemStatus::Deferred;
    }

    /// Marks the current item as skipped.
    pub fn skip_item(&mut self) {
        self.item_status = ItemStatus::Skipped;
    }

    /// Returns the status of the current item and resets it.
    pub(crate) fn take_item_status(&mut self) -> ItemStatus {
        std::mem::take(&mut self.item_status)
    }

    /// Counts an item that succeeded.
    pub fn item_succeeded(&mut self) {
        self.state().counts.succeeded += 1;
        self.report_rows();
    }

    /// Counts an item that was skipped.
    pub fn item_skipped(&mut self) {
        self.state().counts.skipped += 1;
        self.report_rows();
    }

    /// Reports the number of rows, unless the rows themselves are shown on a terminal.
    fn report_rows(&mut self) {
        let (started, counts) = {
            let state = self.state();
            (state.started, state.counts)
        };
        let (quiet, note) = (self.is_quiet(), &self.rows_note);
        let rows = self.rows.get_or_insert_with(|| Progress::since(started, !quiet && !isatty(stdout())));
        rows.report(|| {
            let done = counts.succeeded + counts.failed + counts.skipped;
            let failed = if counts.failed > 0 { format!(", {} failed", counts.failed) } else { String::new() };
            format!("{done} done{failed}{note}")
        });
    }

    /// Leaves the lines of failed items to the program, which writes them in a format of its own.
    pub fn write_failed_lines_itself(&mut self) {
        self.writes_failed_lines = true;
    }

    /// Writes an item's failure; the stream continues, and ends with [`crate::Code::Partial`] if others succeeded.
    pub fn item_failed(&mut self, error: Error) -> Result<()> {
        let error = error.without_secrets();
        self.state().counts.failed += 1;
        self.report_rows();
        if self.format() == Format::Json {
            let mut value = error.to_value();
            if let (Some(index), Some(Value::Object(details))) = (self.place.index, value.get_mut("details")) {
                details.insert("index".to_owned(), index.into());
            }
            let mut open = record::head(false, Some(Kind::Error.name()));
            record::member(&mut open, "error", value.to_string().as_bytes());
            open.push(b'}');
            self.emit(Held { open, closed: None, failure: Some(error.code()) })?;
        } else if self.is_line_of_stream() && !self.writes_failed_lines {
            self.put(b"\n")?;
        }
        self.own_failures += 1;
        if self.own_failures <= FAILURES_SHOWN {
            self.report_error(&error);
        }
        self.first_failure.get_or_insert(error);
        Ok(())
    }

    /// True if the item is one of many. Without an envelope its failure is an empty line, so that the other lines stay
    /// beside those of the input.
    pub(super) fn is_line_of_stream(&self) -> bool {
        self.shape() == Shape::Stream && self.place.line.is_some()
    }

    /// Passes on a failure from upstream without changes.
    pub(crate) fn pass_failure(&mut self, record: &Record<'_>) -> Result<()> {
        self.upstream_failures = true;
        if record.closed {
            self.upstream_end.get_or_insert_with(|| record.failure());
        } else {
            self.state().counts.failed += 1;
            self.first_failure.get_or_insert_with(|| record.failure());
        }
        if record.kind == Some(Kind::Summary) {
            return Ok(());
        }
        if self.format() != Format::Json {
            return if record.closed { Ok(()) } else { self.put(b"\n") };
        }
        let opened = record.opened();
        if record.closed {
            return self.emit(Held { open: opened, closed: Some(record.line.to_vec()), failure: Some(record.code()) });
        }
        self.state().shape = Shape::Stream;
        self.pass(&opened)
    }
}

impl Output {
    /// Writes everything that is finished to the reader.
    pub fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::take(&mut self.buffer);
        let outcome = self.deliver(&buffer);
        self.buffer = buffer;
        // A test reads what was written.
        if !cfg!(test) {
            self.buffer.clear();
        }
        outcome
    }

    fn deliver(&mut self, bytes: &[u8]) -> Result<()> {
        if cfg!(test) || self.reader == Reader::Gone {
            return Ok(());
        }
        match self.state().deliver(bytes) {
            Err(e) if e.is_reader_gone() && self.reader == Reader::Ignored => {
                self.reader = Reader::Gone;
                Ok(())
            }
            other => other,
        }
    }

    pub(super) fn emit(&mut self, held: Held) -> Result<()> {
        self.filtering();
        if self.held.is_some() {
            self.streaming()?;
        }
        self.held = Some(held);
        if self.shape() == Shape::Stream { self.release() } else { Ok(()) }
    }

    /// Writes the held record as an open one.
    pub(super) fn release(&mut self) -> Result<()> {
        let Some(Held { mut open, .. }) = self.held.take() else { return Ok(()) };
        open.push(b'\n');
        self.put(&open)
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
