//! The bodies of responses, which are a stream of events or one document, and the text that is kept if one breaks off.

use cp_common::wire::Origin;
use cp_common::{Code, Error, Result};
use cp_http::client::Reply;
use cp_http::sse;
use cp_redact::Redactor;
use sha2::{Digest as _, Sha256};

use crate::wire_api::{Answer, Decoder, OnText, Partial, Payload, bad_answer, cut, decode, decode_event, finish};

/// The body of a response, as far as it has arrived.
pub(super) struct Body {
    decoder: Box<dyn Decoder>,
    /// The answer so far.
    pub partial: Partial,
    pub hash: Sha256,
    /// True if the body is one document: it has no events, whatever its content type and the request say.
    is_whole: bool,
    /// The document, or what precedes the events.
    bytes: Vec<u8>,
}

impl Body {
    /// A body with its bytes so far.
    pub(super) fn of(decoder: Box<dyn Decoder>, bytes: &[u8]) -> Self {
        let (partial, hash) = (Partial::default(), Sha256::new());
        Self { decoder, partial, hash, is_whole: true, bytes: bytes.to_vec() }
    }

    /// Reads up to the last event or the end of the body.
    pub(super) fn read(&mut self, reply: &mut Reply<'_>, show: &mut OnText<'_>) -> Result<()> {
        let (decoder, partial) = (self.decoder.as_mut(), &mut self.partial);
        let (mut parser, mut buffer) = (sse::Parser::new(), vec![0; 16 << 10]);
        let mut ended = false;
        while !ended {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                break;
            }
            self.hash.update(bytes);
            if self.is_whole {
                self.bytes.extend_from_slice(bytes);
            }
            parser.push(bytes, |event| {
                self.is_whole = false;
                if !ended {
                    ended = decode_event(decoder, partial, &event, show)?;
                }
                Ok(())
            })?;
        }
        let last = if ended { None } else { parser.finish() };
        self.is_whole &= last.is_none();
        let Some(event) = last else { return if self.is_whole { self.decode() } else { Ok(()) } };
        decode_event(decoder, partial, &event, show).map(drop).map_err(|error| {
            // An incomplete last event means that the stream was cut off.
            let is_half = error.details().get("reason").is_some_and(|reason| reason == "invalid_json");
            if is_half { cut() } else { error }
        })
    }

    /// Makes the answer, or the error, from what was read. Passes on the text of a document.
    pub(super) fn answer(mut self, read: Result<()>, here: &Origin, show: &mut OnText<'_>) -> Result<Answer> {
        let read = read.map_err(|error| {
            let is_cut = error.code() == Code::Network && !error.details().contains_key("reason");
            if is_cut { error.with("reason", "cut") } else { error }
        });
        let partial = std::mem::take(&mut self.partial);
        let is_foreign = self.is_whole && partial.id.is_none() && partial.usage.is_none();
        let text = if self.is_whole && partial.text.is_empty() {
            String::from_utf8_lossy(&self.bytes).into_owned()
        } else {
            partial.text.clone()
        };
        let foreign =
            |error| if is_foreign { bad_answer("invalid_json", "the answer is not one of this API") } else { error };
        let answer = read.and_then(|()| finish(self.decoder.as_mut(), partial, here).map_err(foreign));
        let answer = answer.map_err(|error| with_partial(error, &text))?;
        if self.is_whole {
            answer.show(show)?;
        }
        Ok(answer)
    }

    /// Decodes a document, which is complete even without a stop reason.
    pub(super) fn decode(&mut self) -> Result<()> {
        let read = decode(self.decoder.as_mut(), &mut self.partial, &Payload::parse(&self.bytes, None)?, false);
        self.partial.ended = true;
        read.map(drop)
    }
}

/// Adds the text that arrived before the failure.
fn with_partial(error: Error, text: &str) -> Error {
    const MOST: usize = 64 << 10;
    if text.is_empty() {
        return error;
    }
    if text.len() <= MOST {
        return error.with("partial", text);
    }
    error.with("partial", Redactor::from_environment().shortened(text, MOST))
}
