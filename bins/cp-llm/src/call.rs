//! From a prompt to a message: the request, its tries, the models to fall back to, and what goes on the ledger.

use std::time::{Duration, Instant};

use cp_common::wire::{Message, Prompt, Turn, Usage};
use cp_common::{Code, Error, Result};

use crate::backend::Backend;
use crate::book::{Book, Tried};
use crate::budget::Budget;
use crate::exchange::{Traces, hash_of};
use crate::llm::Llm;
use crate::message;
use crate::mirror;
use crate::pace::Pace;
use crate::policy::Policy;
use crate::prices::Prices;
use crate::retry::{self, Patience};
use crate::schema::Schema;
use crate::tape::Tape;
use crate::wire::{Answer, Ask, Tokens};

/// Who hears what happens while an answer is made.
pub(crate) trait Listener {
    /// New words of the model.
    fn words(&mut self, text: &str) -> Result<()>;
    /// Something a person should know.
    fn warn(&mut self, message: &str);
}

/// A prompt with everything decided but the model.
pub(crate) struct Work {
    /// The prompt as it came.
    pub prompt: Prompt,
    /// What to ask; the model is one of `models`.
    pub ask: Ask,
    /// The models to ask, the first one first.
    pub models: Vec<String>,
    /// The place among the items of this process.
    pub place: u64,
}

/// What answers prompts. Shared by every thread that asks.
pub(crate) struct Engine {
    /// Who answers.
    pub backend: Backend,
    /// How often and how long to try.
    pub patience: Patience,
    /// What tokens cost.
    pub prices: Prices,
    /// Stop reasons that are failures.
    pub fail_on: Vec<String>,
    /// What the answer must look like.
    pub schema: Option<Schema>,
    /// Where answers are taken from or kept.
    pub tape: Option<Tape>,
    /// What may be spent.
    pub budget: Option<Budget>,
    /// How fast to go.
    pub pace: Option<Pace>,
    /// Where it is recorded.
    pub book: Book,
    /// What may be asked.
    pub policy: Policy,
}

impl Engine {
    /// Answers one prompt, in the shape that was asked for.
    pub(crate) fn message(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let mut message = self.answered(work, listener)?;
        let Some(schema) = self.schema.as_ref().filter(|_| message.tool_calls.is_empty()) else { return Ok(message) };
        let text = message.content.text();
        let misfit = match schema.parsed(&text) {
            Ok(parsed) => {
                message.parsed = Some(parsed);
                return Ok(message);
            }
            Err(misfit) => misfit,
        };
        listener.warn(&format!("the answer does not fit the schema ({}); asking once more", misfit.complaint));
        work.ask.messages.extend([Turn::text("assistant", &text), Turn::text("user", &misfit.request())]);
        let first = message.usage;
        message = self.answered(work, listener)?;
        message.usage = message::sum(&first, &message.usage);
        let text = message.content.text();
        match schema.parsed(&text) {
            Ok(parsed) => message.parsed = Some(parsed),
            Err(misfit) => {
                let error = Error::validation(format!("the answer does not fit the schema: {}", misfit.complaint));
                let error = error.with("origin", "upstream").with("reason", "schema").with("path", misfit.path);
                return Err(error.with("partial", text).with("_untrusted", vec!["/partial"]));
            }
        }
        Ok(message)
    }

    /// Answers from the tape where it can, and else asks one model after the other.
    fn answered(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        let Some(tape) = &self.tape else { return self.asked(work, listener) };
        // What is recorded depends neither on how the words are shown nor on where the backend keeps them.
        let mut canonical = Ask { stream: false, conversation: None, ..work.ask.clone() };
        canonical.model.clone_from(&work.models[0]);
        let request = self.body(&canonical)?;
        let key = hash_of(&[self.backend.name().as_bytes(), b"\n", &request].concat());
        if let Some(recorded) = tape.find(&key)? {
            self.book.recalled(tape.name(), &key, work)?;
            let text = recorded.content.text();
            if work.ask.stream {
                text.split_inclusive(' ').try_for_each(|piece| listener.words(piece))?;
            }
            let Prompt { session_id, agent, row, .. } = work.prompt.clone();
            return Ok(Message { input: work.prompt.input().to_vec(), session_id, agent, row, ..recorded });
        }
        if tape.is_all_there_is() {
            return Err(tape.miss(&key, &request));
        }
        let message = self.asked(work, listener)?;
        tape.keep(&key, self.backend.name(), &request, &message)?;
        Ok(message)
    }

    /// Finds the conversation that the backend keeps, where it keeps one. An answer that may be asked for once more belongs in none.
    pub(crate) fn find_conversation(&self, work: &mut Work) -> Result<()> {
        if matches!(self.backend, Backend::Llm(_)) && self.schema.is_none() {
            work.ask.conversation = self.book.conversation(work)?;
        }
        Ok(())
    }

    /// Asks one model after the other.
    fn asked(&self, work: &mut Work, listener: &mut dyn Listener) -> Result<Message> {
        self.find_conversation(work)?;
        let models = work.models.clone();
        for (n, model) in models.iter().enumerate() {
            work.ask.model.clone_from(model);
            let mut shown = false;
            let outcome = self.tries(work, &mut shown, listener);
            match (outcome, models.get(n + 1)) {
                (Err(error), Some(next)) if !shown && is_theirs(&error) => {
                    listener.warn(&format!("{model} gave up ({}); falling back to {next}", error.code()));
                }
                (outcome, _) => return outcome,
            }
        }
        Err(Error::config("no model is named").fatal())
    }

    /// Asks one model, again where that may help.
    fn tries(&self, work: &Work, shown: &mut bool, listener: &mut dyn Listener) -> Result<Message> {
        let body = self.body(&work.ask)?;
        for attempt in 1.. {
            let outcome = self.attempt(work, &body, attempt, shown, listener);
            let error = match outcome {
                Ok(message) => return Ok(message),
                Err(error) => error.with("attempts", attempt),
            };
            let wait = if *shown { None } else { self.patience.wait(&error, attempt, retry::luck()) };
            let Some(wait) = wait else { return Err(error) };
            let seconds = wait.as_secs_f64();
            listener.warn(&format!("try {attempt} failed: {}; again in {seconds:.1} s", error.message()));
            retry::pause(wait)?;
        }
        Err(Error::new(Code::Unknown, "out of tries"))
    }

    /// The exact body that is sent.
    pub(crate) fn body(&self, ask: &Ask) -> Result<Vec<u8>> {
        match &self.backend {
            Backend::Server(server) => server.wire.body(ask),
            // The stub has no wire; what it is asked is written as the widest one would have it.
            Backend::Stub(_) | Backend::Speaker(..) => crate::wire::Wire::body(&crate::wire::anthropic::Anthropic, ask),
            Backend::Llm(_) => {
                let (arguments, stdin) = Llm::request(ask);
                Ok(serde_json::json!({"arguments": arguments, "stdin": stdin}).to_string().into_bytes())
            }
        }
    }

    fn attempt(
        &self,
        work: &Work,
        body: &[u8],
        attempt: u32,
        shown: &mut bool,
        listener: &mut dyn Listener,
    ) -> Result<Message> {
        self.admit(&work.ask.model)?;
        let hash = hash_of(body);
        let tried = Tried { backend: self.backend.name(), model: &work.ask.model, attempt, request_hash: &hash };
        self.book.asked(&tried, work, body)?;
        let start = Instant::now();
        let mut traces = Traces::default();
        let outcome = self.answer(work, body, &mut traces, listener).and_then(|answer| self.accepted(answer));
        *shown |= traces.shown;
        let usage = outcome.as_ref().ok().map(|answer| self.usage(answer, work));
        if let Some(usage) = &usage {
            self.count(usage);
        }
        let receipt = self.book.answered(&tried, work, &outcome, usage.as_ref(), &traces, start.elapsed())?;
        let (answer, usage) = (outcome?, usage.unwrap_or_default());
        let mut message = message::of(answer, usage, work, self.backend.name())?;
        message.receipt = receipt;
        Ok(message)
    }

    /// Lets a request through when there is money for it and its turn has come.
    fn admit(&self, model: &str) -> Result<()> {
        if let Some(budget) = &self.budget {
            if budget.counts_dollars() && !self.prices.knows(model) {
                return Err(Error::config(format!("{model} has no price, so a budget in dollars cannot be kept"))
                    .hint("add it to config/prices.toml, or use --budget-tokens")
                    .fatal());
            }
            budget.admit()?;
        }
        self.pace.as_ref().map_or(Ok(()), Pace::wait)
    }

    fn count(&self, usage: &Usage) {
        if let Some(budget) = &self.budget {
            budget.count(usage);
        }
        if let Some(pace) = &self.pace {
            pace.count(usage);
        }
    }

    fn answer(&self, work: &Work, body: &[u8], traces: &mut Traces, listener: &mut dyn Listener) -> Result<Answer> {
        let stream = work.ask.stream;
        let mut spoke = false;
        let mut show = |text: &str| {
            spoke |= stream;
            if stream { listener.words(text) } else { Ok(()) }
        };
        match &self.backend {
            Backend::Server(server) => {
                let outcome = server.exchange(&work.ask, body, traces, &mut show);
                traces.shown &= stream;
                outcome
            }
            Backend::Speaker(program, _) => {
                let outcome = program.answer(&work.ask, &mut show);
                traces.shown = spoke;
                outcome
            }
            Backend::Llm(program) => {
                let outcome = program.answer(&work.ask, &mut show);
                traces.shown = spoke;
                let answer = outcome?;
                if let Some(conversation) = &work.ask.conversation {
                    let known = conversation.cid.clone();
                    let cid = known.or_else(|| program.conversation_of(&conversation.text, &answer.text));
                    traces.mirror = cid.map(|cid| mirror::after(cid, conversation, &work.ask.messages, &answer.text));
                }
                Ok(answer)
            }
            Backend::Stub(stub) => {
                let answer = stub.answer(&work.ask, work.place)?;
                traces.first = Some(Duration::ZERO);
                traces.hash = Some(hash_of(answer.text.as_bytes()));
                if stream {
                    traces.shown = true;
                    answer.text.split_inclusive(' ').try_for_each(&mut show)?;
                }
                Ok(answer)
            }
        }
    }

    /// The answer, unless the caller calls its end a failure.
    fn accepted(&self, answer: Answer) -> Result<Answer> {
        if !self.fail_on.contains(&answer.stop) {
            return Ok(answer);
        }
        let code = if answer.stop == "refusal" { Code::Forbidden } else { Code::Validation };
        let error = Error::new(code, format!("the answer ended with {}", answer.stop))
            .with("origin", "upstream")
            .with("reason", answer.stop)
            .with("partial", answer.text)
            .with("_untrusted", vec!["/partial"]);
        Err(error.hint("--fail-on makes this a failure"))
    }

    fn usage(&self, answer: &Answer, work: &Work) -> Usage {
        let Tokens { input, output, cache_read, cache_write } = answer.usage.unwrap_or_default();
        let mut usage = Usage {
            input_tokens: input,
            output_tokens: output,
            cache_read_tokens: cache_read,
            cache_write_tokens: cache_write,
            cost_usd: None,
        };
        let model = answer.model.as_deref().unwrap_or(&work.ask.model);
        usage.cost_usd = answer.usage.and_then(|_| self.prices.cost(&[model, &work.ask.model], &usage));
        usage
    }
}

/// Whether another model may do better: the failure is of the model's server, and not of the request or the caller.
fn is_theirs(error: &Error) -> bool {
    matches!(error.code(), Code::RateLimited | Code::Server | Code::Timeout)
}
