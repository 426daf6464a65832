//! Approvals: recorded, and requested from the approver of the policy or at the terminal. A step that requires one
//! waits for the answer while other steps continue.

use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use cp_common::program::approval::{self, Answer, Verdict, at_terminal};
use cp_common::wire::{Approval, Grant, How, Level, Scope};
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;

use super::journal::Journal;
use crate::decision::{Caller, StepRuling};
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::sandbox::ExecCall;

/// The approval that an error requires.
pub(crate) fn paused(error: &Error) -> Option<Approval> {
    (error.code() == Code::HumanRequired).then(|| Approval::of(error)).flatten()
}

/// The command of the policy's approver, for a decision of the owner.
fn approver<'a>(policy: &'a Policy, approval: &Approval) -> Option<&'a [String]> {
    let argv = &policy.loaded.settings.approval.owner_approver;
    (!argv.is_empty() && approval.level == Level::Owner).then_some(argv)
}

/// The verdict of the policy's approver, for a decision of the owner.
pub(crate) fn owner_approver(policy: &Policy, approval: &Approval) -> Result<Option<Verdict>> {
    approver(policy, approval).map(|argv| approval::ask(argv, approval, None)).transpose()
}

/// The verdict of a person at the terminal.
pub(crate) fn person(approval: &Approval) -> Result<Option<Verdict>> {
    Ok(at_terminal(approval, None)?.map(|answer| match answer {
        Answer::Yes(_) => Verdict::Granted,
        Answer::No => Verdict::Denied("a person denied it".to_owned()),
    }))
}

/// Records a grant and keeps it for the next start. Returns its token with the expiry.
pub(crate) fn grant(journal: &mut Journal, policy: &Policy, approval: &Approval, how: How) -> Result<(String, u64)> {
    let mut grant = Grant::new(how, Scope::Once);
    if how == How::OwnerApprover {
        grant.through = policy.loaded.settings.approval.owner_approver.first().cloned();
    }
    grant.receipt = Some(journal.approval(Said::Granted(&grant), approval)?);
    approval::grant(&policy.cp_home, approval, &grant)
}

/// Records a denial. The next request asks again.
pub(crate) fn deny(journal: &mut Journal, policy: &Policy, approval: &Approval, how: How, why: &str) -> Result<Error> {
    journal.approval(Said::Denied { by: how.grantor(), why }, approval)?;
    approval::answered(&policy.cp_home, &approval.id)?;
    Ok(refuse("approval", format!("not approved: {why}")))
}

/// The open questions of one run: each with the receiver of its answer.
#[derive(Default)]
pub(super) struct Questions(Vec<(Question, Receiver<Decided>)>);

/// A verdict and its origin.
type Decided = Result<(How, Verdict)>;

/// A step that requires approval.
pub(super) struct Question {
    pub call: ExecCall,
    pub ruling: StepRuling,
    pub caller: Caller,
    pub approval: Approval,
}

impl Questions {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Replaces the call of an open question if a signal restarted it. Returns a question that is not open.
    pub(super) fn restart(&mut self, asked: Question) -> Option<Question> {
        let is_same =
            |open: &Question| open.call.process == asked.call.process && open.ruling.argv == asked.ruling.argv;
        let Some((open, _)) = self.0.iter_mut().find(|(open, _)| is_same(open)) else { return Some(asked) };
        open.call = asked.call;
        None
    }

    /// Asks the approver of the policy, or the terminal if it is free. Returns the question if there is neither.
    pub(super) fn ask(&mut self, policy: &Policy, question: Question, may_use_terminal: bool) -> Option<Question> {
        match ask(policy, &question.approval, may_use_terminal) {
            Some(answer) => {
                self.0.push((question, answer));
                None
            }
            None => Some(question),
        }
    }

    /// The questions that were answered since the last call.
    pub(super) fn answered(&mut self) -> Vec<(Question, Decided)> {
        let mut answered = Vec::new();
        for (question, answer) in std::mem::take(&mut self.0) {
            match answer.try_recv() {
                Ok(given) => answered.push((question, given)),
                Err(TryRecvError::Empty) => self.0.push((question, answer)),
                Err(TryRecvError::Disconnected) => answered.push((question, Ok((How::Approver, nobody())))),
            }
        }
        answered
    }
}

fn nobody() -> Verdict {
    Verdict::Undecided("nobody answered".to_owned())
}

/// The receiver of the answer, if there is an approver or a terminal.
fn ask(policy: &Policy, approval: &Approval, may_use_terminal: bool) -> Option<Receiver<Decided>> {
    let approver = approver(policy, approval).map(<[String]>::to_vec);
    if approver.is_none() && !(may_use_terminal && std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return None;
    }
    let (sender, receiver) = channel();
    let approval = Approval { scopes: vec![Scope::Once], ..approval.clone() };
    let asked = std::thread::Builder::new().name("approval".to_owned()).spawn(move || {
        let answer = match approver {
            Some(argv) => approval::ask(&argv, &approval, None).map(|verdict| (How::OwnerApprover, verdict)),
            None => person(&approval).map(|verdict| (How::Terminal, verdict.unwrap_or_else(nobody))),
        };
        // The run may have ended in the meantime.
        drop(sender.send(answer));
    });
    asked.ok().map(|_| receiver)
}
