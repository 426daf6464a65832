//! Confirmations. A token proves that the same request was previewed before; an approval proves that an authorized
//! person agreed to it.

use std::path::Path;

use cp_common::keys::Key;
use cp_common::program::approval::{self, Spent};
use cp_common::wire::{Action, Approval, AskedBy, Binds, Level, Scope, Shown};
use cp_common::{Code, Error, Result};
use serde::Serialize;

use super::{Decision, Ruling};
use crate::digest::{sha256, tag_all};
use crate::policy::Policy;
use crate::rules::Finding;

/// The hint that describes how to get a token for a command.
pub(crate) const CONFIRM_HINT: &str = "run it with --dry-run for a token, then again with --confirm TOKEN";

/// The approval that a ruling requires. It is bound to everything that determines how the command runs.
fn approval_of_ruling(policy: &Policy, ruling: &Ruling) -> Result<Approval> {
    let (plan, decision) = (&ruling.plan, &ruling.decision);
    let Decision { command, cwd, finding, timeout, pinned, .. } = decision;
    let (argv, stdin) = (&command.argv, decision.stdin());
    // Hashes of the values, because a pending approval is stored in a file.
    let env = tag_all(Key::of_home(&policy.cp_home).ok().as_ref(), &plan.env);
    let uid = rustix::process::getuid().as_raw();
    let limits = (timeout.as_millis(), plan.limits, plan.profile, &plan.network);
    let request = ("run", argv, &plan.cwd.path, env, stdin, limits, uid);
    let shown = shown(argv, command.env.keys(), cwd, finding);
    new_approval(policy, Action::Run, finding.is_final, shown, &request, Some(pinned.sha256.clone()))
}

fn shown<'a>(argv: &[String], variables: impl Iterator<Item = &'a String>, cwd: &Path, finding: &Finding) -> Shown {
    Shown {
        argv: argv.to_vec(),
        variables: variables.cloned().collect(),
        cwd: Some(cwd.display().to_string()),
        risk: "high".to_owned(),
        rule: finding.rule.clone(),
        why: finding.reason.clone(),
        ..Shown::default()
    }
}

/// The approval that a program requires when it is started.
pub(super) fn approval_of_step(
    policy: &Policy,
    argv: &[String],
    cwd: &Path,
    variables: &[(String, String)],
    program: Option<&str>,
    finding: &Finding,
) -> Result<Approval> {
    let shown = shown(argv, variables.iter().map(|(name, _)| name), cwd, finding);
    let variables = tag_all(Key::of_home(&policy.cp_home).ok().as_ref(), variables);
    let request = ("step", argv, cwd, variables, rustix::process::getuid().as_raw());
    new_approval(policy, Action::Run, finding.is_final, shown, &request, program.map(str::to_owned))
}

/// The approval for a tool of another agent that the policy lists.
pub(crate) fn approval_of_host_call(
    policy: &Policy,
    tool: &str,
    input: &serde_json::Value,
    cwd: &Path,
) -> Result<Approval> {
    let shown = Shown {
        tool: Some(tool.to_owned()),
        input: Some(input.clone()),
        cwd: Some(cwd.display().to_string()),
        risk: "medium".to_owned(),
        rule: "tools.approve".to_owned(),
        why: format!("tools.approve of the policy lists `{tool}`"),
        ..Shown::default()
    };
    new_approval(policy, Action::Tool, true, shown, &("hosted", tool, input, cwd), None)
}

/// Creates an approval of a request, bound to the hash of its program. An approval of a deletion or a publication is valid
/// for one start only.
fn new_approval(
    policy: &Policy,
    action: Action,
    is_final: bool,
    shown: Shown,
    request: &impl Serialize,
    program: Option<String>,
) -> Result<Approval> {
    let request = serde_json::to_vec(request).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    let binds = Binds { request: sha256(&request), program, policy: Some(policy.sha256().to_owned()) };
    let actor = &policy.actor;
    let asked_by = AskedBy {
        program: "cp-exec".to_owned(),
        agent: actor.agent.clone(),
        run: actor.run.clone(),
        session: actor.session.clone(),
        call_id: actor.call.clone(),
    };
    let level = policy.exec().confirm;
    let for_run = actor.run.is_some() && level == Level::Agent && !is_final;
    let scopes: &[Scope] = if for_run { &[Scope::Once, Scope::Run] } else { &[Scope::Once] };
    approval::new(asked_by, action, level, scopes, shown, binds)
}

/// Confirms a ruling, if it needs confirmation. A token is redeemed before the command starts. It is redeemed even if
/// none is needed, because then it was issued for another request. `by_person`: only a person confirms it.
pub(crate) fn confirm_ruling(policy: &Policy, ruling: &mut Ruling, token: Option<&str>, by_person: bool) -> Result<()> {
    if ruling.decision.question().is_none() && token.is_none() {
        return Ok(());
    }
    let asked = approval_of_ruling(policy, ruling)?;
    if let Some(token) = token {
        ruling.confirmed = Some(approval::redeem(&policy.cp_home, token, &asked)?);
        return Ok(());
    }
    // A model cannot request a token, so a person is asked, as at a terminal.
    if policy.exec().confirm == Level::Agent && policy.actor.call.is_none() && !by_person {
        let Shown { rule, why, .. } = asked.shown;
        return Err(Error::new(Code::ConfirmationRequired, why.clone())
            .with("rule", rule)
            .with("reason", why)
            .hint(CONFIRM_HINT));
    }
    let spent = spend(policy, &asked)?;
    ruling.confirmed = Some(spent.confirmed.clone());
    ruling.approved = Some(spent);
    Ok(())
}

/// Spends the approval that was granted for this request. Without one, returns the error that requires it.
pub(crate) fn spend(policy: &Policy, approval: &Approval) -> Result<Spent> {
    match approval::take(&policy.cp_home, approval)? {
        Some(spent) => Ok(spent),
        None => Err(approval::pause(&policy.cp_home, approval)?),
    }
}

/// Issues a token for a ruling, with its expiry. Approvals of the owner are not issued here.
pub(crate) fn token(policy: &Policy, ruling: &Ruling) -> Result<Option<(String, String)>> {
    if ruling.decision.question().is_none() || policy.exec().confirm == Level::Owner {
        return Ok(None);
    }
    approval::issue(&policy.cp_home, &approval_of_ruling(policy, ruling)?).map(Some)
}
