//! Answers and records, in the format of the output.

use serde::Serialize;
use serde_json::value::RawValue;

use super::{Format, Held, Output, printable};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Reply, Result};

impl Output {
    /// Writes the answer of a verb that is not a filter.
    pub fn answer<T: Reply + ?Sized>(&mut self, data: &T) -> Result<()> {
        match (self.format(), &self.fields) {
            (Format::Json, fields) => {
                let whole = encode(data)?;
                let chosen = fields.as_ref().map(|fields| fields.project(&whole));
                let mut line = record::head(true, None);
                record::member(&mut line, "data", chosen.as_deref().unwrap_or(&whole));
                let line = self.state().closed(line);
                self.write_closed(&line)?;
            }
            (Format::Text | Format::Raw, Some(fields)) => {
                let lines = fields.lines(&encode(data)?);
                self.put_chosen(&lines)?;
            }
            (Format::Text, None) => self.put_text(&data.text())?,
            (Format::Raw, None) => self.put(&data.raw())?,
        }
        self.ended = Some((0, None));
        Ok(())
    }

    /// Writes the answer of a verb that completed and found a problem: the error on standard output, and its exit
    /// status.
    pub fn refuse<T: Reply + ?Sized>(&mut self, data: &T, error: Error) -> Result<()> {
        let error = &error.without_secrets();
        match self.format() {
            Format::Json => self.fail(error)?,
            Format::Text => {
                self.put_text(&data.text())?;
                self.report_error(error);
            }
            Format::Raw => {
                self.put(&data.raw())?;
                self.report_error(error);
            }
        }
        self.ended = Some((error.code().row().exit, Some(error.code())));
        Ok(())
    }

    /// Writes a record: open, or closed if it remains the only one.
    pub fn record<T: Reply + ?Sized>(&mut self, kind: Kind, data: &T) -> Result<()> {
        match (self.format(), &self.fields) {
            (Format::Json, None) => {
                // Long data are not copied.
                let mut open = record::head(true, Some(kind.name()));
                record::member(&mut open, "data", b"");
                serde_json::to_writer(&mut open, data).map_err(|e| unencoded(&e))?;
                self.emit_open(open)
            }
            (_, Some(_)) => self.record_encoded(kind, &encode(data)?),
            (Format::Text, None) => self.put_text(&data.text()),
            (Format::Raw, None) => self.put(&data.raw()),
        }
    }

    /// Writes a record with raw JSON data.
    pub fn record_raw(&mut self, kind: Kind, data: &RawValue) -> Result<()> {
        match (self.format(), &self.fields) {
            (Format::Json, _) | (_, Some(_)) => self.record_encoded(kind, data.get().as_bytes()),
            (Format::Text, None) => self.put_text(data.get()),
            (Format::Raw, None) => {
                self.put(data.get().as_bytes())?;
                self.put(b"\n")
            }
        }
    }

    /// Writes a record of encoded data, with only the selected members.
    fn record_encoded(&mut self, kind: Kind, data: &[u8]) -> Result<()> {
        if let (Format::Text | Format::Raw, Some(fields)) = (self.format(), &self.fields) {
            let lines = fields.lines(data);
            return self.put_chosen(&lines);
        }
        let chosen = self.fields.as_ref().map(|fields| fields.project(data));
        let mut open = record::head(true, Some(kind.name()));
        record::member(&mut open, "data", chosen.as_deref().unwrap_or(data));
        self.emit_open(open)
    }

    /// Writes selected members as bare objects, one a line, in the text and raw formats.
    fn put_chosen(&mut self, lines: &[u8]) -> Result<()> {
        match self.format() {
            Format::Text => self.put(printable(&String::from_utf8_lossy(lines)).as_bytes()),
            Format::Json | Format::Raw => self.put(lines),
        }
    }

    /// Writes a record without its last brace, after adding the item's index to the object at the end of the line.
    fn emit_open(&mut self, mut open: Vec<u8>) -> Result<()> {
        if let (Some(index), Some(b'}')) = (self.place.index, open.last()) {
            open.pop();
            let separator = if open.ends_with(b"{") { "" } else { "," };
            open.extend_from_slice(format!("{separator}\"index\":{index}}}").as_bytes());
        }
        open.push(b'}');
        self.emit(Held { open, closed: None, failure: None })
    }
}

fn encode<T: Serialize + ?Sized>(data: &T) -> Result<Vec<u8>> {
    serde_json::to_vec(data).map_err(|e| unencoded(&e))
}

fn unencoded(e: &serde_json::Error) -> Error {
    Error::new(Code::Unknown, format!("encoding a record: {e}"))
}
