//! Embeddings. A request has a user turn for each text, and the answer has a block for each vector.

use cp_common::wire::{Origin, Usage};
use cp_common::{Result, json};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::json::Body;
use super::{ApiFacts, Decoder, OnText, Part, PartContent, Partial, Payload, Request, WireApi, bad_answer, count_of};

/// The formats of embedding requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// `/embeddings` of most servers.
    OpenAi,
    /// `/embed` of Ollama's own API.
    Ollama,
    /// `batchEmbedContents`.
    Gemini,
}

/// The wire API for embeddings.
pub(crate) struct Embeddings {
    pub format: Format,
    /// The chat API of the same server, for the header of the key.
    pub chat: Box<dyn WireApi>,
}

impl WireApi for Embeddings {
    fn facts(&self) -> &'static ApiFacts {
        self.chat.facts()
    }

    fn path(&self, request: &Request) -> String {
        match self.format {
            Format::OpenAi => "/embeddings".to_owned(),
            Format::Ollama => "/embed".to_owned(),
            Format::Gemini => format!("/{}:batchEmbedContents", gemini_name(request)),
        }
    }

    fn body(&self, request: &Request, _: &Origin) -> Result<Vec<u8>> {
        let texts = request.messages.iter().map(|turn| turn.content.text());
        let dimensions = request.params.get("dimensions");
        let mut body = Body::default();
        if self.format == Format::Gemini {
            let model = gemini_name(request);
            let one = |text: String| {
                let mut one = serde_json::json!({"model": model, "content": {"parts": [{"text": text}]}});
                if let Some(dimensions) = dimensions {
                    one["outputDimensionality"] = dimensions.clone();
                }
                one
            };
            body.set("requests", &texts.map(one).collect::<Vec<_>>())?;
            return Ok(body.finish());
        }
        body.set("model", &request.model)?;
        body.set("input", &texts.collect::<Vec<_>>())?;
        body.set_some("dimensions", dimensions)?;
        Ok(body.finish())
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(EmbeddingDecoder { format: self.format, partial: Partial::default(), vectors: Vec::new() })
    }
}

/// The name of a model with its prefix.
fn gemini_name(request: &Request) -> String {
    format!("models/{}", request.model.trim_start_matches("models/"))
}

struct EmbeddingDecoder {
    format: Format,
    partial: Partial,
    vectors: Vec<Box<RawValue>>,
}

/// The response in any of the formats.
#[derive(Deserialize)]
struct Response<'a> {
    /// `OpenAI`.
    #[serde(default, borrow)]
    data: Vec<Indexed<'a>>,
    /// Ollama: vectors. Gemini: objects with a vector.
    #[serde(default, borrow)]
    embeddings: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Indexed<'a> {
    #[serde(default)]
    index: usize,
    #[serde(borrow)]
    embedding: &'a RawValue,
}

#[derive(Deserialize)]
struct Wrapped<'a> {
    #[serde(borrow)]
    values: &'a RawValue,
}

impl Decoder for EmbeddingDecoder {
    fn whole(&mut self, body: &Payload<'_>) -> Result<()> {
        let foreign = |e: serde_json::Error| bad_answer("no_vectors", &format!("the answer has no vectors: {e}"));
        let mut response: Response<'_> = serde_json::from_slice(body.bytes).map_err(foreign)?;
        // Vectors may arrive in any order. The sort is stable, for servers without an index.
        response.data.sort_by_key(|item| item.index);
        let (found, tokens) = match self.format {
            Format::OpenAi => (response.data.iter().map(|item| item.embedding).collect(), "/usage/prompt_tokens"),
            Format::Ollama => (response.embeddings, "/prompt_eval_count"),
            Format::Gemini => {
                let wrapped = response.embeddings.into_iter().map(|one| serde_json::from_str::<Wrapped<'_>>(one.get()));
                let values = wrapped.map(|one| one.map(|one| one.values));
                (values.collect::<Result<Vec<_>, _>>().map_err(foreign)?, "/usageMetadata/promptTokenCount")
            }
        };
        self.vectors = found.into_iter().map(checked).collect::<Result<_>>()?;
        self.partial.identify(body.value, "id", "model");
        let used = body.value.pointer(tokens).is_some();
        self.partial.usage = used.then(|| Usage { input_tokens: count_of(body.value, tokens), ..Usage::default() });
        // The ledger distinguishes these answers by the stop reason.
        self.partial.stop = Some("embedding".to_owned());
        self.partial.ended = true;
        Ok(())
    }

    fn event(&mut self, event: &Payload<'_>, _: &mut OnText<'_>) -> Result<bool> {
        self.whole(event).map(|()| true)
    }

    fn partial(&mut self) -> &mut Partial {
        &mut self.partial
    }

    fn parts(&mut self, _: bool) -> Result<Vec<Part>> {
        let vectors = std::mem::take(&mut self.vectors).into_iter();
        Ok(vectors.map(|raw| Part { content: PartContent::Other("embedding".to_owned()), raw: Some(raw) }).collect())
    }
}

/// Validates a vector and puts it on one line, with numbers as the server printed them.
fn checked(vector: &RawValue) -> Result<Box<RawValue>> {
    let foreign = || bad_answer("no_vectors", "the answer has a vector that is not a list of numbers");
    serde_json::from_str::<Vec<f32>>(vector.get()).ok().filter(|list| !list.is_empty()).ok_or_else(foreign)?;
    let mut line = Vec::with_capacity(vector.get().len());
    json::normalize(vector.get().as_bytes(), &mut line).map_err(|_| foreign())?;
    serde_json::from_slice(&line).map_err(|_| foreign())
}
