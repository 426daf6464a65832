//! The lines of a run on its ledger, each derived from a step.

use std::path::Path;

use cp_common::Result;
use cp_common::wire::{Approval, Message, Receipt, ToolCall, ToolResult};
use cp_ledger::Entry;
use cp_ledger::format::approval::Said;
use cp_ledger::format::line::Hash;
use serde::Serialize;

use crate::state::conversation::Call;
use crate::state::ledger::has_since;
use crate::state::plan::Plan;
use crate::state::run::Run;
use crate::state::step::{Decision, Step};
use crate::tools::tool::Origin;

#[derive(Serialize)]
struct Pinned<'a> {
    name: &'a str,
    #[serde(flatten)]
    origin: &'a Origin,
    schema_sha256: String,
    /// True if each call of it requires approval.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    approve: bool,
    /// True if it changes nothing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    read_only: bool,
}

impl Run {
    /// The lines of a step that is not applied yet.
    pub(super) fn lines(&self, step: &Step) -> Vec<Entry> {
        let state = &self.conversation;
        let turn = state.tally.iterations;
        let approval = |at: &usize| state.calls.get(*at).and_then(|call| call.approval.as_deref());
        let entry = match step {
            Step::Plan(plan, _) => self.start(plan),
            Step::Resumed(_, limits) => {
                self.entry("run_resumed").with("limits", limits).with("uid", &rustix::process::getuid().as_raw())
            }
            Step::Message(message) if message.receipt.as_ref().is_none_or(|receipt| !self.has(receipt)) => {
                self.message(message, turn + 1)
            }
            Step::Started(at) | Step::Refused(at) => {
                let Some(call) = state.calls.get(*at) else { return Vec::new() };
                // An executor spends the grants of its own requests.
                let grant = call.own_grant().filter(|_| matches!(step, Step::Started(_)));
                let spent = grant.map(|(grant, approval)| self.said(Said::Spent(grant), approval));
                return spent.into_iter().chain(self.called(call, turn)).collect();
            }
            Step::Finished(_, result) => self.result(result, turn),
            // An executor records its own requests.
            Step::Asked(_, approval) if Call::is_asked_here(approval) => self.said(Said::Asked, approval),
            Step::Decided(at, decision) => {
                let Some(approval) = approval(at) else { return Vec::new() };
                match decision {
                    // It is recorded where it was granted.
                    Decision::Approved(grant) if grant.receipt.is_some() => return Vec::new(),
                    Decision::Approved(grant) => self.said(Said::Granted(grant), approval),
                    Decision::Denied { why, by } => self.said(Said::Denied { by, why }, approval),
                }
            }
            _ => return Vec::new(),
        };
        vec![entry]
    }

    /// The lines of the last step, if a killed process could not write them.
    pub(super) fn missing(&self, step: &Step) -> Result<Vec<Entry>> {
        let event = match step {
            Step::Plan(..) => "run_start",
            Step::Message(_) => "message",
            Step::Finished(..) => "tool_result",
            Step::Asked(..) => "approval.asked",
            // A call whose start is not on the ledger did not start.
            _ => return Ok(Vec::new()),
        };
        Ok(if has_since(self.ledger(), self.steps.seq(), event)? { Vec::new() } else { self.lines(step) })
    }

    /// True if an answer is on this ledger already, because cp-llm has written it there.
    pub(super) fn has(&self, receipt: &Receipt) -> bool {
        Path::new(&receipt.ledger) == self.ledger()
    }

    /// The start of a run: the prompt, the model, the tools and the limits.
    fn start(&self, plan: &Plan) -> Entry {
        let pinned = plan.tools.iter().map(|tool| Pinned {
            name: &tool.name,
            origin: &tool.origin,
            schema_sha256: Hash::of(tool.input_schema.get().as_bytes()).to_string(),
            approve: tool.hints.approve,
            read_only: tool.hints.read_only,
        });
        let entry = self.entry("run_start").role("user").with("model_command", &plan.model.argv);
        let entry = plan.prompt.messages.last().into_iter().fold(entry, |entry, turn| entry.content(&turn.content));
        entry
            .with("name", &plan.name)
            .with("base", &plan.base)
            .with("root", &plan.root)
            .with("tools", &pinned.collect::<Vec<_>>())
            .with("limits", &plan.limits)
            .with("messages", &plan.prompt.messages.len())
    }

    fn message(&self, message: &Message, turn: u64) -> Entry {
        let entry = self.entry("message").turn(turn).role("assistant").content(&message.content);
        let entry = entry.with("model", &message.model).with("stop_reason", &message.stop_reason);
        entry.with("usage", &message.usage).with("tool_calls", &message.tool_calls.len())
    }

    /// The call, unless this process has recorded it.
    fn called(&self, call: &Call, turn: u64) -> Option<Entry> {
        let ToolCall { id, name, input, .. } = &call.asked;
        (!call.is_noted)
            .then(|| self.entry("tool_call").turn(turn).with("id", id).with("name", name).with("input", input))
    }

    fn result(&self, result: &ToolResult, turn: u64) -> Entry {
        let entry = self.entry("tool_result").turn(turn).role("tool").content(&result.content);
        let entry = entry.with("id", &result.id).with("name", &result.name).with("is_error", &result.is_error);
        let entry = entry.with("exit_code", &result.exit_code).with("duration_ms", &result.duration_ms);
        entry.with("receipt", &result.receipt)
    }

    fn said(&self, said: Said<'_>, approval: &Approval) -> Entry {
        said.about(approval, self.entry(said.event()))
    }

    pub(super) fn entry(&self, event: &str) -> Entry {
        let entry = Entry::new(event).agent(&self.agent).run(&self.plan.run);
        self.plan.prompt.session_id.iter().fold(entry, Entry::session)
    }
}
