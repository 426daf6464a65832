//! Carrying out the calls of a message: each is judged, then run, and its result shown, in the order of the calls.

use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Receipt, ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use serde_json::json;

use crate::agent::Agent;
use crate::bound;
use crate::delegate::is_agent;
use crate::engine::Engine;
use crate::journal::{self, Decision, Step};
use crate::mcp::{Ground, Outcome, Spec};
use crate::place;
use crate::tool::{Origin, Tool};

/// How long a call of a server's tool may take.
const SERVER: Duration = Duration::from_mins(1);

/// What becomes of a call.
enum Verdict {
    /// It is carried out, by this tool.
    Run(Box<Tool>),
    /// It is not, and this is what the model is told.
    Answer(String),
}

/// A call that is being carried out.
struct Underway {
    at: usize,
    call: ToolCall,
    began: Instant,
    what: What,
}

enum What {
    /// It is answered already.
    Answered(String),
    /// It runs in this slot, at most so long.
    Runs(usize, Option<Duration>),
    /// An agent works on it.
    Delegated(Box<Agent>),
    /// It is a tool of this server, under this name there; the proof that it was asked.
    Asks(Spec, String, Option<Receipt>),
}

impl Engine {
    /// Carries out the calls that have no result, as many at a time as the plan says.
    pub(crate) fn dispatch(&mut self, context: &mut Context) -> Result<()> {
        let waiting: Vec<usize> =
            (0..).zip(&self.conversation.calls).filter(|(_, call)| call.result.is_none()).map(|(at, _)| at).collect();
        for group in waiting.chunks(self.plan.parallel.max(1)) {
            let mut underway = Vec::new();
            // What stops one call does not leave the others without their results.
            let mut stopped = Ok(());
            for (slot, at) in group.iter().enumerate() {
                match self.begin(*at, slot, context) {
                    Ok(begun) => underway.push(begun),
                    Err(error) => {
                        stopped = Err(error);
                        break;
                    }
                }
            }
            for begun in underway {
                let completed = self.complete(begun, context);
                stopped = stopped.and(completed);
            }
            stopped?;
        }
        Ok(())
    }

    fn begin(&mut self, at: usize, slot: usize, context: &mut Context) -> Result<Underway> {
        let call = self.conversation.calls[at].asked.clone();
        let began = Instant::now();
        if self.replay.is_some() {
            show_call(&call, context)?;
            return Ok(Underway { at, call, began, what: What::Answered(String::new()) });
        }
        let what = match self.judge(at)? {
            Verdict::Answer(words) => {
                show_call(&call, context)?;
                What::Answered(words)
            }
            Verdict::Run(tool) => {
                let turn = self.conversation.tally.iterations;
                let receipt = self.note(|book| book.call(turn, &call))?;
                self.step(Step::Started(at))?;
                self.sync()?;
                show_call(&call, context)?;
                if is_agent(&tool) {
                    let what = match self.delegate(at, &call, context)? {
                        Ok(agent) => What::Delegated(Box::new(agent)),
                        Err(words) => What::Answered(words),
                    };
                    return Ok(Underway { at, call, began, what });
                }
                if let Origin::Mcp { server, tool } = &tool.origin {
                    let spec = self.plan.mcp.iter().find(|spec| spec.name == *server).cloned();
                    let spec = spec.ok_or_else(|| Error::not_found(format!("no server {server}")).fatal())?;
                    return Ok(Underway { at, call, began, what: What::Asks(spec, tool.clone(), receipt) });
                }
                self.start_call(slot, &renamed(&call, &tool), context)?;
                What::Runs(slot, tool.hints.timeout.map(Duration::from_secs_f64))
            }
        };
        Ok(Underway { at, call, began, what })
    }

    fn complete(&mut self, begun: Underway, context: &mut Context) -> Result<()> {
        let Underway { at, call, began, what } = begun;
        if let Some(replay) = &mut self.replay {
            let (spent, result) = replay.result()?;
            if let Some(spent) = spent {
                self.step(Step::Spent(at, spent))?;
            }
            return self.finished(at, &call, result, context);
        }
        let mut result = match what {
            What::Answered(words) => answer(&call, &words, began),
            What::Delegated(agent) => self.returned(at, &call, *agent, began, context)?,
            What::Asks(spec, tool, receipt) => {
                ToolResult { receipt, ..self.ask_server(&spec, &tool, at, &call, began, context)? }
            }
            What::Runs(slot, limit) => self.collect(slot, limit, at, &call, began)?,
        };
        if let Some(told) = self.repeats.note(&call, &result) {
            result.content.push_str(&told);
        }
        if let Some((head, tail, missing)) = bound::cut(&result.content) {
            let kept = self.keep(&result.content)?.map(|hash| format!(", the whole is {hash}")).unwrap_or_default();
            result.content = format!("{head}\n[… {missing} bytes are left out here{kept} …]\n{tail}");
        }
        let agent = self.conversation.calls[at].agent.clone();
        let finished = self.finished(at, &call, result, context);
        if let Some(place) = agent.and_then(|run| place::find(&run, context).ok()) {
            // Its result is on our own record now.
            let _ = std::fs::remove_file(journal::recording_of(&place.ledger));
        }
        finished
    }

    /// Decides about a call before anything is started.
    fn judge(&mut self, at: usize) -> Result<Verdict> {
        let waiting = &self.conversation.calls[at];
        let call = &waiting.asked;
        let Some(tool) = self.plan.tools.iter().find(|tool| tool.name == call.name).cloned() else {
            return Ok(Verdict::Answer(format!("Tool not permitted: {}", call.name)));
        };
        if let Some(Decision::Denied(words)) = &waiting.decision {
            return Ok(Verdict::Answer(format!("Denied: {words}")));
        }
        if let Err(complaint) = self.arguments.check(&tool, &call.input) {
            return Ok(Verdict::Answer(complaint.message().to_owned()));
        }
        // An agent that was started goes on where it stopped, and repeats nothing.
        let approved = waiting.decision == Some(Decision::Approved) || waiting.agent.is_some();
        if waiting.started && !tool.hints.idempotent && !approved && !is_agent(&tool) {
            return Err(self.unfinished(call));
        }
        if let Origin::Executable { path, link, sha256 } = &tool.origin
            && (hash_of(path).as_ref() != Some(sha256) || link.as_ref().is_some_and(|link| !leads_to(link, path)))
        {
            return Ok(Verdict::Answer(format!(
                "{} is not the tool it was when the run began; it was not run",
                tool.name
            )));
        }
        if !approved && self.approver.is_asked_about(&tool) {
            let call = call.clone();
            let decision = self.approver.decide(&self.plan.run, &call, &tool)?;
            let Some(decision) = decision else { return Err(self.unapproved(&call)) };
            let (is_approved, words) = match &decision {
                Decision::Approved => (true, String::new()),
                Decision::Denied(words) => (false, words.clone()),
            };
            self.note(|book| book.decision(&call.id, is_approved, "approver", &words))?;
            self.step(Step::Decided(at, decision))?;
            if !is_approved {
                return Ok(Verdict::Answer(format!("Denied: {words}")));
            }
        }
        Ok(Verdict::Run(Box::new(tool)))
    }

    /// A call that was started and has no result: whether it had its effect, only a person can find out.
    fn unfinished(&self, call: &ToolCall) -> Error {
        self.human("resolve_unfinished_call", format!("{} was started and its end is not known", call.name), call)
            .hint("look whether it had its effect: --approve runs it again, --deny goes on without")
    }

    /// A call that needs a word, and there is nobody to say it.
    fn unapproved(&self, call: &ToolCall) -> Error {
        self.human("approve_tool_call", format!("{} needs a person's approval", call.name), call)
            .hint("--approve runs it, --deny tells the model no")
    }

    fn human(&self, action: &str, message: String, call: &ToolCall) -> Error {
        let id = &call.id;
        Error::new(Code::HumanRequired, message)
            .with("action", action)
            .with("call", json!({"id": id, "name": call.name, "input": &call.input}))
            .with("_untrusted", json!(["/call"]))
            .with("resume", self.resume_line(&format!(" --approve {id}")))
            .with("otherwise", self.resume_line(&format!(" --deny {id} --message no")))
    }

    /// Waits for a call. What cp-exec refuses is an answer too: the model may find another way.
    fn collect(
        &mut self,
        slot: usize,
        limit: Option<Duration>,
        at: usize,
        call: &ToolCall,
        began: Instant,
    ) -> Result<ToolResult> {
        let left = self.time_left()?;
        let patience = [limit, left].into_iter().flatten().min();
        match self.executor.result(slot, patience) {
            Ok(Some(result)) => Ok(ToolResult { id: call.id.clone(), name: call.name.clone(), ..result }),
            Ok(None) => {
                // Stopping cp-exec stops the tool with everything it started.
                self.executor.stop(slot);
                self.time_left()?;
                Ok(answer(call, &format!("stopped after {:.1} seconds", began.elapsed().as_secs_f64()), began))
            }
            Err(error) if error.code() == Code::HumanRequired => {
                // It was not run: the same call can simply be made again.
                self.step(Step::Withdrawn(at))?;
                Err(error)
            }
            Err(error) if error.is_fatal() => Err(error),
            Err(error) => {
                let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
                Ok(answer(call, &format!("{}: {}{hint}", error.code(), error.message()), began))
            }
        }
    }

    /// Calls a tool of a server. One that fails is an answer too: the model may find another way.
    fn ask_server(
        &mut self,
        spec: &Spec,
        tool: &str,
        at: usize,
        call: &ToolCall,
        began: Instant,
        context: &Context,
    ) -> Result<ToolResult> {
        let limit = self.time_left()?.map_or(SERVER, |left| left.min(SERVER));
        let ground = match &self.ground {
            Some(ground) => ground,
            None => self.ground.insert(Ground::of(context)?),
        };
        let (text, is_error) = match self.servers.call(spec, tool, &call.input, limit, ground) {
            Ok(Outcome::Answer { text, is_error }) => (text, is_error),
            Ok(Outcome::TimedOut) => {
                self.time_left()?;
                (format!("stopped after {:.1} seconds", began.elapsed().as_secs_f64()), true)
            }
            Ok(Outcome::InputRequired(questions)) => {
                self.step(Step::Withdrawn(at))?;
                let message = format!("the server {} asks for something that only a person can answer", spec.name);
                return Err(self
                    .human("answer_mcp_input", message, call)
                    .with("questions", questions)
                    .hint("give the server what it needs in its own way, then --approve asks it again"));
            }
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => (error.message().to_owned(), true),
        };
        Ok(ToolResult { is_error, ..answer(call, &text, began) })
    }

    fn finished(&mut self, at: usize, call: &ToolCall, mut result: ToolResult, context: &mut Context) -> Result<()> {
        result.untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        let turn = self.conversation.tally.iterations;
        self.note(|book| book.result(turn, &result))?;
        context.progress(&format!("  {} {}", if result.is_error { "✗" } else { "✓" }, call.name));
        let is_error = result.is_error;
        self.step(Step::Finished(at, Box::new(result)))?;
        self.show(context)?;
        if is_error && self.plan.fail_on_tool_error {
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

/// A result that no tool gave.
pub(crate) fn answer(call: &ToolCall, words: &str, began: Instant) -> ToolResult {
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

fn leads_to(link: &Path, path: &Path) -> bool {
    link.canonicalize().is_ok_and(|there| there == *path)
}

fn hash_of(path: &Path) -> Option<String> {
    std::fs::read(path).ok().map(|bytes| Hash::of(&bytes).to_string())
}
