//! Where a run stands: the conversation so far and the calls that wait. It is made of the run's steps and of nothing else, so a
//! resume stands exactly where the run stopped.

use cp_common::wire::{Approval, Block, Content, Grant, Message, Prompt, Scope, ToolCall, ToolResult, Turn};
use cp_common::{Code, Error, Result};

use crate::state::files::RunFiles;
use crate::state::plan::{Limits, Plan};
use crate::state::step::{Decision, Step};
use crate::state::step_log;
use crate::state::tally::{Spent, Tally};

/// A call of the last message.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) asked: ToolCall,
    /// It was dispatched once.
    pub(crate) started: bool,
    /// The run of the agent that works on it.
    pub(crate) agent: Option<String>,
    /// What that agent used.
    pub(crate) spent: Option<Spent>,
    /// What was last asked about it.
    pub(crate) approval: Option<Box<Approval>>,
    /// Whether that waits for an answer.
    pub(crate) is_asked: bool,
    /// Whether it was approved or denied. A start uses a yes up.
    pub(crate) decision: Option<Decision>,
    pub(crate) result: Option<ToolResult>,
}

/// A record that was written down and perhaps not printed.
#[derive(Clone, Debug)]
pub(crate) enum Unshown {
    Message(Box<Message>),
    Result(Box<ToolResult>),
}

impl Call {
    fn of(asked: &ToolCall) -> Self {
        Self {
            asked: asked.clone(),
            started: false,
            agent: None,
            spent: None,
            approval: None,
            is_asked: false,
            decision: None,
            result: None,
        }
    }
}

/// The state of a run.
#[derive(Clone, Debug)]
pub(crate) struct Conversation {
    /// What the model is asked next: all turns so far. Its history is those that some message was, or has had as its input.
    pub(crate) prompt: Prompt,
    pub(crate) limits: Limits,
    pub(crate) tally: Tally,
    /// The calls of the last message, until all have results.
    pub(crate) calls: Vec<Call>,
    /// The results that the model has not seen yet.
    pub(crate) returned: Vec<ToolResult>,
    /// The last message, if it called no tool.
    pub(crate) answer: Option<Message>,
    /// What a person allowed for the whole run: a rule and a program.
    always: Vec<(String, Option<String>, Grant)>,
    /// What was written down and perhaps not printed, oldest first.
    pub(crate) unshown: Vec<Unshown>,
}

impl Conversation {
    /// A conversation that has not begun.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self {
            prompt: plan.prompt.clone(),
            limits: plan.limits,
            tally: Tally::default(),
            calls: Vec::new(),
            returned: Vec::new(),
            answer: None,
            always: Vec::new(),
            unshown: Vec::new(),
        }
    }

    /// The conversation that these steps lead to, with its plan.
    pub(crate) fn of_steps(steps: Vec<Step>) -> Result<(Plan, Self)> {
        let mut steps = steps.into_iter();
        let Some(Step::Plan(plan)) = steps.next() else {
            return Err(Error::new(Code::Integrity, "the run's state does not begin with its plan"));
        };
        let mut conversation = Self::new(&plan);
        for step in steps {
            conversation.take(step)?;
        }
        Ok((*plan, conversation))
    }

    /// Where a stored run stands, whoever runs it.
    pub(crate) fn stored(files: &RunFiles) -> Result<Self> {
        Self::of_steps(step_log::peek(files)?).map(|(_, conversation)| conversation)
    }

    /// Goes one step on.
    pub(crate) fn take(&mut self, step: Step) -> Result<()> {
        match step {
            Step::Plan(_) => return Err(Error::new(Code::Integrity, "the run's state has two plans")),
            Step::Owner(_) | Step::Deltas(_) => {}
            Step::Limits(limits) => self.limits = limits,
            Step::Message(message) => self.answered(message),
            Step::Started(at) => {
                let call = self.call(at)?;
                call.started = true;
                call.is_asked = false;
                call.decision.take_if(|decision| matches!(decision, Decision::Approved(_)));
            }
            Step::Delegated(at, run) => self.call(at)?.agent = Some(run),
            Step::Spent(at, spent) => self.call(at)?.spent = Some(spent),
            Step::Withdrawn(at) => self.call(at)?.started = false,
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
                    && self.covers(&approval).is_none()
                {
                    self.always.push((approval.shown.rule, approval.binds.program, *grant));
                }
            }
            Step::Shown => self.unshown.clear(),
            Step::Finished(at, result) => {
                self.tally.returned(result.is_error);
                let call = self.call(at)?;
                call.result = Some((*result).clone());
                if let Some(spent) = call.spent {
                    self.tally.delegated(&spent);
                }
                self.unshown.push(Unshown::Result(result));
                self.settle();
            }
        }
        Ok(())
    }

    /// The yes for the whole run that this is covered by.
    pub(crate) fn covers(&self, approval: &Approval) -> Option<&Grant> {
        let covers = |rule: &String, program: &Option<String>| {
            *rule == approval.shown.rule && *program == approval.binds.program && approval.scopes.contains(&Scope::Run)
        };
        self.always.iter().find(|(rule, program, _)| covers(rule, program)).map(|(_, _, grant)| grant)
    }

    /// The turns that the next message answers and no message has had as its input.
    pub(crate) fn news(&self) -> Vec<Turn> {
        self.prompt.input().to_vec()
    }

    fn call(&mut self, at: usize) -> Result<&mut Call> {
        self.calls
            .get_mut(at)
            .ok_or_else(|| Error::new(Code::Integrity, "the run's state names a call that is not there"))
    }

    /// A run whose answer was there when it stopped prints it on resume, even if it was printed before.
    pub(crate) fn show_answer_again(&mut self) {
        if let (Some(message), true) = (&self.answer, self.unshown.is_empty()) {
            self.unshown.push(Unshown::Message(Box::new(message.clone())));
        }
    }

    fn answered(&mut self, message: Box<Message>) {
        self.tally.answered(&message.usage);
        self.prompt.messages.push(Turn { role: "assistant".to_owned(), content: message.content.clone() });
        self.prompt.history = self.prompt.messages.len();
        self.calls = message.tool_calls.iter().map(Call::of).collect();
        self.answer = self.calls.is_empty().then(|| (*message).clone());
        self.unshown.push(Unshown::Message(message));
    }

    /// When all calls have results, they are the user's next turn.
    fn settle(&mut self) {
        if self.calls.iter().any(|call| call.result.is_none()) {
            return;
        }
        self.returned = self.calls.drain(..).filter_map(|call| call.result).collect();
        let blocks = self
            .returned
            .iter()
            .map(|result| Block::tool_result(&result.id, &result.content, result.is_error))
            .collect();
        self.prompt.messages.push(Turn { role: "user".to_owned(), content: Content::Blocks(blocks) });
    }
}

/// A message whose content holds its calls, as a provider must get it back.
pub(crate) fn with_calls(mut message: Message) -> Message {
    let mut blocks = message.content.blocks();
    let holds_call = |block: &Block| block.view().is_ok_and(|view| view.kind == "tool_use");
    if !message.tool_calls.is_empty() && !blocks.iter().any(holds_call) {
        blocks.extend(message.tool_calls.iter().map(|call| Block::tool_use(&call.id, &call.name, &call.input)));
        message.content = Content::Blocks(blocks);
    }
    message
}
