//! Approvals: recorded, and requested from the approver of the policy or at the terminal. A step that requires one
//! waits for the answer while other steps continue.

use std::io::IsTerminal;
use std::thread::{Builder, JoinHandle};

use cp_common::program::approval::{self, Verdict, at_terminal};
use cp_common::wire::{Approval, Grant, How, Level, Scope};
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;

use super::journal::Journal;
use crate::decision::StepRuling;
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::sandbox::ExecCall;

/// A verdict and its origin.
type Decided = (How, Verdict);

/// The approval that an error requires.
pub(crate) fn paused(error: &Error) -> Option<Approval> {
    (error.code() == Code::HumanRequired).then(|| Approval::of(error)).flatten()
}

/// The command of the policy's approver, for a decision of the owner.
pub(crate) fn approver(policy: &Policy, approval: &Approval) -> Option<Vec<String>> {
    let argv = &policy.loaded.settings.approval.owner_approver;
    (!argv.is_empty() && approval.level == Level::Owner).then(|| argv.clone())
}

/// The verdict of the approver, or else of a person at the terminal. `None` without a terminal.
pub(crate) fn ask(approver: Option<Vec<String>>, approval: &Approval) -> Result<Option<Decided>> {
    if let Some(argv) = approver {
        return approval::ask(&argv, approval, None).map(|verdict| Some((How::OwnerApprover, verdict)));
    }
    // An approval here is valid for one start. Longer approvals are offered by the run.
    let once = Approval { scopes: vec![Scope::Once], ..approval.clone() };
    Ok(at_terminal(&once, None)?.map(|verdict| (How::Terminal, verdict)))
}

/// Carries out a verdict: a grant is kept for the next start, and everything else is an error. A denial is recorded, and
/// the next request asks again. `unanswered` is the error without a decision.
pub(crate) fn settle(
    journal: &mut Journal,
    policy: &Policy,
    approval: &Approval,
    decided: Option<Decided>,
    unanswered: impl FnOnce() -> Error,
) -> Result<()> {
    match decided {
        Some((how, Verdict::Granted(_))) => grant(journal, policy, approval, how),
        Some((how, Verdict::Denied(why))) => {
            journal.approval(Said::Denied { by: how.grantor(), why: &why }, approval)?;
            approval::answered(&policy.cp_home, &approval.id)?;
            Err(refuse("approval", format!("not approved: {why}")))
        }
        Some((_, Verdict::Undecided(why))) => Err(unanswered().with("approver", why)),
        None => Err(unanswered()),
    }
}

/// Records a grant and keeps it for the next start.
fn grant(journal: &mut Journal, policy: &Policy, approval: &Approval, how: How) -> Result<()> {
    let mut grant = Grant::new(how, Scope::Once);
    if how == How::OwnerApprover {
        grant.through = policy.loaded.settings.approval.owner_approver.first().cloned();
    }
    grant.receipt = Some(journal.approval(Said::Granted(&grant), approval)?);
    approval::grant(&policy.cp_home, approval, &grant)
}

/// The open questions of one run: each with the thread that gets its answer.
#[derive(Default)]
pub(super) struct Questions(Vec<(Question, JoinHandle<Result<Option<Decided>>>)>);

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

    /// Asks the approver of the policy, or the terminal if it is free. Returns the question if there is neither.
    pub(super) fn ask(&mut self, policy: &Policy, question: Question, may_use_terminal: bool) -> Option<Question> {
        let approver = approver(policy, &question.approval);
        let is_terminal = || std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if approver.is_none() && !(may_use_terminal && is_terminal()) {
            return Some(question);
        }
        let approval = question.approval.clone();
        match Builder::new().name("approval".to_owned()).spawn(move || ask(approver, &approval)) {
            Ok(answer) => self.0.push((question, answer)),
            Err(_) => return Some(question),
        }
        None
    }

    /// The questions that were answered since the last call.
    pub(super) fn answered(&mut self) -> Vec<(Question, Result<Option<Decided>>)> {
        let all = std::mem::take(&mut self.0).into_iter();
        let (answered, open) = all.partition::<Vec<_>, _>(|(_, answer)| answer.is_finished());
        self.0 = open;
        answered.into_iter().map(|(question, answer)| (question, answer.join().unwrap_or(Ok(None)))).collect()
    }
}
