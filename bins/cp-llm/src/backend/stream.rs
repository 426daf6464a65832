//! Streamed responses, and the text that is kept if one breaks off.

use std::time::{Duration, Instant};

use cp_common::wire::Origin;
use cp_common::{Code, Error, Result};
use cp_http::client::Reply;
use cp_http::sse;
use cp_redact::Redactor;
use sha2::{Digest as _, Sha256};

use crate::wire_api::{Answer, Decoder, OnText, Partial, UpstreamError, bad_answer, cut, decode_event, finish, parsed};

/// A response that arrives as events.
pub(super) struct Stream {
    decoder: Box<dyn Decoder>,
    /// The answer so far.
    pub partial: Partial,
    parser: sse::Parser,
    pub hash: Sha256,
    /// The first bytes, for the error if the response is not a stream.
    head: Vec<u8>,
    /// The time until the first bytes.
    pub first_byte: Option<Duration>,
}

impl Stream {
    /// A stream before its first bytes.
    pub(super) fn new(decoder: Box<dyn Decoder>) -> Self {
        let (partial, parser, hash) = (Partial::default(), sse::Parser::new(), Sha256::new());
        Self { decoder, partial, parser, hash, head: Vec::new(), first_byte: None }
    }

    /// Reads up to the last event or the end of the body.
    pub(super) fn read(&mut self, reply: &mut Reply<'_>, start: Instant, show: &mut OnText<'_>) -> Result<()> {
        const HEAD: usize = 64 << 10;
        let mut buffer = vec![0; 16 << 10];
        let (decoder, partial) = (self.decoder.as_mut(), &mut self.partial);
        let mut ended = false;
        while !ended {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                break;
            }
            self.first_byte.get_or_insert_with(|| start.elapsed());
            self.hash.update(bytes);
            if self.head.len() < HEAD {
                self.head.extend_from_slice(bytes);
            }
            self.parser.push(bytes, |event| {
                if !ended {
                    ended = decode_event(decoder, partial, &event, show)?;
                }
                Ok(())
            })?;
        }
        if ended {
            return Ok(());
        }
        match std::mem::take(&mut self.parser).finish() {
            // An incomplete last event means that the stream was cut off.
            Some(event) => match decode_event(decoder, partial, &event, show) {
                Err(error) if error.details().get("reason").is_some_and(|reason| reason == "invalid_json") => {
                    Err(cut())
                }
                other => other.map(drop),
            },
            None => Ok(()),
        }
    }

    /// Makes the answer, or the error, from the events.
    pub(super) fn answer(mut self, read: Result<()>, status: u16, here: &Origin) -> Result<Answer> {
        let partial = std::mem::take(&mut self.partial);
        let text = partial.text.clone();
        read.map_err(|error| cut_short(error, &text))?;
        let nothing = partial.id.is_none() && !partial.ended && partial.stop.is_none() && text.is_empty();
        if nothing && !self.head.is_empty() {
            return Err(self.not_a_stream(status));
        }
        finish(self.decoder.as_mut(), partial, here).map_err(|error| with_partial(error, &text))
    }

    /// The error for a response that is not a stream.
    fn not_a_stream(&self, status: u16) -> Error {
        match parsed(&self.head) {
            Ok(json) => UpstreamError::find(&json, false).map_or_else(
                || bad_answer("no_stream", "the answer is not a stream of events"),
                |error| error.into_error(status),
            ),
            Err(error) => with_partial(error, &String::from_utf8_lossy(&self.head)),
        }
    }
}

/// Marks a connection that broke while the body arrived as an answer that was cut short.
pub(super) fn cut_short(error: Error, text: &str) -> Error {
    let error = if error.code() == Code::Network && !error.details().contains_key("reason") {
        error.with("reason", "cut")
    } else {
        error
    };
    with_partial(error, text)
}

/// Adds the text that arrived before the failure.
pub(super) fn with_partial(error: Error, text: &str) -> Error {
    const MOST: usize = 64 << 10;
    if text.is_empty() || error.details().contains_key("partial") {
        return error;
    }
    if text.len() <= MOST {
        return error.with("partial", text);
    }
    error.with("partial", Redactor::from_environment().shortened(text, MOST))
}
