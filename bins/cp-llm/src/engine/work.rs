//! A prompt with everything decided: the request, the models to ask, and the body that is sent, encoded once.

use std::cell::OnceCell;
use std::sync::Arc;

use cp_common::Result;
use cp_common::wire::{Prompt, Turn};

use super::fetch::Fetched;
use crate::backend::Backend;
use crate::dialect::{Conversation, Request};

/// A prompt with everything decided.
pub(crate) struct Work {
    /// The prompt as it came.
    pub prompt: Prompt,
    /// The attachments that were fetched for it.
    pub(super) fetched: Vec<Fetched>,
    /// The models to ask, in order.
    models: Vec<String>,
    /// The request to one of them.
    request: Request,
    /// The body of the request, once it was needed. Whatever changes the request forgets it.
    body: OnceCell<Arc<Vec<u8>>>,
}

impl Work {
    /// The work that begins with this request. The fallbacks are asked one after the other when its model gives up.
    pub(crate) fn new(prompt: Prompt, request: Request, fallbacks: Vec<String>) -> Self {
        let models = [vec![request.model.clone()], fallbacks].concat();
        Self { prompt, fetched: Vec::new(), models, request, body: OnceCell::new() }
    }

    /// The request as it stands.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// The models to ask, in order.
    pub(crate) fn models(&self) -> &[String] {
        &self.models
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
    pub(super) fn turn_to(&mut self, model: usize) {
        if let Some(model) = self.models.get(model).filter(|model| **model != self.request.model) {
            self.request.model.clone_from(model);
            self.body = OnceCell::new();
        }
    }

    /// Puts other turns in the place of those of the request, and gives these.
    pub(super) fn replace_turns(&mut self, turns: Vec<Turn>, fetched: Vec<Fetched>) -> Vec<Turn> {
        self.fetched = fetched;
        self.body = OnceCell::new();
        std::mem::replace(&mut self.request.messages, turns)
    }

    /// Adds turns to the conversation.
    pub(super) fn add_turns(&mut self, turns: impl IntoIterator<Item = Turn>) {
        self.request.messages.extend(turns);
        self.body = OnceCell::new();
    }

    /// Says where the backend keeps the conversation.
    pub(super) fn continue_in(&mut self, conversation: Conversation) {
        self.request.conversation = Some(conversation);
        self.body = OnceCell::new();
    }
}
