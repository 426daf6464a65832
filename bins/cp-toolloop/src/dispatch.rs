//! Carrying out the calls of a message: each is judged, then run, and its result shown, in the order of the calls.

use std::path::Path;
use std::time::Instant;

use cp_common::output::Format;
use cp_common::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_log::line::Hash;

use crate::engine::Engine;
use crate::journal::{Decision, Step};
use crate::tool::{Origin, Tool};

/// What becomes of a call.
enum Verdict {
    /// It is carried out, by this tool.
    Run(Tool),
    /// It is not, and this is what the model is told.
    Answer(String),
}

impl Engine {
    /// Carries out the calls that have no result.
    pub(crate) fn dispatch(&mut self, context: &mut Context) -> Result<()> {
        let waiting: Vec<usize> =
            (0..).zip(&self.conversation.calls).filter(|(_, call)| call.result.is_none()).map(|(at, _)| at).collect();
        for at in waiting {
            self.carry_out(at, context)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, at: usize, context: &mut Context) -> Result<()> {
        let call = self.conversation.calls[at].call.clone();
        self.show_call(&call, context)?;
        let began = Instant::now();
        let result = match self.judge(at)? {
            Verdict::Answer(words) => answer(&call, &words, began),
            Verdict::Run(tool) => {
                self.book.call(self.conversation.tally.iterations, &call)?;
                self.step(Step::Started(at))?;
                self.journal.sync()?;
                self.executor.start(0, &renamed(&call, &tool), context)?;
                self.collect(0, &call, began)?
            }
        };
        self.finished(at, &call, result, context)
    }

    /// Decides about a call before anything is started.
    fn judge(&mut self, at: usize) -> Result<Verdict> {
        let waiting = &self.conversation.calls[at];
        let call = &waiting.call;
        let Some(tool) = self.plan.tools.iter().find(|tool| tool.name == call.name).cloned() else {
            return Ok(Verdict::Answer(format!("Tool not permitted: {}", call.name)));
        };
        if let Some(Decision::Denied(words)) = &waiting.decision {
            return Ok(Verdict::Answer(format!("Denied: {words}")));
        }
        if let Err(complaint) = self.arguments.check(&tool, &call.input) {
            return Ok(Verdict::Answer(complaint.message().to_owned()));
        }
        if waiting.started && !tool.hints.idempotent && waiting.decision != Some(Decision::Approved) {
            return Err(self.unfinished(call));
        }
        if let Origin::Executable { path, sha256 } = &tool.origin
            && hash_of(path).as_ref() != Some(sha256)
        {
            return Ok(Verdict::Answer(format!(
                "{} is not the tool it was when the run began; it was not run",
                tool.name
            )));
        }
        Ok(Verdict::Run(tool))
    }

    /// A call that was started and has no result: whether it had its effect, only a person can find out.
    fn unfinished(&self, call: &ToolCall) -> Error {
        let resume = self.resume_line(&format!(" --approve {}", call.id));
        Error::new(Code::HumanRequired, format!("{} was started and its end is not known", call.name))
            .with("action", "resolve_unfinished_call")
            .with("call", serde_json::json!({"id": call.id, "name": call.name, "input": &call.input}))
            .with("resume", resume)
            .with("otherwise", self.resume_line(&format!(" --deny {} --message 'it is done'", call.id)))
            .hint("look whether it had its effect: --approve runs it again, --deny goes on without")
    }

    /// Waits for a call. What cp-exec refuses is an answer too: the model may find another way.
    fn collect(&mut self, slot: usize, call: &ToolCall, began: Instant) -> Result<ToolResult> {
        match self.executor.result(slot) {
            Ok(result) => Ok(ToolResult { id: call.id.clone(), name: call.name.clone(), ..result }),
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                let hint = error.cure().map(|hint| format!(" ({hint})")).unwrap_or_default();
                Ok(answer(call, &format!("{}: {}{hint}", error.code(), error.message()), began))
            }
        }
    }

    fn finished(&mut self, at: usize, call: &ToolCall, mut result: ToolResult, context: &mut Context) -> Result<()> {
        result.untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        if let Some(told) = self.repeats.note(call, &result) {
            result.content = format!("{}\n\n{told}", result.content);
        }
        let turn = self.conversation.tally.iterations;
        self.step(Step::Finished(at, Box::new(result.clone())))?;
        let receipt = self.book.result(turn, &result)?;
        result.receipt.get_or_insert(receipt);
        context.progress(&format!("  {} {}", if result.is_error { "✗" } else { "✓" }, call.name));
        if context.out.format() == Format::Json {
            context.out.record(Kind::ToolResult, &result)?;
            context.out.flush()?;
        }
        if result.is_error && self.plan.fail_on_tool_error {
            return Err(Error::new(Code::CommandFailed, format!("the tool {} failed", call.name))
                .with("tool", call.name.as_str())
                .with("call", call.id.as_str()));
        }
        Ok(())
    }

    fn show_call(&self, call: &ToolCall, context: &mut Context) -> Result<()> {
        if context.out.format() != Format::Json {
            return Ok(());
        }
        let mut shown = call.clone();
        shown.untrusted = vec!["/name".to_owned(), "/input".to_owned()];
        context.out.record(Kind::ToolCall, &shown)?;
        context.out.flush()
    }
}

/// A result that no tool gave.
fn answer(call: &ToolCall, words: &str, began: Instant) -> ToolResult {
    ToolResult {
        id: call.id.clone(),
        name: call.name.clone(),
        content: words.to_owned(),
        is_error: true,
        exit_code: None,
        duration_ms: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        receipt: None,
        untrusted: Vec::new(),
    }
}

/// The call as cp-exec knows it: by the file's name.
fn renamed(call: &ToolCall, tool: &Tool) -> ToolCall {
    ToolCall { name: tool.exec_name(), untrusted: Vec::new(), ..call.clone() }
}

fn hash_of(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| Hash::of(&bytes).to_string())
}
