//! A prompt that is ready to be sent: its request, the model to ask, and the encoded body.

use std::cell::OnceCell;
use std::sync::Arc;

use cp_common::wire::{Message, Prompt, Receipt, Turn, Usage};
use cp_common::{Code, Error, Result, keys};
use serde_json::json;

use crate::backend::Ready;
use crate::backend::endpoint::Target;
use crate::wire_api::{Answer, Request};

/// A prompt that is ready to be sent.
pub(crate) struct Work {
    /// The prompt as it was read.
    pub prompt: Prompt,
    /// The model to ask.
    pub target: Target,
    /// Its backend.
    pub ready: Ready,
    /// The request to it, which `add_turns` changes.
    pub request: Request,
    /// The encoded request, and its hash. They are cleared by each change of the request.
    body: OnceCell<Arc<Vec<u8>>>,
    hash: OnceCell<String>,
    /// The batch and the row in it.
    pub batch: Option<String>,
    /// The number of the attempt, from 1; 0 for an answer from a recording.
    pub attempt: u32,
    /// The ledger entry of the last attempt.
    pub receipt: Option<Receipt>,
}

impl Work {
    /// Work for this target. Parameters of the prompt and of options override those of the endpoint.
    pub(crate) fn new(prompt: Prompt, mut request: Request, target: Target, ready: Ready) -> Self {
        request.model.clone_from(&target.model);
        let params = std::mem::replace(&mut request.params, target.endpoint.table.params.clone());
        request.params.extend(params);
        let (body, hash) = (OnceCell::new(), OnceCell::new());
        Self { prompt, target, ready, request, body, hash, batch: None, attempt: 1, receipt: None }
    }

    /// A row of a batch, whose request was sent with this hash, and whose outcome may be on the ledger already.
    pub(crate) fn of_batch(self, row: String, request_hash: &str, receipt: Option<Receipt>) -> Self {
        Self { batch: Some(row), hash: request_hash.to_owned().into(), receipt, ..self }
    }

    /// The encoded request, exactly as it is sent.
    pub(crate) fn body(&self) -> Result<Arc<Vec<u8>>> {
        if let Some(body) = self.body.get() {
            return Ok(Arc::clone(body));
        }
        let body = Arc::new(self.ready.backend.body(&self.request)?);
        Ok(Arc::clone(self.body.get_or_init(|| body)))
    }

    /// The body that recordings are keyed by: the request, not streamed.
    pub(super) fn recorded_body(&self) -> Result<Arc<Vec<u8>>> {
        if !self.request.stream {
            return self.body();
        }
        let plain = Request { stream: false, ..self.request.clone() };
        self.ready.backend.body(&plain).map(Arc::new)
    }

    /// The hash of the request, as cp-ledger(5) defines it: with the name of the wire API, and not streamed.
    pub(crate) fn request_hash(&self) -> Result<&str> {
        if self.hash.get().is_none() {
            let api = self.target.endpoint.api.name().as_bytes();
            let _ = self.hash.set(keys::hash(&[api, b"\n", &self.recorded_body()?].concat()));
        }
        Ok(self.hash.get().map_or("", String::as_str))
    }

    /// True if the model may call tools, of the prompt or of the parameters.
    pub(super) fn offers_tools(&self) -> bool {
        !self.prompt.tools.is_empty() || self.request.params.contains_key("tools")
    }

    /// Appends turns to the request.
    pub(super) fn add_turns(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.request.messages.extend(turns);
        self.request.id = self.request.id.take().map(|id| id + "#corrected");
        (self.body, self.hash) = (OnceCell::new(), OnceCell::new());
    }

    /// Makes the message for an answer, with the members that the prompt passes on.
    pub(super) fn message(&self, answer: Answer, usage: Usage) -> Message {
        let mut message = Message {
            id: answer.id.unwrap_or_default(),
            role: "assistant".to_owned(),
            tool_calls: answer.calls,
            content: answer.content,
            blocks: answer.blocks,
            input: self.prompt.input().to_vec(),
            model: answer.model.unwrap_or_else(|| self.request.model.clone()),
            backend: self.ready.backend.name().to_owned(),
            endpoint: self.target.endpoint.name.clone(),
            stop_reason: answer.stop,
            usage,
            session_id: self.prompt.session_id.clone(),
            agent: self.prompt.agent.clone(),
            row: self.prompt.row.clone(),
            receipt: self.receipt.clone(),
            request_hash: self.hash.get().cloned(),
            ..Message::default()
        };
        message.mark();
        message
    }

    /// Adds the row and the receipt of the prompt to its error. An error of the whole stream is not changed.
    pub(super) fn failure(&self, error: Error) -> Error {
        if error.is_fatal() && error.code() != Code::Interrupted {
            return error;
        }
        let error = self.receipt.iter().fold(error, |error, receipt| error.with("receipt", json!(receipt)));
        error.with_row(self.prompt.row.as_deref())
    }
}
