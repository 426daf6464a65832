//! What needs to be confirmed: a token proves that exactly this was shown before; an owner's approval, that a person
//! agreed to it.

use std::path::{Path, PathBuf};

use cp_common::program::confirm::{self, Bound, issue, redeem};
use cp_common::{Code, Error, Result, clock};
use serde::{Deserialize, Serialize};

use super::ruling::Ruling;
use crate::digest::sha256;
use crate::keyed::Keyed;
use crate::policy::{Confirm, Policy};
use crate::sandbox::plan::{Limits, Network, Profile};

/// How a command gets its token.
pub(crate) const HOW: &str = "run it with --dry-run for a token, then again with --confirm TOKEN";

/// What a token is bound to: change any of it, and it confirms nothing.
#[derive(Serialize)]
struct Binding<'a> {
    level: &'static str,
    argv: &'a [String],
    exe: &'a str,
    cwd: &'a Path,
    /// Hashes of the values: what waits for approval is kept in a file.
    env: serde_json::Map<String, serde_json::Value>,
    timeout_ms: u128,
    profile: Profile,
    network: Network,
    limits: Limits,
    stdin: Option<&'a str>,
    policy: &'a str,
    uid: u32,
}

/// Everything a confirmation of a ruling is bound to, as bytes.
pub(crate) fn binding(policy: &Policy, ruling: &Ruling) -> Result<Vec<u8>> {
    let plan = &ruling.plan;
    let level = match ruling.level {
        Confirm::Agent => "agent",
        Confirm::Owner => "owner",
    };
    let bound = Binding {
        level,
        argv: &ruling.argv,
        exe: &ruling.pinned.sha256,
        cwd: &plan.cwd.path,
        env: Keyed::of_home(&policy.cp_home).of_all(&plan.env),
        timeout_ms: ruling.timeout.as_millis(),
        profile: plan.profile,
        network: plan.network,
        limits: plan.limits,
        stdin: ruling.stdin.as_deref(),
        policy: policy.sha256(),
        uid: rustix::process::getuid().as_raw(),
    };
    serde_json::to_vec(&bound).map_err(|e| Error::new(Code::Unknown, e.to_string()))
}

/// What a token for a ruling is good for: the words and their place as they were asked, and all that they came to.
fn bound(policy: &Policy, ruling: &Ruling) -> Result<Bound> {
    let binding = binding(policy, ruling)?;
    bound_to(&ruling.argv, &ruling.plan.cwd.path.display().to_string(), &String::from_utf8_lossy(&binding))
}

/// The same, from what is kept while a command waits for a person.
pub(crate) fn bound_to(argv: &[String], cwd: &str, binding: &str) -> Result<Bound> {
    Bound::new(&("cp-exec", "run", argv, cwd), &binding)
}

/// A command that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pending {
    /// Its id: the hash of what would run.
    pub id: String,
    /// The words.
    pub argv: Vec<String>,
    /// The variables that the request sets. Their values are in nothing that is kept.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Where it would run.
    pub cwd: String,
    /// The hash of the file that would be executed.
    pub sha256: String,
    /// Why it waits.
    pub reason: String,
    /// Who asked.
    pub agent: String,
    /// When.
    pub asked_at: String,
    /// What the approval is bound to.
    pub binding: String,
}

/// Where commands wait.
pub(crate) fn pending_directory(home: &Path) -> PathBuf {
    home.join("state/approvals")
}

/// The file that says that its owner approved a command, until it runs: an [`Approved`], never the token.
pub(crate) fn approved_file(home: &Path, id: &str) -> PathBuf {
    pending_directory(home).join(format!("{id}.token"))
}

/// That a command was approved.
#[derive(Serialize, Deserialize)]
pub(crate) struct Approved {
    /// When the token expires, in seconds since 1970.
    pub expires: u64,
    /// The keyed hash of the token.
    pub token: String,
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
    let needless = String::new();
    let reason = match (&ruling.confirm, consent) {
        (Some(reason), _) => reason,
        (None, Consent::Token(Some(_))) => &needless,
        (None, Consent::Token(None) | Consent::Set(_)) => return Ok(()),
    };
    let token = match (ruling.level, consent) {
        (Confirm::Agent, Consent::Set(token)) => token.to_owned(),
        (_, Consent::Token(Some(token))) => {
            redeem(&policy.cp_home, token, &bound(policy, ruling)?)?;
            token.to_owned()
        }
        (Confirm::Agent, Consent::Token(None)) => {
            return Err(Error::new(Code::ConfirmationRequired, reason.clone())
                .with("rule", ruling.rule.clone())
                .with("reason", reason.clone())
                .hint(HOW));
        }
        (Confirm::Owner, Consent::Token(None) | Consent::Set(_)) => {
            let binding = binding(policy, ruling)?;
            match approval(policy, ruling, &binding)? {
                Some(token) => token,
                None => return Err(ask_owner(policy, ruling, reason, &binding)?),
            }
        }
    };
    ruling.confirmed = Some(confirm::fingerprint(&policy.cp_home, &token)?);
    Ok(())
}

/// A token for exactly this, with its expiry. An owner's approval is not given this way.
pub(crate) fn token(policy: &Policy, ruling: &Ruling) -> Result<Option<(String, String)>> {
    if ruling.confirm.is_none() || ruling.level == Confirm::Owner {
        return Ok(None);
    }
    let (token, expires) = issue(&policy.cp_home, &bound(policy, ruling)?)?;
    Ok(Some((token, clock::from_unix_seconds(expires))))
}

/// The approval that the owner gave for this, spent now. An expired one does not count.
fn approval(policy: &Policy, ruling: &Ruling, binding: &[u8]) -> Result<Option<String>> {
    let file = approved_file(&policy.cp_home, &id_of(binding));
    let Ok(bytes) = std::fs::read(&file) else { return Ok(None) };
    drop(std::fs::remove_file(&file));
    let Ok(approved) = serde_json::from_slice::<Approved>(&bytes) else { return Ok(None) };
    let bound = bound(policy, ruling)?;
    let token = confirm::recall(&policy.cp_home, approved.expires, &approved.token, &bound)?;
    Ok(token.filter(|token| redeem(&policy.cp_home, token, &bound).is_ok()))
}

fn id_of(binding: &[u8]) -> String {
    sha256(binding).split_off("sha256:".len())[..16].to_owned()
}

/// Leaves the command where its owner finds it, and says how it goes on.
fn ask_owner(policy: &Policy, ruling: &Ruling, reason: &str, binding: &[u8]) -> Result<Error> {
    let id = id_of(binding);
    let pending = Pending {
        id: id.clone(),
        argv: ruling.argv.clone(),
        variables: ruling.variables.clone(),
        cwd: ruling.plan.cwd.path.display().to_string(),
        sha256: ruling.pinned.sha256.clone(),
        reason: reason.to_owned(),
        agent: policy.actor.agent.clone(),
        asked_at: clock::now(),
        binding: String::from_utf8_lossy(binding).into_owned(),
    };
    let file = pending_directory(&policy.cp_home).join(format!("{id}.json"));
    let bytes = serde_json::to_vec(&pending).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    cp_common::home::write_whole(&file, &bytes)?;
    let resume = format!("cp-exec --home {} approve {id}", shell_quoted(&policy.cp_home.display().to_string()));
    Ok(Error::new(Code::HumanRequired, format!("requires approval by a person: {reason}"))
        .with("rule", ruling.rule.clone())
        .with("action", "approve_command")
        .with("id", id)
        .with("resume", resume.clone())
        .hint(format!("run `{resume}` at a terminal, then repeat the request")))
}

/// A word as a shell would read it back.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+,:@=%".contains(&c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
