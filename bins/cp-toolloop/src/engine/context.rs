//! `--context-tokens`: shortens the conversation before a turn if it exceeds the limit. First, notes replace old results, which the ledger
//! keeps; then a summary by the model replaces old turns. A call always keeps its result. Token counts are estimates.

use cp_common::wire::{Prompt, estimated_tokens};
use cp_common::{Code, Context, Error, Result};

use super::{Engine, Event};
use crate::state::step::{Cleared, Compacted, Step};

/// The number of newest turns that do not change, if possible.
const NEWEST: usize = 4;
/// A shorter result, in bytes, is not removed.
const WORTH: usize = 400;

impl Engine {
    /// Shortens the conversation to the limit, or to three quarters of it if removing results suffices, because a changed conversation is
    /// not in the provider's cache.
    pub(super) fn fit(&mut self, context: &mut Context) -> Result<()> {
        let Some(limit) = self.run.conversation.limits.context_tokens else { return Ok(()) };
        if self.tokens()? <= limit {
            return Ok(());
        }
        let turns = self.run.conversation.prompt.messages.len();
        self.clear(turns.saturating_sub(NEWEST), limit - limit / 4, context)?;
        if self.tokens()? > limit {
            self.summarise(context)?;
        }
        if self.tokens()? > limit {
            self.clear(self.run.conversation.prompt.messages.len(), limit, context)?;
        }
        let tokens = self.tokens()?;
        if tokens <= limit {
            return Ok(());
        }
        let message = format!("the conversation cannot be shortened below about {tokens} tokens, the limit is {limit}");
        let next = format!(" --context-tokens {}", tokens.saturating_mul(2));
        Err(self.run.exhausted("context", message, &next))
    }

    /// Shortens the conversation by a step.
    pub(super) fn compact(&mut self, step: Step, context: &mut Context) -> Result<()> {
        let (results, turns, summary) = match &step {
            Step::Cleared(cleared) => (cleared.len(), 0, None),
            Step::Summarised(through, summary) => (0, through.saturating_sub(1), Some(summary.clone())),
            _ => return Ok(()),
        };
        let compacted = Compacted { estimated_tokens: self.tokens()?, results, turns };
        let number = self.run.conversation.tally.iterations + 1;
        self.run.note(|journal| journal.compacted(number, &compacted, summary.as_deref()))?;
        self.run.step(step)?;
        Event::compacted(&self.run.plan.run, number, compacted).show(context)
    }

    fn tokens(&self) -> Result<usize> {
        self.run.conversation.prompt.estimated_tokens()
    }

    /// Removes results from the first turns, oldest first, until the conversation has at most this many tokens.
    fn clear(&mut self, turns: usize, tokens: usize, context: &mut Context) -> Result<()> {
        let mut excess = self.tokens()?.saturating_sub(tokens);
        let mut cleared = Vec::new();
        for (turn, message) in self.run.conversation.prompt.messages[..turns].iter().enumerate() {
            for (at, block) in message.content.blocks().iter().enumerate() {
                let view = block.view()?;
                let Some(given) = view.content.filter(|given| given.get().len() > WORTH && excess > 0) else {
                    continue;
                };
                let text = serde_json::from_str(given.get()).unwrap_or_else(|_| given.get().to_owned());
                let Some(hash) = self.run.kept(&text)? else { continue };
                let size = text.len();
                let note = format!(
                    "[{size} bytes were left out here later to save room; the run's ledger keeps them as {hash}]"
                );
                excess = excess.saturating_sub(estimated_tokens(given.get().len().saturating_sub(note.len())));
                cleared.push(Cleared { turn, block: at, note });
            }
        }
        if cleared.is_empty() { Ok(()) } else { self.compact(Step::Cleared(cleared), context) }
    }

    /// Asks the model for a summary that replaces the old turns.
    fn summarise(&mut self, context: &mut Context) -> Result<()> {
        let Some((through, turns)) = self.run.conversation.old(NEWEST) else { return Ok(()) };
        let asked = &self.run.plan.prompt;
        let (agent, model, params) = (asked.agent.clone(), asked.model.clone(), asked.params.clone());
        let prompt = Prompt { agent, model, params, ..Prompt::to_summarise(turns) };
        let left = self.run.time_left()?;
        let Some(summary) = self.parts.model.ask_aside(&prompt, left, context)? else {
            return Err(self.run.out_of_time());
        };
        if summary.content.text().trim().is_empty() {
            return Err(Error::new(Code::Server, "the model returned an empty summary"));
        }
        self.compact(Step::Summarised(through, Box::new(summary)), context)
    }
}
