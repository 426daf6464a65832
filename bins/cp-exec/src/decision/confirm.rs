//! What needs to be confirmed: a token proves that exactly this was shown before; an approval, that somebody who may said yes to it.

use std::collections::BTreeSet;
use std::path::Path;

use cp_common::program::approval::{self, Spent};
use cp_common::program::confirm::{self, issue, redeem};
use cp_common::wire::{Action, Approval, AskedBy, Binds, Level, Scope, Shown, ShownPart};
use cp_common::{Code, Error, Result, clock};
use cp_hosts::difference;
use serde::Serialize;

use super::decide::decide;
use super::hashes::Hashes;
use super::line::{Line, Part, decide_line};
use super::ruling::Ruling;
use crate::digest::sha256;
use crate::keyed::Keyed;
use crate::policy::{Confirm, Policy};
use crate::request::{Command, line_of};
use crate::rules::hash_of_lost_files;
use crate::sandbox::plan::{Network, Profile};

/// How a command gets its token.
pub(crate) const HOW: &str = "run it with --dry-run for a token, then again with --confirm TOKEN";

/// What a yes is bound to beside the program and the policy: change any of it, and it confirms nothing.
#[derive(Serialize)]
struct Request<'a, What> {
    /// The words of a command and its limits, or the steps of a plan and its parts.
    what: What,
    cwd: &'a Path,
    /// Hashes of the values: what waits for approval is kept in a file.
    env: serde_json::Map<String, serde_json::Value>,
    timeout_ms: u128,
    profile: Profile,
    network: Network,
    stdin: Option<&'a str>,
    uid: u32,
}

/// Everything a confirmation of a ruling is bound to.
pub(crate) fn binding(policy: &Policy, ruling: &Ruling) -> Result<Binds> {
    let plan = &ruling.plan;
    let request = Request {
        what: (&ruling.argv, plan.limits),
        cwd: &plan.cwd.path,
        env: Keyed::of_home(&policy.cp_home).of_all(&plan.env),
        timeout_ms: ruling.timeout.as_millis(),
        profile: plan.profile,
        network: plan.network,
        stdin: ruling.stdin.as_deref(),
        uid: rustix::process::getuid().as_raw(),
    };
    let lost = ruling.target.as_ref().map(|_| hash_of_lost_files(policy, &ruling.argv, &plan.cwd.path)).transpose()?;
    binds(policy, &request, Some(ruling.pinned.sha256.clone()), lost)
}

fn binds(policy: &Policy, request: &impl Serialize, program: Option<String>, target: Option<String>) -> Result<Binds> {
    let request = serde_json::to_vec(request).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    Ok(Binds { request: sha256(&request), program, target, policy: Some(policy.sha256().to_owned()) })
}

/// The record of a command or plan that needs a yes.
pub(crate) fn of_command(policy: &Policy, hashes: &mut Hashes, command: &Command) -> Result<Approval> {
    match command.stages.first().filter(|_| command.steps.is_empty()) {
        None => of_line(policy, command, &decide_line(policy, hashes, command)?),
        Some(argv) => {
            let ruling = decide(policy, hashes, command, argv)?;
            of_ruling(policy, &ruling, ruling.confirm.as_deref().unwrap_or_default())
        }
    }
}

/// The record of a ruling that needs a yes.
fn of_ruling(policy: &Policy, ruling: &Ruling, why: &str) -> Result<Approval> {
    let shown = Shown {
        argv: ruling.argv.clone(),
        variables: ruling.variables.clone(),
        cwd: Some(ruling.plan.cwd.path.display().to_string()),
        risk: ruling.risk.name().to_owned(),
        rule: ruling.rule.clone(),
        why: why.to_owned(),
        ..Shown::default()
    };
    asked(policy, Action::Run, ruling.is_final, shown, binding(policy, ruling)?)
}

/// Of each part of a plan the words, the directory, the program, and what is asked about it.
type BoundPart<'a> = (&'a [String], &'a Path, Option<&'a str>, Vec<&'a str>);

fn bound_part(part: &Part) -> BoundPart<'_> {
    let asks = part.asks.iter().map(|ask| ask.reason.as_str()).collect();
    (&part.argv, &part.directory.real, part.program(), asks)
}

/// The record of a plan that needs a yes: one for all of it.
fn of_line(policy: &Policy, command: &Command, line: &Line) -> Result<Approval> {
    let env: Vec<_> = command.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let parts: Vec<BoundPart<'_>> = line.parts.iter().map(bound_part).collect();
    let whole = Request {
        what: (&command.steps, parts),
        cwd: &line.directory.real,
        env: Keyed::of_home(&policy.cp_home).of_all(&env),
        timeout_ms: line.timeout.as_millis(),
        profile: policy.exec().profile,
        network: policy.exec().network,
        stdin: line.stdin.as_deref(),
        uid: rustix::process::getuid().as_raw(),
    };
    let parts = line.asks().map(|(at, ask)| ShownPart {
        argv: line.parts[at].argv.clone(),
        cwd: line.parts[at].directory.real.display().to_string(),
        rule: ask.rule.clone(),
        why: ask.reason.clone(),
    });
    let parts: Vec<ShownPart> = parts.collect();
    let variables = line.parts.iter().flat_map(|part| part.env.keys().cloned());
    let shown = Shown {
        line: Some(line_of(&command.steps)),
        variables: variables.collect::<BTreeSet<_>>().into_iter().collect(),
        cwd: Some(line.directory.real.display().to_string()),
        risk: line.risk().name().to_owned(),
        rule: parts.first().map(|part| part.rule.clone()).unwrap_or_default(),
        why: parts.iter().map(|part| part.why.as_str()).collect::<Vec<_>>().join("; "),
        parts,
        ..Shown::default()
    };
    let programs: Vec<&str> = line.parts.iter().filter_map(Part::program).collect();
    let program = (!programs.is_empty()).then(|| sha256(programs.join("\n").as_bytes()));
    // No other plan is like it: a yes is for once.
    asked(policy, Action::Run, true, shown, binds(policy, &whole, program, None)?)
}

/// The record of a change to a file that is there. `before` is what it holds.
pub(crate) fn of_change(policy: &Policy, action: Action, path: &Path, before: &[u8], after: &[u8]) -> Result<Approval> {
    let name = path.display().to_string();
    let request = (action, &name, sha256(after));
    let shown = Shown {
        diff: Some(difference(&name, before, after)),
        risk: "medium".to_owned(),
        rule: "overwrite".to_owned(),
        why: format!("{name} would be overwritten"),
        path: Some(name.clone()),
        ..Shown::default()
    };
    asked(policy, action, false, shown, binds(policy, &request, None, Some(sha256(before)))?)
}

/// The record of a tool of another agent that the policy lists.
pub(crate) fn of_hosted(policy: &Policy, tool: &str, input: &serde_json::Value, cwd: &Path) -> Result<Approval> {
    let shown = Shown {
        tool: Some(tool.to_owned()),
        input: Some(input.clone()),
        cwd: Some(cwd.display().to_string()),
        risk: "medium".to_owned(),
        rule: "tools.approve".to_owned(),
        why: format!("tools.approve of the policy lists `{tool}`"),
        ..Shown::default()
    };
    let binds = binds(policy, &("hosted", tool, input, cwd), None, None)?;
    asked(policy, Action::Tool, true, shown, binds)
}

/// A record of what this program asks. A yes to what is final, a deletion or a publication, is good for once only.
fn asked(policy: &Policy, action: Action, is_final: bool, shown: Shown, binds: Binds) -> Result<Approval> {
    let actor = &policy.actor;
    let asked_by = AskedBy {
        program: "cp-exec".to_owned(),
        agent: actor.agent.clone(),
        run: actor.run.clone(),
        session: actor.session.clone(),
        call_id: actor.call.clone(),
    };
    let level = match policy.exec().confirm {
        Confirm::Agent => Level::Agent,
        Confirm::Owner => Level::Owner,
    };
    let for_run = actor.run.is_some() && level == Level::Agent && !is_final;
    let scopes: &[Scope] = if for_run { &[Scope::Once, Scope::Run] } else { &[Scope::Once] };
    approval::new(asked_by, action, level, scopes, shown, binds)
}

/// What a request brings to be confirmed with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Consent<'a> {
    /// The token of its own, if it has one.
    Token(Option<&'a str>),
    /// It is one of a set, whose token is spent.
    Set(&'a str),
}

/// Lets a ruling go on: it needs no confirmation, or has it. The token is spent before anything starts. One that is given where none
/// is needed was made for something else, and that is said.
pub(crate) fn settle(policy: &Policy, ruling: &mut Ruling, consent: Consent<'_>) -> Result<()> {
    if needs_none(ruling.confirm.is_some(), consent) {
        return Ok(());
    }
    let asked = of_ruling(policy, ruling, ruling.confirm.as_deref().unwrap_or_default())?;
    (ruling.confirmed, ruling.approved) = given(policy, ruling.level, &asked, consent)?;
    Ok(())
}

/// The same for a plan.
pub(crate) fn settle_line(policy: &Policy, command: &Command, line: &mut Line, consent: Consent<'_>) -> Result<()> {
    if needs_none(line.asks().next().is_some(), consent) {
        return Ok(());
    }
    (line.confirmed, line.approved) = given(policy, policy.exec().confirm, &of_line(policy, command, line)?, consent)?;
    Ok(())
}

fn needs_none(asks: bool, consent: Consent<'_>) -> bool {
    !asks && !matches!(consent, Consent::Token(Some(_)))
}

/// The yes to exactly this: the hash of its token, and the yes itself where it is spent now.
fn given(
    policy: &Policy,
    level: Confirm,
    asked: &Approval,
    consent: Consent<'_>,
) -> Result<(Option<String>, Option<Spent>)> {
    let home = &policy.cp_home;
    match (level, consent) {
        (Confirm::Agent, Consent::Set(token)) => Ok((Some(confirm::fingerprint(home, token)?), None)),
        (_, Consent::Token(Some(token))) => {
            redeem(home, token, &approval::bound(asked)?)?;
            Ok((Some(confirm::fingerprint(home, token)?), None))
        }
        (Confirm::Agent | Confirm::Owner, Consent::Token(None) | Consent::Set(_)) => {
            // Who confirms by token asks for it; a model cannot, and a person is asked for it.
            if level == Confirm::Agent && policy.actor.call.is_none() {
                let Shown { rule, why, .. } = &asked.shown;
                return Err(Error::new(Code::ConfirmationRequired, why.clone())
                    .with("rule", rule.clone())
                    .with("reason", why.clone())
                    .hint(HOW));
            }
            let spent = spend(policy, asked)?;
            Ok((Some(spent.token.clone()), Some(spent)))
        }
    }
}

/// The yes that was given for exactly this, spent now. Without one, the stop until it is answered.
pub(crate) fn spend(policy: &Policy, approval: &Approval) -> Result<Spent> {
    match approval::take(&policy.cp_home, approval)? {
        Some(spent) => Ok(spent),
        None => Err(approval::pause(&policy.cp_home, approval)?),
    }
}

/// A token for exactly this, with its expiry. An owner's approval is not given this way.
pub(crate) fn token(policy: &Policy, ruling: &Ruling) -> Result<Option<(String, String)>> {
    match &ruling.confirm {
        None => Ok(None),
        Some(_) => token_for(policy, &of_ruling(policy, ruling, "")?),
    }
}

/// The same for a plan.
pub(crate) fn token_of_line(policy: &Policy, command: &Command, line: &Line) -> Result<Option<(String, String)>> {
    match line.asks().next() {
        None => Ok(None),
        Some(_) => token_for(policy, &of_line(policy, command, line)?),
    }
}

/// What a yes to a plan is bound to.
pub(crate) fn binding_of_line(policy: &Policy, command: &Command, line: &Line) -> Result<Binds> {
    of_line(policy, command, line).map(|approval| approval.binds)
}

/// The same for what was asked.
pub(crate) fn token_for(policy: &Policy, asked: &Approval) -> Result<Option<(String, String)>> {
    if policy.exec().confirm == Confirm::Owner {
        return Ok(None);
    }
    let (token, expires) = issue(&policy.cp_home, &approval::bound(asked)?)?;
    Ok(Some((token, clock::from_unix_seconds(expires))))
}
