//! A prompt with everything decided: the request, the models to ask, and the body that is sent, encoded once.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use cp_common::wire::{Message, Prompt, Receipt, ToolCall, Turn, Usage};
use cp_common::{Code, Error, Result, keys};
use serde_json::{Map, Value, json};

use super::fetch::Fetched;
use crate::backend::Backend;
use crate::backend::endpoint::Target;
use crate::wire_api::{Answer, Call, Request};

/// A prompt with everything decided.
pub(crate) struct Work {
    /// The prompt as it came.
    pub prompt: Prompt,
    /// The attachments that were fetched for it, and the turns that name them, while the request has their bytes.
    pub(super) fetched: Vec<Fetched>,
    named: Option<Vec<Turn>>,
    /// The models to ask, in order; there is a first one.
    targets: Vec<Target>,
    /// Which of them the request is for.
    at: usize,
    /// The params of the prompt and the options, which win over those of an endpoint.
    params: Map<String, Value>,
    /// The request to one of them.
    request: Request,
    /// The body of the request, once it was needed. Whatever changes the request forgets it.
    body: OnceCell<Arc<Vec<u8>>>,
    /// Where the outcome of the last try is recorded.
    receipt: RefCell<Option<Receipt>>,
}

/// One attempt to get an answer, as the ledger identifies it.
pub(super) struct Attempt<'a> {
    /// The backend that is asked.
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
    /// The work that begins with this target. The others are asked one after the other when it gives up.
    pub(crate) fn new(prompt: Prompt, request: Request, first: Target, others: Vec<Target>) -> Self {
        let params = request.params.clone();
        let targets = [vec![first], others].concat();
        let mut work = Self {
            prompt,
            fetched: Vec::new(),
            named: None,
            targets,
            at: 0,
            params,
            request,
            body: OnceCell::new(),
            receipt: RefCell::default(),
        };
        work.prepare_request();
        work
    }

    /// The request as it stands.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The models to ask, in order.
    pub(crate) fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The one that the request is for.
    pub(crate) fn target(&self) -> &Target {
        &self.targets[self.at]
    }

    /// The body of the request.
    pub(super) fn encoded(&self, backend: &dyn Backend) -> Result<Arc<Vec<u8>>> {
        if let Some(body) = self.body.get() {
            return Ok(Arc::clone(body));
        }
        let body = Arc::new(backend.body(&self.request)?);
        Ok(Arc::clone(self.body.get_or_init(|| body)))
    }

    /// Goes on to one of the models.
    pub(crate) fn select_target(&mut self, at: usize) {
        if at != self.at {
            self.at = at;
            self.prepare_request();
        }
    }

    fn prepare_request(&mut self) {
        let Target { endpoint, model } = &self.targets[self.at];
        self.request.model.clone_from(model);
        self.request.params = endpoint.params.clone();
        self.request.params.extend(self.params.clone());
        self.body = OnceCell::new();
    }

    /// Puts turns with the attachments that were fetched in the place of those that name them.
    pub(super) fn inline_attachments(&mut self, turns: Vec<Turn>, fetched: Vec<Fetched>) {
        self.fetched = fetched;
        self.named = Some(std::mem::replace(&mut self.request.messages, turns));
        self.body = OnceCell::new();
    }

    /// Takes what was fetched out again.
    pub(super) fn drop_inlined(&mut self) {
        if let Some(turns) = self.named.take() {
            (self.fetched, self.request.messages) = (Vec::new(), turns);
            self.body = OnceCell::new();
        }
    }

    /// Whether the request has the bytes of attachments that its prompt names.
    pub(super) fn has_inlined(&self) -> bool {
        self.named.is_some()
    }

    /// The turns of the request, with attachments as the prompt names them.
    pub(super) fn turns_with_urls(&self) -> &[Turn] {
        self.named.as_ref().unwrap_or(&self.request.messages)
    }

    /// Adds turns to the conversation.
    pub(super) fn add_turns(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.request.messages.extend(turns);
        self.body = OnceCell::new();
    }

    /// Hashes a body of this request, as cp-ledger(5) defines it: with the name of the wire API.
    pub(crate) fn request_hash(&self, body: &[u8]) -> String {
        keys::hash(&[self.target().endpoint.api.name().as_bytes(), b"\n", body].concat())
    }

    /// Makes the message for an answer, with the members that the prompt passes on.
    pub(super) fn message(&self, answer: Answer, usage: Usage, this: &Attempt<'_>) -> Message {
        let calls = answer.calls.into_iter().map(|Call { id, name, input }| ToolCall {
            timeout: None,
            id,
            name,
            input,
            untrusted: Vec::new(),
        });
        let mut message = Message {
            id: answer.id.unwrap_or_default(),
            role: "assistant".to_owned(),
            content: answer.content,
            tool_calls: calls.collect(),
            blocks: answer.blocks,
            input: self.prompt.input().to_vec(),
            model: answer.model.unwrap_or_else(|| self.request.model.clone()),
            backend: this.backend.to_owned(),
            endpoint: self.target().endpoint.name.clone(),
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

    /// Notes where the outcome of a try was recorded.
    pub(super) fn keep_receipt(&self, receipt: Receipt) {
        *self.receipt.borrow_mut() = Some(receipt);
    }

    /// Where the outcome of the last try is recorded.
    pub(super) fn receipt(&self) -> Option<Receipt> {
        self.receipt.borrow().clone()
    }

    /// A failure of this prompt, with its row and its receipt. One that is not the prompt's has neither.
    pub(super) fn failure(&self, error: Error) -> Error {
        if error.is_fatal() && error.code() != Code::Interrupted {
            return error;
        }
        let error = self.receipt().into_iter().fold(error, |error, receipt| error.with("receipt", json!(receipt)));
        error.with_row(self.prompt.row.as_deref())
    }
}

/// The usage of two requests together.
pub(super) fn total(a: &Usage, b: &Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens + b.input_tokens,
        output_tokens: a.output_tokens + b.output_tokens,
        cache_read_tokens: a.cache_read_tokens + b.cache_read_tokens,
        cache_write_tokens: a.cache_write_tokens + b.cache_write_tokens,
        cost_usd: a.cost_usd.zip(b.cost_usd).map(|(a, b)| a + b),
    }
}
