//! Answers, records and the outcome of items, in the format of the output, and their delivery to the reader.

use serde_json::Value;
use serde_json::value::RawValue;

use super::closing::{Counts, Shape};
use super::{FAILURES_SHOWN, FLUSH_AT, Format, Last, Output, printable};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Code, Error, Reply, Result, raw};

impl Reply for RawValue {
    fn text(&self) -> String {
        self.get().to_owned()
    }
}

impl Output {
    /// Writes the answer of a verb that is not a filter.
    pub fn answer<T: Reply + ?Sized>(&mut self, data: &T) -> Result<()> {
        let open = self.print(None, data)?;
        self.last = Some(Last::answer(open, None));
        Ok(())
    }

    /// Writes the answer of a verb that completed and found a problem: the error on standard output, and its exit
    /// status.
    pub fn refuse<T: Reply + ?Sized>(&mut self, data: &T, error: Error) -> Result<()> {
        let error = error.without_secrets();
        let open = match self.format() {
            Format::Json => self.state().failed(&error),
            Format::Text | Format::Raw => self.print(None, data)?,
        };
        self.report_error(&error);
        self.last = Some(Last::answer(open, Some(error.code())));
        Ok(())
    }

    /// Writes a record: open, or closed if it remains the only one.
    pub fn record<T: Reply + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        let mut open = self.print(Some(kind), data)?;
        if open.is_empty() {
            return Ok(());
        }
        if let (Some(index), Some(b'}')) = (self.place.index, open.last()) {
            open.pop();
            let separator = if open.ends_with(b"{") { "" } else { "," };
            open.extend_from_slice(format!("{separator}\"index\":{index}}}").as_bytes());
        }
        self.emit(open, None)
    }

    /// Writes data in the formats without an envelope. Otherwise returns the line without its last brace.
    fn print<T: Reply + ?Sized>(&mut self, kind: Option<Kind>, data: &T) -> Result<Vec<u8>> {
        let kind = kind.map(Kind::name);
        let Some(fields) = &self.fields else {
            match self.format() {
                Format::Json => return record::with_data(kind, data),
                Format::Raw => self.raw(&data.raw())?,
                Format::Text => {
                    let text = data.text();
                    if !text.is_empty() {
                        self.raw(printable(&text).as_bytes())?;
                        self.raw(b"\n")?;
                    }
                }
            }
            return Ok(Vec::new());
        };
        let data = raw(data)?;
        let data = data.get().as_bytes();
        if self.format() == Format::Json {
            let mut line = record::head(true, kind);
            record::member(&mut line, "data", &fields.project(data));
            return Ok(line);
        }
        // Without an envelope the selected members are bare objects, one a line.
        let lines = fields.lines(data);
        self.piece(&String::from_utf8_lossy(&lines)).map(|()| Vec::new())
    }

    /// Leaves the current item to [`crate::stream::filter::settle`], which counts it later.
    pub fn defer_item(&mut self) {
        self.is_counted = true;
    }

    /// Counts an item that succeeded.
    pub fn item_succeeded(&mut self) {
        self.items_succeeded(1);
    }

    /// Counts items that succeeded.
    pub fn items_succeeded(&mut self, count: u64) {
        self.state().counts.succeeded += count;
        self.report_rows();
    }

    /// Counts an item that was skipped.
    pub fn item_skipped(&mut self) {
        self.is_counted = true;
        self.state().counts.skipped += 1;
        self.report_rows();
    }

    /// Reports the number of rows, unless the rows themselves are shown on a terminal.
    fn report_rows(&mut self) {
        if self.quiet {
            return;
        }
        let Counts { succeeded, failed, skipped } = self.state().counts;
        self.rows.report(|| {
            let failures = if failed > 0 { format!(", {failed} failed") } else { String::new() };
            format!("{} done{failures}", succeeded + failed + skipped)
        });
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
            self.emit(open, Some(error.code()))?;
        } else if self.is_line_of_stream() && !self.writes_failed_lines {
            self.raw(b"\n")?;
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
        self.state().shape == Shape::Stream && self.place.line.is_some()
    }

    /// Passes on a failure from upstream. Its closing line decides the code of ours.
    pub(crate) fn pass_failure(&mut self, record: &Record<'_>) -> Result<()> {
        if record.closed {
            self.upstream_end.get_or_insert_with(|| record.failure());
        } else {
            self.state().counts.failed += 1;
            self.first_failure.get_or_insert_with(|| record.failure());
        }
        match (self.format(), record.closed) {
            _ if record.kind == Some(Kind::Summary) => Ok(()),
            (Format::Json, false) => {
                self.streaming()?;
                self.pass(record.line)
            }
            (Format::Json, true) => {
                let mut open = record.opened();
                open.pop();
                self.emit(open, Some(record.code()))
            }
            (Format::Text | Format::Raw, closed) => {
                if closed {
                    Ok(())
                } else {
                    self.raw(b"\n")
                }
            }
        }
    }

    /// Begins a stream of several records that the reader must receive immediately.
    pub fn streaming(&mut self) -> Result<()> {
        self.state().shape = Shape::Stream;
        self.release()
    }

    /// Marks the program as a filter, which may answer with a single closed record.
    pub fn filtering(&mut self) {
        let mut state = self.state();
        state.shape = state.shape.max(Shape::Filter);
    }

    /// Writes a line without its last brace, or holds it back if it may be the only one.
    fn emit(&mut self, open: Vec<u8>, code: Option<Code>) -> Result<()> {
        self.filtering();
        if self.last.is_some() {
            self.streaming()?;
        }
        self.last = Some(Last::record(open, code));
        if self.state().shape == Shape::Stream { self.release() } else { Ok(()) }
    }

    /// Writes the record that was held back as an open one.
    fn release(&mut self) -> Result<()> {
        let Some(Last { mut open, .. }) = self.last.take_if(|last| !last.is_answer) else { return Ok(()) };
        open.extend_from_slice(b"}\n");
        self.raw(&open)
    }

    /// Passes a line on byte for byte.
    pub fn pass(&mut self, line: &[u8]) -> Result<()> {
        self.release()?;
        self.raw(line)?;
        self.raw(b"\n")
    }

    /// Writes a piece of streamed text; formats other than raw escape control characters.
    pub fn piece(&mut self, text: &str) -> Result<()> {
        let is_raw = self.format() == Format::Raw;
        self.raw(if is_raw { text.into() } else { printable(text) }.as_bytes())
    }

    /// Writes bytes without changes.
    pub fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        if bytes.len() >= FLUSH_AT {
            // A long line is not copied to the buffer.
            self.flush()?;
            return self.deliver(bytes, false);
        }
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() >= FLUSH_AT { self.flush() } else { Ok(()) }
    }

    /// Writes everything that is finished to the reader.
    pub fn flush(&mut self) -> Result<()> {
        // A test reads the buffer.
        if cfg!(test) {
            return Ok(());
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        let outcome = self.deliver(&buffer, false);
        buffer.clear();
        self.buffer = buffer;
        outcome
    }

    pub(super) fn deliver(&mut self, bytes: &[u8], is_last: bool) -> Result<()> {
        if cfg!(test) {
            self.buffer.extend_from_slice(bytes);
            return Ok(());
        }
        let outcome = self.state().deliver(bytes, is_last);
        outcome.or_else(|error| if error.is_reader_gone() && self.outlives_reader { Ok(()) } else { Err(error) })
    }
}
