//! The closing line of an output, and the matching exit status.

use serde_json::{Map, Value};

use super::{ClosingLine, FLUSH_AT, Fails, Format, Held, Output, Reader, Shape, last};
use crate::wire::record::{self, Kind, Record};
use crate::wire::{Code, Error, Result};

impl Output {
    /// Writes the closing line and returns the matching exit status.
    pub(crate) fn close(&mut self, result: Result<()>) -> u8 {
        self.rows = None;
        self.report_remaining_failures();
        let result = result.map_err(Error::without_secrets);
        match self.write_closing(result).and_then(|status| self.flush().map(|()| status)) {
            Ok(status) => status,
            Err(e) if e.is_reader_gone() && !last::fails_closed() => 0,
            Err(e) => {
                self.report_error(&e);
                e.code().row().exit
            }
        }
    }

    /// Predicts the exit status and the code of [`Output::close`], because they are recorded before the line is
    /// written.
    pub(crate) fn prediction(&self, result: &Result<()>) -> (u8, Option<Code>) {
        if let Err(error) = result {
            return if error.is_reader_gone() { (0, None) } else { (error.code().row().exit, Some(error.code())) };
        }
        let code = match (self.ended, &self.held) {
            (Some(status), _) => return (status, self.refused),
            (None, Some(Held::Own { failure, .. })) if self.shape != Shape::Stream => *failure,
            (None, Some(Held::Upstream { failure, .. })) if self.shape != Shape::Stream => Some(*failure),
            (None, _) => self.failure(),
        };
        (code.map_or(0, |code| code.row().exit), code)
    }

    fn write_closing(&mut self, result: Result<()>) -> Result<u8> {
        if let Err(error) = result {
            if error.is_reader_gone() {
                return Err(error);
            }
            if self.ended.is_some() {
                self.report_error(&error);
                return Ok(error.code().row().exit);
            }
            if self.held.is_some() {
                self.set_shape(Shape::Stream);
                self.release()?;
            }
            self.fail_closed(&error)?;
            return Ok(error.code().row().exit);
        }
        if let Some(status) = self.ended {
            return Ok(status);
        }
        match self.shape {
            Shape::Stream => self.close_stream(),
            Shape::Answer | Shape::Filter => self.close_alone(),
        }
    }

    fn close_alone(&mut self) -> Result<u8> {
        match self.held.take() {
            Some(Held::Own { open, failure }) => {
                self.write_closed(open)?;
                Ok(failure.map_or(0, |code| code.row().exit))
            }
            Some(Held::Upstream { line, failure, .. }) => {
                self.put(&line)?;
                self.put(b"\n")?;
                Ok(failure.row().exit)
            }
            None if self.format != Format::Json || self.reader == Reader::Gone => Ok(self.failure_status()),
            None => self.close_stream(),
        }
    }

    /// Returns the code with which a stream fails because of its items, if it does.
    fn failure(&self) -> Option<Code> {
        match (&self.upstream_end, &self.first_failure) {
            (Some(end), _) => Some(end.code),
            (None, None) => None,
            (None, Some(_)) if self.fails == Fails::Never => None,
            (None, Some(error)) if self.counts.succeeded == 0 => Some(error.code()),
            (None, Some(_)) => Some(Code::Partial),
        }
    }

    /// Returns the exit status of text and raw output, which has no closing line.
    fn failure_status(&self) -> u8 {
        self.failure().map_or(0, |code| code.row().exit)
    }

    fn close_stream(&mut self) -> Result<u8> {
        self.release()?;
        let failure = self.failure();
        let status = failure.map_or(0, |code| code.row().exit);
        if self.format != Format::Json {
            return Ok(status);
        }
        if let Some(end) = self.upstream_end.take() {
            let mut error = end.error;
            let mut details = match error.remove("details") {
                Some(Value::Object(details)) => details,
                _ => Map::new(),
            };
            details.extend(self.counts.members());
            details.append(&mut self.extras);
            error.insert("details".to_owned(), Value::Object(details));
            self.fail_summary(&in_order(error, end.code))?;
        } else if let (Some(error), Some(code)) = (&self.first_failure, failure) {
            let message = match self.counts.failed {
                1 if code == Code::Partial => "1 item failed".to_owned(),
                failed if code == Code::Partial => format!("{failed} items failed"),
                1 => error.message().to_owned(),
                failed => format!("all {failed} items failed, the first: {}", error.message()),
            };
            self.fail_summary(&self.with_counts(&Error::new(code, message)))?;
        } else {
            let mut data = self.counts.members();
            data.append(&mut self.extras);
            let mut line = record::head(true, Some(Kind::Summary.name()));
            record::member(&mut line, "data", Value::Object(data).to_string().as_bytes());
            self.write_closed(line)?;
        }
        Ok(status)
    }

    fn with_counts(&self, error: &Error) -> Value {
        let mut value = error.to_value();
        if let Some(Value::Object(details)) = value.get_mut("details") {
            details.extend(self.counts.members());
            details.extend(self.extras.clone());
        }
        value
    }

    /// Writes the closing line of a failure, in the shape that the reader expects.
    pub(super) fn fail_closed(&mut self, error: &Error) -> Result<()> {
        if self.format == Format::Json {
            match self.shape {
                Shape::Stream => self.fail_summary(&self.with_counts(error))?,
                Shape::Answer | Shape::Filter => {
                    let kind = (self.shape == Shape::Filter).then_some(Kind::Error.name());
                    let mut line = record::head(false, kind);
                    record::member(&mut line, "error", error.to_value().to_string().as_bytes());
                    self.write_closed(line)?;
                }
            }
        }
        self.report_error(error);
        Ok(())
    }

    fn fail_summary(&mut self, error: &Value) -> Result<()> {
        let mut line = record::head(false, Some(Kind::Summary.name()));
        record::member(&mut line, "error", error.to_string().as_bytes());
        self.write_closed(line)
    }

    pub(super) fn write_closed(&mut self, mut line: Vec<u8>) -> Result<()> {
        let duration = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut meta = Map::new();
        meta.insert("duration_ms".to_owned(), duration.into());
        if !self.notices.is_empty() {
            meta.insert("notices".to_owned(), serde_json::to_value(&self.notices).unwrap_or_default());
        }
        record::member(&mut line, "meta", Value::Object(meta).to_string().as_bytes());
        line.extend_from_slice(b"}\n");
        if line.len() >= FLUSH_AT {
            // Lines before it do not close the stream, so they are written first.
            self.flush()?;
        }
        self.line = ClosingLine::Written;
        self.put(&line)
    }
}

pub(super) fn error_members(record: &Record<'_>) -> Map<String, Value> {
    record.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default()
}

pub(super) fn message_of(record: &Record<'_>) -> String {
    match error_members(record).remove("message") {
        Some(Value::String(message)) => message,
        _ => "failed upstream".to_owned(),
    }
}

/// Returns the four members of an error in their order, with defaults.
fn in_order(mut error: Map<String, Value>, code: Code) -> Value {
    let row = code.row();
    let message = error.remove("message").unwrap_or_else(|| "failed upstream".into());
    let details = error.remove("details").unwrap_or_else(|| Value::Object(Map::new()));
    let members =
        [("code", row.name.into()), ("message", message), ("details", details), ("retryable", row.retryable.into())];
    Value::Object(members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
