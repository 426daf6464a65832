//! A prompt with everything decided: the request, the models to ask, and the body that is sent, encoded once.

use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

use cp_common::wire::{Prompt, Receipt, Turn};
use cp_common::{Code, Error, Result};
use serde_json::{Map, Value, json};

use super::fetch::Fetched;
use crate::backend::Backend;
use crate::backend::endpoint::Target;
use crate::dialect::Request;

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
        work.aim();
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
    pub(crate) fn turn_to(&mut self, at: usize) {
        if at != self.at {
            self.at = at;
            self.aim();
        }
    }

    fn aim(&mut self) {
        let Target { endpoint, model } = &self.targets[self.at];
        self.request.model.clone_from(model);
        self.request.params = endpoint.params.clone();
        self.request.params.extend(self.params.clone());
        self.body = OnceCell::new();
    }

    /// Puts turns with the attachments that were fetched in the place of those that name them.
    pub(super) fn fill_turns(&mut self, turns: Vec<Turn>, fetched: Vec<Fetched>) {
        self.fetched = fetched;
        self.named = Some(std::mem::replace(&mut self.request.messages, turns));
        self.body = OnceCell::new();
    }

    /// Takes what was fetched out again.
    pub(super) fn empty_turns(&mut self) {
        if let Some(turns) = self.named.take() {
            (self.fetched, self.request.messages) = (Vec::new(), turns);
            self.body = OnceCell::new();
        }
    }

    /// Whether the request has the bytes of attachments that its prompt names.
    pub(super) fn is_filled(&self) -> bool {
        self.named.is_some()
    }

    /// The turns of the request, with attachments as the prompt names them.
    pub(super) fn named_turns(&self) -> &[Turn] {
        self.named.as_ref().unwrap_or(&self.request.messages)
    }

    /// Adds turns to the conversation.
    pub(super) fn add_turns(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.request.messages.extend(turns);
        self.body = OnceCell::new();
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
