//! Answers from recordings: what a request is found by, and the message that a recorded one becomes.

use std::sync::Arc;

use cp_common::wire::{Message, Prompt, Usage};
use cp_common::{Result, keys};

use super::cassette::Cassette;
use super::{Engine, Listener, Work};
use crate::dialect::{Request, thoughts};

impl Engine {
    /// Answers from the recordings where that is possible, and else asks.
    pub(super) fn answered(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let first = self.ready_from(0, work, listener)?;
        let Some(cassette) = &self.cassette else { return self.asked_whole(first, work, listener) };
        let backend = self.ready(work)?.backend;
        let request = self.recorded_form(work)?;
        let keys = keys_of(cassette, work, backend.name(), &request);
        let key = &keys[0];
        let mut found = cassette.find(&keys)?;
        // Who wants an answer that is being asked for waits here for it, and neither for money nor at the gate.
        let claim = if found.is_none() { cassette.claim(key)? } else { None };
        if claim.is_some() {
            found = cassette.find(&keys)?;
        }
        if let Some(recorded) = found {
            drop(claim);
            return self.recalled(cassette, recorded, &request, work, listener);
        }
        if let Some(miss) = cassette.miss(key, &request) {
            return Err(miss);
        }
        let message = self.asked_whole(first, work, listener)?;
        cassette.keep(key, backend.name(), &request, &message)?;
        Ok(message)
    }

    /// The message that a recorded one is for this prompt.
    fn recalled(
        &self,
        cassette: &Cassette,
        recorded: Message,
        request: &[u8],
        work: &Work,
        listener: &mut dyn Listener,
    ) -> Result<Message> {
        let request_hash = request_hash(work, request);
        self.journal.recalled(cassette.name(), &request_hash, work)?;
        if work.request().stream {
            thoughts(&recorded.blocks).try_for_each(|thought| listener.thinking(&thought))?;
            let text = recorded.content.text();
            text.split_inclusive(' ').try_for_each(|piece| listener.text(piece))?;
        }
        let Prompt { session_id, agent, row, .. } = work.prompt.clone();
        let mut message = Message { input: work.prompt.input().to_vec(), session_id, agent, row, ..recorded };
        (message.receipt, message.request_hash) = (work.receipt(), Some(request_hash));
        message.endpoint.clone_from(&work.target().endpoint.name);
        if !cassette.is_replayed() {
            // It was paid for once, and is not counted again.
            message.cached = true;
            message.usage = Usage { cost_usd: message.usage.cost_usd.map(|_| 0.0), ..Usage::default() };
        }
        Ok(message)
    }

    /// The body that a recording is found by: it does not depend on how the answer comes.
    pub(super) fn recorded_form(&self, work: &Work) -> Result<Arc<Vec<u8>>> {
        let request = work.request();
        if !request.stream && !work.is_filled() {
            return self.body(work);
        }
        let messages = work.named_turns().to_vec();
        let plain = Request { stream: false, messages, ..request.clone() };
        self.ready(work)?.backend.body(&plain).map(Arc::new)
    }
}

/// The hash of a request, as cp-ledger(5) has it: of its dialect and its body.
pub(crate) fn request_hash(work: &Work, body: &[u8]) -> String {
    keys::hash(&[work.target().endpoint.dialect.name().as_bytes(), b"\n", body].concat())
}

/// What an answer is kept under, and what it was kept under before endpoints had names. A recording knows the request alone; the cache
/// also whom it was sent to, since two servers may call different models the same.
fn keys_of(cassette: &Cassette, work: &Work, backend: &str, body: &[u8]) -> Vec<String> {
    let endpoint = &work.target().endpoint;
    let before = keys::hash(&[backend.as_bytes(), b"\n", body].concat());
    if !cassette.is_cache() {
        return vec![request_hash(work, body), before];
    }
    let scope = [endpoint.cache_scope().as_bytes(), b"\n", endpoint.dialect.name().as_bytes(), b"\n", body];
    let mut keys = vec![keys::hash(&scope.concat())];
    keys.extend(Some(before).filter(|_| endpoint.is_plain()));
    keys
}
