//! The calls of a message: each is screened, decided, started and completed, in the order of the calls.

use std::ops::ControlFlow::{self, Break, Continue};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use cp_common::program::approval;
use cp_common::wire::nearest;
use cp_common::wire::{Approval, ToolCall, ToolResult};
use cp_common::{Code, Context, Result};
use cp_ledger::format::line::Hash;

use super::print::{print_call, report_end};
use super::{Engine, Pending};
use crate::state::conversation::{Call, UNFINISHED};
use crate::state::ledger::{Found, find_call_end, started_programs};
use crate::state::step::{Decision, Step};
use crate::tools::find;
use crate::tools::tool::{BASH, Executable, Origin, Tool};

/// The seconds by which the time limit of cp-exec exceeds that of a tool.
const BEHIND: f64 = 5.0;
/// The most programs of a command line that a message names.
const MOST_NAMED: usize = 10;

impl Engine {
    /// Runs the calls that have no result, one after the other.
    pub(super) fn dispatch(&mut self, context: &mut Context) -> Result<()> {
        let is_open = |call: &Call| call.result.is_none();
        while let Some(at) = self.run.conversation.calls.iter().position(is_open) {
            let call = self.run.conversation.calls[at].asked.clone();
            let pending = Pending { at, call, began: Instant::now() };
            let result = self.carry_out(&pending, context)?;
            self.finish_call(&pending, result, context)?;
        }
        Ok(())
    }

    /// The result of a call. A call that ended because it, or a program of its line, requires approval is made again
    /// with the approval.
    fn carry_out(&mut self, pending: &Pending, context: &mut Context) -> Result<ToolResult> {
        let mut is_first = true;
        loop {
            let decided = self.decide_call(pending, context)?;
            if is_first {
                print_call(&pending.call, context)?;
            }
            let tool = match decided {
                Break(result) => return Ok(result),
                Continue(tool) => tool,
            };
            self.begin(pending, context)?;
            match self.execute(pending, &tool, context)? {
                Ok(result) => return Ok(result),
                Err(approval) => self.decide(pending.at, &approval, context)?,
            }
            is_first = false;
        }
    }

    /// Decides about a call before it starts: the tool that it runs, or the result of a call that does not run.
    fn decide_call(&mut self, pending: &Pending, context: &mut Context) -> Result<ControlFlow<ToolResult, Tool>> {
        let at = pending.at;
        let waiting = self.run.conversation.calls[at].clone();
        let call = &waiting.asked;
        let Some(tool) = self.run.plan.tools.iter().find(|tool| tool.name == call.name).cloned() else {
            let near = nearest(&call.name, self.run.plan.tools.iter().map(|tool| tool.name.as_str()));
            let hint = near.map(|near| format!("\nHint: did you mean {near}?")).unwrap_or_default();
            return self.refuse(pending, format!("Tool not permitted: {}{hint}", call.name));
        };
        if let Some(Decision::Denied { why, .. }) = &waiting.decision {
            return self.refuse(pending, self.denial(call, why)?);
        }
        if let Err(invalid) = self.arguments.check(&tool, &call.input) {
            return self.refuse(pending, invalid.message().to_owned());
        }
        let approved = matches!(waiting.decision, Some(Decision::Approved(_)));
        let repeats = waiting.started && !tool.hints.idempotent;
        let is_asked = waiting.is_asked && waiting.approval.is_some_and(|approval| approval.shown.rule == UNFINISHED);
        let found = if approved || !repeats {
            Found::NotBegun
        } else if is_asked {
            // An earlier resume has asked about the call, and its end is still not known.
            Found::Unknown
        } else {
            find_call_end(self.run.ledger(), &call.id)?
        };
        if let Found::Ended(ended, receipt) = found {
            return Ok(Break(ToolResult {
                is_error: ended.return_code != Some(0),
                exit_code: ended.return_code,
                receipt: Some(receipt),
                ..pending.failed(ended.text(self.run.ledger()))
            }));
        }
        if !is_unchanged(&tool.origin) {
            let message = format!("the file of {} has changed since the run started; it was not run", tool.name);
            return self.refuse(pending, message);
        }
        let was_approved = waiting.started && tool.hints.idempotent;
        let asks = match (found, self.parts.approver.reason(&tool)) {
            _ if approved || was_approved => None,
            (Found::Unknown, _) => Some(self.unfinished(at, &tool, context)?),
            (_, Some((rule, why))) => Some(self.asked(call, &tool, rule, why, context)?),
            (_, None) => None,
        };
        if let Some(approval) = asks {
            self.decide(at, &approval, context)?;
            if let Some(Decision::Denied { why, .. }) = &self.run.conversation.calls[at].decision {
                return self.refuse(pending, self.denial(call, why)?);
            }
        }
        Ok(Continue(tool))
    }

    /// The result of a call that does not start. The call is recorded first.
    fn refuse(&mut self, pending: &Pending, answer: String) -> Result<ControlFlow<ToolResult, Tool>> {
        self.run.record(Step::Refused(pending.at))?;
        self.run.sync()?;
        Ok(Break(pending.failed(answer)))
    }

    /// The result of a denied call. A denied command line may have run in part.
    fn denial(&self, call: &ToolCall, reason: &str) -> Result<String> {
        let started = self.started_programs(call)?.map(|started| format!("; {started}"));
        Ok(format!("Denied: {reason}{}", started.unwrap_or_default()))
    }

    /// A description of the programs that a command line started before one of them required approval; `None` for
    /// another tool.
    fn started_programs(&self, call: &ToolCall) -> Result<Option<String>> {
        if call.name != BASH {
            return Ok(None);
        }
        let programs = started_programs(self.run.ledger(), &call.id)?;
        let named =
            programs.iter().take(MOST_NAMED).map(|program| format!("`{program}`")).collect::<Vec<_>>().join(", ");
        Ok(Some(match programs.len() {
            0 => "no other program of it has run".to_owned(),
            count if count > MOST_NAMED => format!("{count} programs of it have run already, the first are {named}"),
            _ => format!("these programs of it have run already: {named}"),
        }))
    }

    /// Records that a call starts, and spends its grant before its effect, so that a resume after a stop here requires
    /// approval again.
    fn begin(&mut self, pending: &Pending, context: &Context) -> Result<()> {
        let call = &self.run.conversation.calls[pending.at];
        let handed = match (&call.decision, &call.approval) {
            // An executor spends the grants of its own requests.
            (Some(Decision::Approved(grant)), Some(approval)) if call.own_grant().is_none() => {
                Some((grant.clone(), approval.clone()))
            }
            _ => None,
        };
        self.run.record(Step::Started(pending.at))?;
        self.run.sync()?;
        handed.map_or(Ok(()), |(grant, approval)| approval::grant(&context.home, &approval, &grant))
    }

    /// Runs a call by cp-exec or cp-mcp. A refusal is a result too, because the model may try another call. The inner
    /// error is the approval that the call, or a program of its command line, requires; such a call did not start.
    fn execute(
        &mut self,
        pending: &Pending,
        tool: &Tool,
        context: &Context,
    ) -> Result<std::result::Result<ToolResult, Box<Approval>>> {
        let call = &pending.call;
        // This process stops a late tool; the limit of cp-exec applies if this process is killed.
        let timeout = tool.hints.timeout.map(|seconds| seconds + BEHIND);
        let renamed = ToolCall { name: tool.name_in_executor(), timeout, untrusted: Vec::new(), ..call.clone() };
        self.parts.executor(&tool.origin).call(&renamed, &self.run.steps, context)?;
        let limit = tool.hints.timeout.map(Duration::from_secs_f64);
        let limit = [limit, self.run.time_left()?].into_iter().flatten().min();
        let executor = self.parts.executor(&tool.origin);
        match executor.result(limit) {
            Ok(Some(result)) => Ok(Ok(ToolResult { id: call.id.clone(), name: call.name.clone(), ..result })),
            Ok(None) => {
                // Stopping it stops the tool and all its processes.
                executor.stop();
                self.run.time_left()?;
                let seconds = pending.began.elapsed().as_secs_f64();
                Ok(Ok(pending.failed(format!("stopped after {seconds:.1} seconds"))))
            }
            Err(error) => {
                let asks = Approval::of(&error).filter(|_| error.code() == Code::HumanRequired);
                let Some(mut approval) = asks else {
                    if error.is_fatal() {
                        return Err(error);
                    }
                    let hint = error.hint_text().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    return Ok(Ok(pending.failed(format!("{}: {}{hint}", error.code(), error.message()))));
                };
                // The call is made again after the approval.
                self.run.record(Step::Withdrawn(pending.at))?;
                if let Some(started) = self.started_programs(call)? {
                    approval.shown.why =
                        format!("{}; the line starts again from its beginning, and {started}", approval.shown.why);
                }
                Ok(Err(Box::new(approval)))
            }
        }
    }

    /// Records a result as the model reads it: with the path of a link, a warning about a repeated failure, and without
    /// its middle if it is too long.
    fn finish_call(&mut self, pending: &Pending, mut result: ToolResult, context: &mut Context) -> Result<()> {
        if let Some(tool) = self.run.plan.tools.iter().find(|tool| tool.name == pending.call.name) {
            result.content = find::restore_link_path(result.content, tool, context);
        }
        result.content.extend(self.run.conversation.repeats.clone().note(&pending.call, &result));
        if let Some(shorter) = self.run.shortened(&result.content)? {
            result.content = shorter;
        }
        result.untrusted = vec!["/name".to_owned(), "/content".to_owned()];
        result.untrusted.extend((!result.images.is_empty()).then(|| "/images".to_owned()));
        report_end(&pending.call, result.is_error, context);
        self.run.record(Step::Finished(pending.at, Box::new(result)))?;
        self.show(context)
    }
}

/// True if a tool has the same bytes, and the same link, as when it was described.
fn is_unchanged(origin: &Origin) -> bool {
    let Origin::Executable(Executable { path, link, sha256 }) = origin else { return true };
    let leads_there = |link: &PathBuf| link.canonicalize().is_ok_and(|there| there == *path);
    let is_same = std::fs::read(path).is_ok_and(|bytes| Hash::of(&bytes).to_string() == *sha256);
    is_same && link.as_ref().is_none_or(leads_there)
}
