//! The conversation of a run: its turns and its pending calls. It is computed from the steps of the run alone, so that
//! a resume continues exactly where the run stopped.

use std::collections::BTreeSet;

use cp_common::wire::{Approval, Content, Grant, Message, Prompt, Scope, ToolCall, ToolResult, Turn};
use cp_common::{Code, Error, Result, json};
use cp_ledger::format::line::Hash;

use crate::state::plan::{Limits, Plan};
use crate::state::step::{Decision, Step};
use crate::state::tally::Tally;

/// A call of the last message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    pub(crate) asked: ToolCall,
    /// True if it was started.
    pub(crate) started: bool,
    /// True if the process that runs it has recorded it on the ledger.
    pub(crate) is_noted: bool,
    /// The last approval request for it.
    pub(crate) approval: Option<Box<Approval>>,
    /// True if the request waits for an answer.
    pub(crate) is_asked: bool,
    /// The decision about it. A start spends an approval.
    pub(crate) decision: Option<Decision>,
    pub(crate) result: Option<ToolResult>,
}

/// The program name in the approvals of this program.
pub(crate) const OURS: &str = "cp-toolloop";
/// The rule of a call that was started and has no result.
pub(crate) const UNFINISHED: &str = "unfinished";

impl Call {
    /// True if this program requests an approval, and not the executor of the call.
    pub(crate) fn is_asked_here(approval: &Approval) -> bool {
        approval.asked_by.program == OURS || approval.shown.rule == UNFINISHED
    }

    /// The grant of a request by this program, which the next start of the call uses.
    pub(crate) fn own_grant(&self) -> Option<(&Grant, &Approval)> {
        let approval = self.approval.as_deref().filter(|approval| approval.asked_by.program == OURS)?;
        match &self.decision {
            Some(Decision::Approved(grant)) => Some((grant, approval)),
            _ => None,
        }
    }
}

/// The state of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conversation {
    /// The next prompt: all turns so far. Its history has the turns that an earlier message has had as its input or
    /// was.
    pub(crate) prompt: Prompt,
    pub(crate) limits: Limits,
    pub(crate) tally: Tally,
    /// The calls of the last message, until all have results.
    pub(crate) calls: Vec<Call>,
    /// The results that the model has not seen yet.
    pub(crate) returned: Vec<ToolResult>,
    /// The last message, if it called no tool.
    pub(crate) answer: Option<Message>,
    /// The grants for the whole run, by rule and program.
    always: Vec<(String, Option<String>, Grant)>,
    /// The messages and results that were stored and perhaps not printed, oldest first.
    pub(crate) unshown: Vec<Step>,
    pub(crate) repeats: Repeats,
}

impl Conversation {
    /// The conversation after these steps, and its plan.
    pub(crate) fn of_steps(steps: Vec<Step>) -> Result<(Plan, Self)> {
        let mut steps = steps.into_iter();
        let Some(Step::Plan(plan, _)) = steps.next() else {
            return Err(Error::new(Code::Integrity, "the run's state does not begin with its plan"));
        };
        let mut conversation = Self { prompt: plan.prompt.clone(), limits: plan.limits, ..Self::default() };
        for step in steps {
            conversation.take(step)?;
        }
        Ok((*plan, conversation))
    }

    /// Applies a step.
    pub(crate) fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Plan(..) => return Err(Error::new(Code::Integrity, "the run's state has two plans")),
            Step::Deltas(_) => {}
            Step::Resumed(_, limits) => {
                self.limits = limits;
                self.calls.iter_mut().for_each(|call| call.is_noted = false);
            }
            Step::Message(message) => self.answered(message),
            Step::Billed(usage) => self.tally.billed(&usage),
            Step::Started(at) => {
                let call = self.call(at)?;
                (call.started, call.is_noted) = (true, true);
                call.is_asked = false;
                call.decision.take_if(|decision| matches!(decision, Decision::Approved(_)));
            }
            Step::Withdrawn(at) => self.call(at)?.started = false,
            Step::Refused(at) => self.call(at)?.is_noted = true,
            Step::Asked(at, approval) => {
                let call = self.call(at)?;
                call.approval = Some(approval);
                call.is_asked = true;
                call.decision = None;
            }
            Step::Decided(at, decision) => {
                let call = self.call(at)?;
                call.is_asked = false;
                call.decision = Some(decision.clone());
                if let (Decision::Approved(grant), Some(approval)) = (decision, call.approval.clone())
                    && grant.scope == Scope::Run
                    && self.run_grant(&approval).is_none()
                {
                    self.always.push((approval.shown.rule, approval.binds.program, *grant));
                }
            }
            Step::Shown => self.unshown.clear(),
            Step::Finished(at, result) => {
                self.tally.tool_calls += 1;
                self.tally.tool_errors += u64::from(result.is_error);
                let call = self.call(at)?;
                call.result = Some((*result).clone());
                let asked = call.asked.clone();
                self.repeats.note(&asked, &result);
                self.unshown.push(Step::Finished(at, result));
                self.settle();
            }
        }
        Ok(())
    }

    /// The grant for the whole run that covers an approval.
    pub(crate) fn run_grant(&self, approval: &Approval) -> Option<&Grant> {
        let covers = |rule: &String, program: &Option<String>| {
            *rule == approval.shown.rule && *program == approval.binds.program && approval.scopes.contains(&Scope::Run)
        };
        self.always.iter().find(|(rule, program, _)| covers(rule, program)).map(|(_, _, grant)| grant)
    }

    fn call(&mut self, at: usize) -> Result<&mut Call> {
        self.calls
            .get_mut(at)
            .ok_or_else(|| Error::new(Code::Integrity, "the run's state names a call that is not there"))
    }

    /// Prints the final answer again if a run that has one is resumed.
    pub(crate) fn show_answer_again(&mut self) {
        if let (Some(message), true) = (&self.answer, self.unshown.is_empty()) {
            self.unshown.push(Step::Message(Box::new(message.clone())));
        }
    }

    fn answered(&mut self, message: Box<Message>) {
        self.tally.billed(&message.usage);
        self.tally.iterations += 1;
        self.prompt.messages.push(message.turn());
        self.prompt.history = self.prompt.messages.len();
        self.calls = message.tool_calls.iter().map(|asked| Call { asked: asked.clone(), ..Call::default() }).collect();
        self.answer = self.calls.is_empty().then(|| (*message).clone());
        self.unshown.push(Step::Message(message));
    }

    /// Adds the results as the user's next turn, if all calls have results.
    fn settle(&mut self) {
        if self.calls.iter().any(|call| call.result.is_none()) {
            return;
        }
        self.returned = self.calls.drain(..).filter_map(|call| call.result).collect();
        let blocks = self.returned.iter().map(ToolResult::block).collect();
        self.prompt.messages.push(Turn::of("user", Content::Blocks(blocks)));
    }
}

/// A message whose content has its calls, as providers require, and whose calls have unique ids, because a result or
/// decision belongs to one call. Blocks with changed ids are dropped.
pub(crate) fn with_unique_ids(mut message: Message) -> Message {
    let (mut seen, mut is_renamed) = (BTreeSet::new(), false);
    for call in &mut message.tool_calls {
        let (given, mut number) = (call.id.clone(), 1_u64);
        while !seen.insert(call.id.clone()) {
            number += 1;
            call.id = format!("{given}_{number}");
        }
        is_renamed |= call.id != given;
    }
    if is_renamed {
        message.blocks.clear();
        let mut blocks = message.content.blocks();
        blocks.retain(|block| block.view().is_ok_and(|view| view.kind != "tool_use"));
        message.content = Content::Blocks(blocks);
    }
    message.content = message.turn().content;
    message
}

/// The failed call that was made last, and how many times in a row.
///
/// Only failures count, because a successful call may be repeated to wait for a change. A failed call may also be
/// repeated after another call, which may have removed the cause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    last: Option<Hash>,
    times: u64,
}

impl Repeats {
    /// Counts a call and its result. Returns a warning for the model if the same call failed with the same exit status
    /// before; its output may differ in a time or the name of a file.
    pub(crate) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> Option<String> {
        let mut arguments = Vec::new();
        if json::normalize(call.input.get().as_bytes(), &mut arguments).is_err() {
            arguments = call.input.get().as_bytes().to_vec();
        }
        let head = format!("{}\n{:?}\n", call.name, result.exit_code);
        let failure = result.is_error.then(|| Hash::of(&[head.as_bytes(), &arguments].concat()));
        if failure.is_none() || failure != self.last {
            *self = Self { last: failure, times: 1 };
            return None;
        }
        self.times += 1;
        Some(format!(
            "\n\n[This same call was made {} times in a row and failed each time. Do something else.]",
            self.times
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn call(input: &str) -> ToolCall {
        let input = RawValue::from_string(input.to_owned()).unwrap();
        ToolCall { id: "1".into(), name: "t".into(), input, timeout: None, untrusted: Vec::new() }
    }

    fn result(content: &str, exit_code: i32) -> ToolResult {
        ToolResult {
            content: content.into(),
            is_error: exit_code != 0,
            exit_code: Some(exit_code),
            ..ToolResult::default()
        }
    }

    #[test]
    fn repeated_failure_is_detected_and_other_calls_are_not() {
        let mut repeats = Repeats::default();
        let (one, two) = (call(r#"{"a":1}"#), call(r#"{"a":2}"#));
        assert!(repeats.note(&one, &result("no", 1)).is_none());
        assert!(repeats.note(&two, &result("no", 1)).is_none());
        assert!(repeats.note(&one, &result("no", 1)).is_none(), "another call was between them");
        assert!(repeats.note(&call(r#"{ "a": 1 }"#), &result("no", 1)).unwrap().contains("2 times in a row"));
        assert!(repeats.note(&one, &result("no, at 12:01", 1)).unwrap().contains("3 times in a row"));
        assert!(repeats.note(&one, &result("no", 2)).is_none(), "another exit status");
        for _ in 0..5 {
            assert!(repeats.note(&one, &result("yes", 0)).is_none());
        }
        assert!(repeats.note(&one, &result("no", 2)).is_none(), "a good answer was between them");
    }
}
