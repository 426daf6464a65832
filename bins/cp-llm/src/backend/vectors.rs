//! The stub where it is asked for vectors: a vector counts the words of its text, and texts that share words are near each other.

use cp_common::keys;
use cp_common::wire::{Origin, Turn};
use cp_common::{Code, Error, Result};
use sha2::{Digest as _, Sha256};

use super::{Backend, Exchange};
use crate::dialect::embeddings::{Embeddings, Format};
use crate::dialect::openai::OpenAi;
use crate::dialect::{Dialect as _, Piece, Request, Show, finish, parsed};

/// The name of the backend, and of its only model.
const STUB: &str = "stub";
/// How many numbers a vector has where nothing says otherwise.
const DIMENSIONS: u64 = 64;

pub(super) struct StubVectors(Embeddings);

impl Default for StubVectors {
    fn default() -> Self {
        Self(Embeddings { format: Format::OpenAi, chat: Box::new(OpenAi { original: false }) })
    }
}

impl Backend for StubVectors {
    fn name(&self) -> &'static str {
        STUB
    }

    fn is_metered(&self) -> bool {
        false
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        self.0.body(request, &here())
    }

    fn exchange(&self, request: &Request, _: &[u8], _: &mut Show<'_>) -> Exchange {
        let bytes = answer(request);
        let encoded = bytes.as_ref().map_err(|e| Error::new(Code::Unknown, format!("encoding JSON: {e}")));
        let outcome = encoded.and_then(|bytes| {
            let mut decoder = self.0.decoder();
            decoder.whole(&Piece { value: &parsed(bytes)?.value, bytes, halves: false })?;
            finish(decoder.as_mut(), &here())
        });
        Exchange { hash: bytes.ok().map(|bytes| keys::hash(&bytes)), ..Exchange::of(outcome) }
    }
}

fn here() -> Origin {
    Origin { endpoint: STUB.to_owned(), dialect: STUB.to_owned() }
}

/// The answer, as a server writes it. A number has the digits of an `f32`: as a [`serde_json::Value`] it would have those of an `f64`.
fn answer(request: &Request) -> serde_json::Result<Vec<u8>> {
    let dimensions = request.params.get("dimensions").and_then(serde_json::Value::as_u64).unwrap_or(DIMENSIONS);
    let one = |turn: &Turn| serde_json::to_string(&vector(&turn.content.text(), dimensions));
    let vectors = request.messages.iter().map(one).collect::<serde_json::Result<Vec<_>>>()?.join("},{\"embedding\":");
    let model = serde_json::to_string(&request.model)?;
    let tokens: usize = request.messages.iter().map(|turn| turn.content.text().split_whitespace().count()).sum();
    let data = format!("[{{\"embedding\":{vectors}}}]");
    Ok(format!("{{\"model\":{model},\"data\":{data},\"usage\":{{\"prompt_tokens\":{tokens}}}}}").into_bytes())
}

/// The vector of a text, of length 1: each word adds 1 or -1 to the place that its hash says.
fn vector(text: &str, dimensions: u64) -> Vec<f32> {
    let text = text.to_lowercase();
    let mut sums = vec![0.0_f32; usize::try_from(dimensions).unwrap_or(usize::MAX)];
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        let hash = Sha256::digest(word);
        let place = hash[..8].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)) % dimensions;
        if let Some(sum) = usize::try_from(place).ok().and_then(|place| sums.get_mut(place)) {
            *sum += if hash[8] & 1 == 0 { 1.0 } else { -1.0 };
        }
    }
    let length = sums.iter().map(|sum| sum * sum).sum::<f32>().sqrt();
    if length == 0.0 {
        // No words, or words that cancel each other.
        sums.iter_mut().take(1).for_each(|sum| *sum = 1.0);
        return sums;
    }
    sums.into_iter().map(|sum| sum / length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_that_share_words_are_near_each_other() {
        let cosine = |a: &str, b: &str| vector(a, 64).iter().zip(vector(b, 64)).map(|(a, b)| a * b).sum::<f32>();
        assert!((cosine("The Harbour", "the harbour!") - 1.0).abs() < 1e-6);
        assert!(cosine("the harbour lights", "a harbour") > cosine("the harbour lights", "green tea"));
        assert_eq!(vector("?", 2), [1.0, 0.0]);
    }
}
