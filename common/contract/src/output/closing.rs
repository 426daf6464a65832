//! The closing line of an output, and the matching exit status.

use serde_json::Value;

use super::{End, FLUSH_AT, Format, Held, Output, Reader, Shape, fails_closed};
use crate::wire::record::{self, Kind};
use crate::wire::{Code, Error, Result};

/// Returns the exit status of an outcome.
fn status_of(failure: Option<Code>) -> u8 {
    failure.map_or(0, |code| code.row().exit)
}

impl Output {
    /// Writes the closing line and returns the matching exit status.
    pub(crate) fn close(&mut self, result: Result<()>) -> u8 {
        self.rows = None;
        self.report_remaining_failures();
        let result = result.map_err(Error::without_secrets);
        match self.write_closing(result).and_then(|status| self.flush().map(|()| status)) {
            Ok(status) => status,
            Err(e) if e.is_reader_gone() && !fails_closed() => 0,
            Err(e) => {
                self.report_error(&e);
                e.code().row().exit
            }
        }
    }

    /// Predicts the exit status and the code of [`Output::close`], because they are recorded before the line is
    /// written.
    pub(crate) fn prediction(&self, result: &Result<()>) -> (u8, Option<Code>) {
        let failure = match (result, self.ended, &self.held) {
            (Err(error), ..) if error.is_reader_gone() => None,
            (Err(error), ..) => Some(error.code()),
            (Ok(()), Some(ended), _) => return ended,
            (Ok(()), None, Some(held)) if self.shape() != Shape::Stream => held.failure,
            (Ok(()), None, _) => self.failure(),
        };
        (status_of(failure), failure)
    }

    fn write_closing(&mut self, result: Result<()>) -> Result<u8> {
        match (result, self.ended) {
            (Err(error), _) if error.is_reader_gone() => Err(error),
            (Err(error), Some(_)) => {
                self.report_error(&error);
                Ok(error.code().row().exit)
            }
            (Err(error), None) => {
                if self.held.is_some() {
                    self.streaming()?;
                }
                self.fail(&error)?;
                Ok(error.code().row().exit)
            }
            (Ok(()), Some((status, _))) => Ok(status),
            (Ok(()), None) if self.shape() == Shape::Stream => self.close_stream(),
            (Ok(()), None) => self.close_alone(),
        }
    }

    fn close_alone(&mut self) -> Result<u8> {
        match self.held.take() {
            Some(Held { closed: Some(mut line), failure, .. }) => {
                line.push(b'\n');
                self.put(&line)?;
                Ok(status_of(failure))
            }
            Some(Held { mut open, failure, .. }) => {
                // The last brace follows the metadata.
                open.pop();
                let line = self.state().closed(open);
                self.write_closed(&line)?;
                Ok(status_of(failure))
            }
            None if self.format() != Format::Json || self.reader == Reader::Gone => Ok(status_of(self.failure())),
            None => self.close_stream(),
        }
    }

    /// Returns the code with which a stream fails because of its items, if it does.
    fn failure(&self) -> Option<Code> {
        match (&self.upstream_end, &self.first_failure) {
            (Some(end), _) => Some(end.code()),
            (None, Some(error)) if !self.tolerates_failures => {
                Some(if self.state().counts.succeeded == 0 { error.code() } else { Code::Partial })
            }
            (None, _) => None,
        }
    }

    fn close_stream(&mut self) -> Result<u8> {
        self.streaming()?;
        let failure = self.failure();
        if self.format() != Format::Json {
            return Ok(status_of(failure));
        }
        let failed = self.state().counts.failed;
        let error = match (self.upstream_end.take(), failure, &self.first_failure) {
            (None, Some(code), Some(error)) => Some(match failed {
                1 if code == Code::Partial => Error::new(code, "1 item failed"),
                _ if code == Code::Partial => Error::new(code, format!("{failed} items failed")),
                1 => Error::new(code, error.message()),
                _ => Error::new(code, format!("all {failed} items failed, the first: {}", error.message())),
            }),
            (end, ..) => end,
        };
        let state = self.state();
        let line = error.map_or_else(
            || {
                let mut line = record::head(true, Some(Kind::Summary.name()));
                record::member(&mut line, "data", Value::Object(state.totals()).to_string().as_bytes());
                state.closed(line)
            },
            |error| state.failed(&error),
        );
        drop(state);
        self.write_closed(&line)?;
        Ok(status_of(failure))
    }

    /// Writes the closing line of a failure.
    pub(super) fn fail(&mut self, error: &Error) -> Result<()> {
        if self.format() == Format::Json {
            let line = self.state().failed(error);
            self.write_closed(&line)?;
        }
        self.report_error(error);
        Ok(())
    }

    pub(super) fn write_closed(&mut self, line: &[u8]) -> Result<()> {
        if line.len() >= FLUSH_AT {
            // Lines before it do not close the stream, so they are written first.
            self.flush()?;
        }
        self.state().end = End::Closing;
        self.put(line)
    }
}
