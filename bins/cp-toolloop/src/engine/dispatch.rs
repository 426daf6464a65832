//! Carrying out the calls of a message: each is judged, then run, and its result shown, in the order of the calls.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Block, Receipt, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use serde_json::json;

use super::Engine;
use super::pending::Pending;
use crate::mcp::{Outcome, Spec};
use crate::parts::agent::Agent;
use crate::state::files::RunFiles;
use crate::state::step::{Decision, Step};
use crate::tools::links;
use crate::tools::tool::{Origin, Tool};

/// How long a call of a server's tool may take.
const SERVER_LIMIT: Duration = Duration::from_mins(1);

/// What becomes of a call.
enum Verdict {
    /// It is carried out, by this tool.
    Run(Box<Tool>),
    /// It is not, and this is the answer to the model.
    Answer(String),
}

/// Who carries a call out.
enum Work {
    /// Nobody any more: this is the answer to the model.
    Answered(String),
    /// Nobody: the result is in the recording.
    Replayed,
    /// The cp-exec of this slot, at most so long.
    Runs(usize, Option<Duration>),
    Delegated(Box<Agent>),
    /// This server, under this name there; the proof that it was asked.
    Served(Spec, String, Option<Receipt>),
}

impl Engine {
    /// Carries out the calls that have no result, as many at a time as the plan says.
    pub(super) fn dispatch(&mut self, context: &mut Context) -> Result<()> {
        let calls = &self.run.conversation.calls;
        let waiting: Vec<usize> =
            (0..).zip(calls).filter(|(_, call)| call.result.is_none()).map(|(at, _)| at).collect();
        for group in waiting.chunks(self.run.plan.parallel.max(1)) {
            let mut underway = Vec::new();
            // What stops one call does not leave the others without their results.
            let mut stopped = Ok(());
            for (slot, at) in group.iter().enumerate() {
                let call = self.run.conversation.calls[*at].asked.clone();
                let pending = Pending { at: *at, call, began: Instant::now() };
                match self.begin(&pending, slot, context) {
                    Ok(work) => underway.push((pending, work)),
                    Err(error) => {
                        stopped = Err(error);
                        break;
                    }
                }
            }
            for (pending, work) in underway {
                let completed = self.complete(&pending, work, context);
                stopped = stopped.and(completed);
            }
            stopped?;
        }
        Ok(())
    }

    fn begin(&mut self, pending: &Pending, slot: usize, context: &mut Context) -> Result<Work> {
        let Pending { at, call, .. } = pending;
        if self.replay.is_some() {
            show_call(call, context)?;
            return Ok(Work::Replayed);
        }
        let tool = match self.judge(*at)? {
            Verdict::Answer(answer) => {
                show_call(call, context)?;
                return Ok(Work::Answered(answer));
            }
            Verdict::Run(tool) => tool,
        };
        let turn = self.run.conversation.tally.iterations;
        let receipt = self.run.note(|journal| journal.call(turn, call))?;
        self.run.step(Step::Started(*at))?;
        self.run.sync()?;
        show_call(call, context)?;
        if tool.is_agent() {
            return Ok(match self.delegate(*at, call, context)? {
                Ok(agent) => Work::Delegated(Box::new(agent)),
                Err(refusal) => Work::Answered(refusal),
            });
        }
        if let Origin::Mcp { server, tool } = &tool.origin {
            let spec = self.run.plan.mcp.iter().find(|spec| spec.name == *server).cloned();
            let spec = spec.ok_or_else(|| Error::not_found(format!("the run has no MCP server {server}")).fatal())?;
            return Ok(Work::Served(spec, tool.clone(), receipt));
        }
        // cp-exec knows a tool by the name of its file.
        let renamed = ToolCall { name: tool.exec_name(), untrusted: Vec::new(), ..call.clone() };
        let executor = &mut self.parts.executor;
        self.run.shared(|| executor.start(slot, &renamed, context))?;
        Ok(Work::Runs(slot, tool.hints.timeout.map(Duration::from_secs_f64)))
    }

    fn complete(&mut self, pending: &Pending, work: Work, context: &mut Context) -> Result<()> {
        let mut result = match work {
            Work::Replayed => return self.replayed(pending, context),
            Work::Answered(answer) => pending.failed(answer),
            Work::Delegated(agent) => self.returned(pending, *agent, context)?,
            Work::Served(spec, tool, receipt) => {
                ToolResult { receipt, ..self.call_server(pending, &spec, &tool, context)? }
            }
            Work::Runs(slot, limit) => self.collect(pending, slot, limit)?,
        };
        if let Some(tool) = self.run.plan.tools.iter().find(|tool| tool.name == pending.call.name) {
            result.content = links::unveiled(result.content, tool, context);
        }
        if let Some(warning) = self.repeats.note(&pending.call, &result) {
            result.content.push_str(&warning);
        }
        if let Some(shorter) = self.run.shortened(&result.content)? {
            result.content = shorter;
        }
        let agent = self.run.conversation.calls[pending.at].agent.clone();
        let finished = self.finished(pending, result, context);
        if let Some(files) = agent.and_then(|run| RunFiles::find(&run, context).ok()) {
            // Its result is on our own record now.
            let _ = std::fs::remove_file(files.recording());
        }
        finished
    }

    fn replayed(&mut self, pending: &Pending, context: &mut Context) -> Result<()> {
        let Some(replay) = &mut self.replay else { return Ok(()) };
        let (spent, result) = replay.result()?;
        if let Some(spent) = spent {
            self.run.step(Step::Spent(pending.at, spent))?;
        }
        self.finished(pending, result, context)
    }

    /// Decides about a call before anything is started.
    fn judge(&mut self, at: usize) -> Result<Verdict> {
        let waiting = &self.run.conversation.calls[at];
        let call = &waiting.asked;
        let Some(tool) = self.run.plan.tools.iter().find(|tool| tool.name == call.name) else {
            return Ok(Verdict::Answer(format!("Tool not permitted: {}", call.name)));
        };
        if let Some(Decision::Denied(reason)) = &waiting.decision {
            return Ok(Verdict::Answer(format!("Denied: {reason}")));
        }
        if let Err(invalid) = self.arguments.check(tool, &call.input) {
            return Ok(Verdict::Answer(invalid.message().to_owned()));
        }
        // An agent that was started goes on where it stopped, and repeats nothing.
        let approved = waiting.decision == Some(Decision::Approved) || waiting.agent.is_some();
        if waiting.started && !tool.hints.idempotent && !approved && !tool.is_agent() {
            return Err(self.unfinished(call));
        }
        if !is_unchanged(&tool.origin) {
            return Ok(Verdict::Answer(format!(
                "{} is not the tool it was when the run began; it was not run",
                tool.name
            )));
        }
        let tool = Box::new(tool.clone());
        if !approved && self.parts.approver.is_required_for(&tool) {
            let Some(decision) = self.parts.approver.decide(&self.run.plan.run, call, &tool)? else {
                return Err(self.unapproved(call));
            };
            self.run.decide(at, decision.clone(), "approver")?;
            if let Decision::Denied(reason) = decision {
                return Ok(Verdict::Answer(format!("Denied: {reason}")));
            }
        }
        Ok(Verdict::Run(tool))
    }

    /// A call that was started and has no result: whether it had its effect, only a person can find out.
    fn unfinished(&self, call: &ToolCall) -> Error {
        let message = format!("{} was started, and whether it finished is not known", call.name);
        self.human("resolve_unfinished_call", message, call)
            .hint("check whether it had its effect: --approve runs it again, --deny goes on without it")
    }

    /// A call that requires approval, and no program was named that could give it.
    fn unapproved(&self, call: &ToolCall) -> Error {
        self.human("approve_tool_call", format!("{} requires approval", call.name), call)
            .hint("--approve runs it, --deny refuses it and tells the model so")
    }

    fn human(&self, action: &str, message: String, call: &ToolCall) -> Error {
        let id = &call.id;
        Error::new(Code::HumanRequired, message)
            .with("action", action)
            .with("call", json!({"id": id, "name": call.name, "input": &call.input}))
            .with("_untrusted", json!(["/call"]))
            .with("resume", self.run.resume_line(&format!(" --approve {id}")))
            .with("otherwise", self.run.resume_line(&format!(" --deny {id} --message no")))
    }

    /// Waits for a call. What cp-exec refuses is an answer too: the model may find another way.
    fn collect(&mut self, pending: &Pending, slot: usize, limit: Option<Duration>) -> Result<ToolResult> {
        let left = self.run.time_left()?;
        let (limit, call) = ([limit, left].into_iter().flatten().min(), &pending.call);
        match self.parts.executor.result(slot, limit) {
            Ok(Some(result)) => Ok(ToolResult { id: call.id.clone(), name: call.name.clone(), ..result }),
            Ok(None) => {
                // Stopping cp-exec stops the tool with everything it started.
                self.parts.executor.stop(slot);
                self.run.time_left()?;
                Ok(pending.timed_out())
            }
            Err(error) if error.code() == Code::HumanRequired => {
                // It was not run: the same call can simply be made again.
                self.run.step(Step::Withdrawn(pending.at))?;
                Err(error)
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
                Ok(pending.failed(format!("{}: {}{hint}", error.code(), error.message())))
            }
        }
    }

    /// Calls a tool of a server. One that fails is an answer too: the model may find another way.
    fn call_server(&mut self, pending: &Pending, spec: &Spec, tool: &str, context: &Context) -> Result<ToolResult> {
        let limit = self.run.time_left()?.map_or(SERVER_LIMIT, |left| left.min(SERVER_LIMIT));
        match self.parts.servers(context)?.call(spec, tool, &pending.call.input, limit) {
            Ok(Outcome::Answer { text, is_error }) => Ok(ToolResult { is_error, ..pending.failed(text) }),
            Ok(Outcome::Shown { text, images, is_error }) => {
                let images = images.iter().map(|(media, data)| Block::image(media, data)).collect();
                Ok(ToolResult { images, is_error, ..pending.failed(text) })
            }
            Ok(Outcome::TimedOut) => {
                self.run.time_left()?;
                Ok(pending.timed_out())
            }
            Ok(Outcome::InputRequired(questions)) => {
                self.run.step(Step::Withdrawn(pending.at))?;
                let message = format!("the server {} asks for something that only a person can answer", spec.name);
                Err(self
                    .human("answer_mcp_input", message, &pending.call)
                    .with("questions", questions)
                    .hint("give the server what it needs in its own way, then --approve calls it again"))
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => Ok(pending.failed(error.message())),
        }
    }

    fn finished(&mut self, pending: &Pending, mut result: ToolResult, context: &mut Context) -> Result<()> {
        let call = &pending.call;
        result.untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        result.untrusted.extend((!result.images.is_empty()).then(|| "/images".to_owned()));
        let turn = self.run.conversation.tally.iterations;
        self.run.note(|journal| journal.result(turn, &result))?;
        context.progress(&format!("  {} {}", if result.is_error { "✗" } else { "✓" }, call.name));
        let is_error = result.is_error;
        self.run.step(Step::Finished(pending.at, Box::new(result)))?;
        self.show(context)?;
        if is_error && self.run.plan.fail_on_tool_error {
            return Err(Error::new(Code::CommandFailed, format!("the tool {} failed", call.name))
                .with("tool", call.name.as_str())
                .with("call", call.id.as_str()));
        }
        Ok(())
    }
}

fn show_call(call: &ToolCall, context: &mut Context) -> Result<()> {
    if context.out.format() != Format::Json {
        return Ok(());
    }
    let mut shown = call.clone();
    shown.untrusted = vec!["/name".to_owned(), "/input".to_owned()];
    context.out.record(Kind::ToolCall, &shown)?;
    context.out.flush()
}

/// Whether a tool is the one that was described: the same bytes, behind the same link.
fn is_unchanged(origin: &Origin) -> bool {
    let Origin::Executable { path, link, sha256 } = origin else { return true };
    let hash = std::fs::read(path).ok().map(|bytes| Hash::of(&bytes).to_string());
    hash.as_ref() == Some(sha256) && link.as_ref().is_none_or(|link| leads_to(link, path))
}

fn leads_to(link: &Path, path: &Path) -> bool {
    link.canonicalize().is_ok_and(|there| there == *path)
}
