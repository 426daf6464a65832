//! Pending approvals: recorded, and sent to the approver of the policy.

use cp_common::program::approval::{self, Verdict};
use cp_common::wire::{Approval, Grant, How, Level, Scope};
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;

use crate::policy::Policy;
use crate::refusal::refuse;
use crate::run::Engine;

/// The approval that an error requires.
pub(crate) fn paused(error: &Error) -> Option<Approval> {
    (error.code() == Code::HumanRequired).then(|| Approval::of(error)).flatten()
}

/// Repeats an attempt as long as the approver of the policy grants what it requires.
pub(crate) fn until_answered<T>(engine: &mut Engine, mut attempt: impl FnMut(&mut Engine) -> Result<T>) -> Result<T> {
    loop {
        let error = match attempt(engine) {
            Err(error) if !error.is_fatal() => error,
            outcome => return outcome,
        };
        let Some(approval) = paused(&error) else { return Err(error) };
        engine.journal.approval(Said::Asked, &approval)?;
        match owner_approver(&engine.policy, &approval)? {
            Some(Verdict::Granted) => drop(granted(engine, &approval, How::OwnerApprover)?),
            Some(Verdict::Denied(why)) => return Err(denied(engine, &approval, How::OwnerApprover, &why)?),
            Some(Verdict::Undecided(why)) => return Err(error.with("approver", why)),
            None => return Err(error),
        }
    }
}

/// The verdict of the policy's approver, for a decision of the owner.
pub(crate) fn owner_approver(policy: &Policy, approval: &Approval) -> Result<Option<Verdict>> {
    let argv = &policy.loaded.settings.approval.owner_approver;
    if argv.is_empty() || approval.level != Level::Owner {
        return Ok(None);
    }
    approval::ask(argv, approval, None).map(Some)
}

/// Records a grant and keeps it for the next start. Returns its token with the expiry.
pub(crate) fn granted(engine: &mut Engine, approval: &Approval, how: How) -> Result<(String, u64)> {
    let mut grant = Grant { by: name(how).to_owned(), how, scope: Scope::Once, receipt: None };
    grant.receipt = Some(engine.journal.approval(Said::Granted(&grant), approval)?);
    approval::grant(&engine.policy.cp_home, approval, &grant)
}

/// Records a denial. The next request asks again.
pub(crate) fn denied(engine: &mut Engine, approval: &Approval, how: How, why: &str) -> Result<Error> {
    engine.journal.approval(Said::Denied { by: name(how), why }, approval)?;
    approval::answered(&engine.policy.cp_home, &approval.id)?;
    Ok(refuse("approval", format!("not approved: {why}")))
}

const fn name(how: How) -> &'static str {
    match how {
        How::Terminal | How::Resume => "person",
        How::OwnerApprover => "owner_approver",
        How::Approver => "approver",
    }
}
