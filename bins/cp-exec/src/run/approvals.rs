//! Approvals: recorded, and requested at the terminal. A step that requires one
//! waits for the answer while other steps continue.

use std::io::IsTerminal;
use std::thread::{Builder, JoinHandle};

use cp_common::program::approval::{self, Verdict, at_terminal};
use cp_common::wire::{Approval, Grant, How, Scope};
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;

use super::journal::Journal;
use crate::decision::StepRuling;
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::sandbox::ExecCall;

/// The approval that an error requires.
pub(crate) fn paused(error: &Error) -> Option<Approval> {
    (error.code() == Code::HumanRequired).then(|| Approval::of(error)).flatten()
}

/// The verdict of a person at the terminal. `None` without a terminal.
pub(crate) fn ask(approval: &Approval) -> Result<Option<Verdict>> {
    // An approval here is valid for one start. Longer approvals are offered by the run.
    at_terminal(&Approval { scopes: vec![Scope::Once], ..approval.clone() }, None)
}

/// Carries out a verdict: a grant is kept for the next start, and everything else is an error. A denial is recorded, and
/// the next request asks again. `unanswered` is the error without a decision.
pub(crate) fn settle(
    journal: &mut Journal,
    policy: &Policy,
    approval: &Approval,
    decided: Option<Verdict>,
    unanswered: impl FnOnce() -> Error,
) -> Result<()> {
    match decided {
        Some(Verdict::Granted(_)) => {
            let mut grant = Grant::new(How::Terminal, Scope::Once);
            grant.receipt = Some(journal.approval(Said::Granted(&grant), approval)?);
            approval::grant(&policy.cp_home, approval, &grant)
        }
        Some(Verdict::Denied(why)) => {
            journal.approval(Said::Denied { by: How::Terminal.grantor(), why: &why }, approval)?;
            approval::answered(&policy.cp_home, &approval.id)?;
            Err(refuse("approval", format!("not approved: {why}")))
        }
        Some(Verdict::Undecided(_)) | None => Err(unanswered()),
    }
}

/// The open questions of one run: each with the thread that gets its answer.
#[derive(Default)]
pub(super) struct Questions(Vec<(Question, JoinHandle<Result<Option<Verdict>>>)>);

/// A step that requires approval.
pub(super) struct Question {
    pub call: ExecCall,
    pub ruling: StepRuling,
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

    /// Asks at the terminal. Returns the question if there is none.
    pub(super) fn ask(&mut self, question: Question) -> Option<Question> {
        if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
            return Some(question);
        }
        let approval = question.approval.clone();
        match Builder::new().name("approval".to_owned()).spawn(move || ask(&approval)) {
            Ok(answer) => self.0.push((question, answer)),
            Err(_) => return Some(question),
        }
        None
    }

    /// The questions that were answered since the last call.
    pub(super) fn answered(&mut self) -> Vec<(Question, Result<Option<Verdict>>)> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (answered, open) = all.partition::<Vec<_>, _>(|(_, answer)| answer.is_finished());
        self.0 = open;
        answered.into_iter().map(|(question, answer)| (question, answer.join().unwrap_or(Ok(None)))).collect()
    }
}
