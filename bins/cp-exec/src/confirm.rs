//! What needs to be confirmed: a token proves that exactly this was shown before; an owner's approval, that a person
//! agreed to it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use cp_common::confirm::{issue, redeem};
use cp_common::{Code, Error, Result, clock};

use crate::capture::sha256;
use crate::decide::Ruling;
use crate::governor::Governor;
use crate::policy::Confirm;

/// What a token is bound to: change any of it, and it confirms nothing.
#[derive(Serialize)]
struct Binding<'a> {
    level: &'static str,
    argv: &'a [String],
    exe: &'a str,
    cwd: &'a Path,
    env: &'a [(String, String)],
    timeout_ms: u128,
    profile: crate::sandbox::plan::Profile,
    network: crate::sandbox::plan::Network,
    limits: crate::sandbox::plan::Limits,
    policy: &'a str,
    uid: u32,
}

fn binding(governor: &Governor, ruling: &Ruling, level: &'static str) -> Result<Vec<u8>> {
    let plan = &ruling.plan;
    let bound = Binding {
        level,
        argv: &ruling.argv,
        exe: &ruling.pinned.sha256,
        cwd: &plan.cwd.path,
        env: &plan.env,
        timeout_ms: ruling.timeout.as_millis(),
        profile: plan.profile,
        network: plan.network,
        limits: plan.limits,
        policy: &governor.loaded.sha256,
        uid: rustix::process::getuid().as_raw(),
    };
    serde_json::to_vec(&bound).map_err(|e| Error::new(Code::Unknown, e.to_string()))
}

/// A command that waits for a person.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Pending {
    /// Its id: the hash of what would run.
    pub id: String,
    /// The words.
    pub argv: Vec<String>,
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

/// Lets a ruling go on: it needs no confirmation, or has it. The token is spent before anything starts.
pub(crate) fn settle(governor: &Governor, ruling: &Ruling, token: Option<&str>) -> Result<()> {
    let Some(reason) = &ruling.confirm else { return Ok(()) };
    match governor.loaded.policy.exec.confirm {
        Confirm::Agent => {
            let Some(token) = token else {
                return Err(Error::new(Code::ConfirmationRequired, reason.clone())
                    .with("rule", ruling.rule.clone())
                    .with("reason", reason.clone())
                    .hint("run it with --dry-run for a token, then again with --confirm TOKEN"));
            };
            redeem(&governor.cp_home, token, &binding(governor, ruling, "agent")?)
        }
        Confirm::Owner => {
            let binding = binding(governor, ruling, "owner")?;
            match token {
                Some(token) => redeem(&governor.cp_home, token, &binding),
                None => Err(wait(governor, ruling, reason, &binding)?),
            }
        }
    }
}

/// A token for exactly this, with its expiry. An owner's approval is not given this way.
pub(crate) fn token(governor: &Governor, ruling: &Ruling) -> Result<Option<(String, String)>> {
    if ruling.confirm.is_none() || governor.loaded.policy.exec.confirm == Confirm::Owner {
        return Ok(None);
    }
    let (token, expires) = issue(&governor.cp_home.join("keys"), &binding(governor, ruling, "agent")?)?;
    Ok(Some((token, clock::from_unix_seconds(expires))))
}

/// Leaves the command where its owner finds it, and says how it goes on.
fn wait(governor: &Governor, ruling: &Ruling, reason: &str, binding: &[u8]) -> Result<Error> {
    let id = sha256(binding).split_off("sha256:".len())[..16].to_owned();
    let pending = Pending {
        id: id.clone(),
        argv: ruling.argv.clone(),
        cwd: ruling.plan.cwd.path.display().to_string(),
        sha256: ruling.pinned.sha256.clone(),
        reason: reason.to_owned(),
        agent: governor.who.0.clone(),
        asked_at: clock::now(),
        binding: String::from_utf8_lossy(binding).into_owned(),
    };
    let file = pending_directory(&governor.cp_home).join(format!("{id}.json"));
    let bytes = serde_json::to_vec(&pending).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    cp_common::home::write_whole(&file, &bytes)?;
    let resume = format!("cp-exec --home {} approve {id}", shown(&governor.cp_home));
    Ok(Error::new(Code::HumanRequired, format!("a person must approve it: {reason}"))
        .with("rule", ruling.rule.clone())
        .with("action", "approve_command")
        .with("id", id)
        .with("resume", resume.clone())
        .hint(format!("on a terminal: {resume}; it prints the token to ask again with")))
}

/// A path as a shell would need it.
fn shown(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = text.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+,:@".contains(&c));
    if plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
