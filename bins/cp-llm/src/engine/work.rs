//! A prompt that is ready to be sent: its request, the model to ask, and the encoded body.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use cp_common::wire::{Message, Prompt, Receipt, Turn, Usage};
use cp_common::{Code, Error, Result, keys};
use serde_json::json;

use crate::backend::Backend;
use crate::backend::endpoint::Target;
use crate::wire_api::{Answer, Request};

/// A prompt that is ready to be sent.
pub(crate) struct Work {
    /// The prompt as it was read.
    pub prompt: Prompt,
    /// The model to ask.
    pub target: Target,
    /// The request to it, which `add_turns` changes.
    pub request: Request,
    /// The encoded request. It is cleared by each change of the request.
    body: OnceCell<Arc<Vec<u8>>>,
    /// The ledger entry of the last attempt.
    receipt: RefCell<Option<Receipt>>,
}

/// One attempt to get an answer, as the ledger identifies it.
pub(super) struct Attempt<'a> {
    /// The name of the backend.
    pub backend: &'a str,
    /// The permission to use the network, if the backend uses it.
    pub network: Option<&'static str>,
    /// The number of the attempt, from 1; 0 for an answer from a recording.
    pub number: u32,
    /// The hash of the request body.
    pub request_hash: &'a str,
    /// The batch and the row in it.
    pub batch: Option<&'a str>,
}

impl Work {
    /// Work for this target. Parameters of the prompt and of options override those of the endpoint.
    pub(crate) fn new(prompt: Prompt, mut request: Request, target: Target) -> Self {
        request.model.clone_from(&target.model);
        let params = std::mem::replace(&mut request.params, target.endpoint.table.params.clone());
        request.params.extend(params);
        Self { prompt, target, request, body: OnceCell::new(), receipt: RefCell::default() }
    }

    /// The encoded request.
    pub(super) fn encoded(&self, backend: &dyn Backend) -> Result<Arc<Vec<u8>>> {
        if let Some(body) = self.body.get() {
            return Ok(Arc::clone(body));
        }
        let body = Arc::new(backend.body(&self.request)?);
        Ok(Arc::clone(self.body.get_or_init(|| body)))
    }

    /// Appends turns to the request.
    pub(super) fn add_turns(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.request.messages.extend(turns);
        self.body = OnceCell::new();
    }

    /// Hashes a body of this request, as cp-ledger(5) defines it: with the name of the wire API.
    pub(crate) fn request_hash(&self, body: &[u8]) -> String {
        keys::hash(&[self.target.endpoint.api.name().as_bytes(), b"\n", body].concat())
    }

    /// Makes the message for an answer, with the members that the prompt passes on.
    pub(super) fn message(&self, answer: Answer, usage: Usage, this: &Attempt<'_>) -> Message {
        let mut message = Message {
            id: answer.id.unwrap_or_default(),
            role: "assistant".to_owned(),
            tool_calls: answer.calls,
            content: answer.content,
            blocks: answer.blocks,
            input: self.prompt.input().to_vec(),
            model: answer.model.unwrap_or_else(|| self.request.model.clone()),
            backend: this.backend.to_owned(),
            endpoint: self.target.endpoint.name.clone(),
            stop_reason: answer.stop,
            usage,
            cached: false,
            session_id: self.prompt.session_id.clone(),
            agent: self.prompt.agent.clone(),
            row: self.prompt.row.clone(),
            parsed: None,
            extracted: None,
            receipt: self.receipt(),
            request_hash: Some(this.request_hash.to_owned()),
            untrusted: Vec::new(),
        };
        message.mark();
        message
    }

    /// Keeps the ledger entry of an attempt.
    pub(super) fn keep_receipt(&self, receipt: Receipt) {
        *self.receipt.borrow_mut() = Some(receipt);
    }

    /// The ledger entry of the last attempt.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        self.receipt.borrow().clone()
    }

    /// Adds the row and the receipt of the prompt to its error. An error of the whole stream is not changed.
    pub(super) fn failure(&self, error: Error) -> Error {
        if error.is_fatal() && error.code() != Code::Interrupted {
            return error;
        }
        let error = self.receipt().into_iter().fold(error, |error, receipt| error.with("receipt", json!(receipt)));
        error.with_row(self.prompt.row.as_deref())
    }
}
