//! Questions to the approver of the policy or to the terminal. A step waits for its answer while other steps
//! continue.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use cp_common::Result;
use cp_common::program::approval::{self, Answer, Verdict, at_terminal};
use cp_common::wire::{Approval, How, Level, Scope};

use crate::decision::{Caller, StepRuling};
use crate::policy::Policy;
use crate::sandbox::ExecCall;

/// The open questions of one run.
#[derive(Default)]
pub(super) struct Questions(Vec<OpenQuestion>);

/// A step that requires approval.
pub(super) struct Question {
    pub call: ExecCall,
    pub ruling: StepRuling,
    pub caller: Caller,
    pub approval: Approval,
}

/// A question that was sent.
struct OpenQuestion {
    question: Question,
    answer: Receiver<Result<(How, Verdict)>>,
}

impl Questions {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the call of an open question if a signal restarted it. Returns other calls.
    pub(super) fn restart(&mut self, call: ExecCall, argv: &[String]) -> Option<ExecCall> {
        let is_same = |question: &Question| question.call.process == call.process && question.ruling.argv == argv;
        let Some(open) = self.0.iter_mut().find(|open| is_same(&open.question)) else { return Some(call) };
        open.question.call = call;
        None
    }

    /// Asks the approver of the policy, or the terminal. Returns the question if there is neither.
    pub(super) fn ask(&mut self, policy: &Policy, question: Question) -> Option<Question> {
        match ask(policy, &question.approval) {
            Some(answer) => {
                self.0.push(OpenQuestion { question, answer });
                None
            }
            None => Some(question),
        }
    }

    /// The questions that were answered since the last call.
    pub(super) fn answered(&mut self) -> Vec<(Question, Result<(How, Verdict)>)> {
        let mut answered = Vec::new();
        for OpenQuestion { question, answer } in std::mem::take(&mut self.0) {
            match answer.try_recv() {
                Ok(given) => answered.push((question, given)),
                Err(TryRecvError::Empty) => self.0.push(OpenQuestion { question, answer }),
                Err(TryRecvError::Disconnected) => {
                    let undecided = Verdict::Undecided("nobody answered".to_owned());
                    answered.push((question, Ok((How::Approver, undecided))));
                }
            }
        }
        answered
    }
}

/// The receiver of the answer, if there is an approver or a terminal.
fn ask(policy: &Policy, approval: &Approval) -> Option<Receiver<Result<(How, Verdict)>>> {
    let argv = policy.loaded.settings.approval.owner_approver.clone();
    let by_approver = !argv.is_empty() && approval.level == Level::Owner;
    let by_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !by_approver && !by_terminal {
        return None;
    }
    let (sender, receiver) = channel();
    let approval = Approval { scopes: vec![Scope::Once], ..approval.clone() };
    let asked = std::thread::Builder::new().name("approval".to_owned()).spawn(move || {
        let answer = if by_approver {
            approval::ask(&argv, &approval, None).map(|verdict| (How::OwnerApprover, verdict))
        } else {
            at_terminal(&approval, None).map(|answer| (How::Terminal, verdict_of(answer)))
        };
        // The run may have ended in the meantime.
        drop(sender.send(answer));
    });
    asked.ok().map(|_| receiver)
}

fn verdict_of(answer: Option<Answer>) -> Verdict {
    match answer {
        Some(Answer::Yes(_)) => Verdict::Granted,
        Some(Answer::No) => Verdict::Denied("a person denied it".to_owned()),
        None => Verdict::Undecided("nobody answered".to_owned()),
    }
}
