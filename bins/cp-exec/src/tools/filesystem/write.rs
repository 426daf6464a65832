//! `filesystem.write_file` and `remove_file`.

use crate::files::{After, Pending};
use cp_common::program::approval;
use cp_common::program::grant::inspect;
use cp_common::wire::Action;
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;

use super::edit::exists;
use super::{change, file_not_found, locked, present, unchanged, writable_path};
use crate::decision::confirm::{approval_of_change, spend};
use crate::policy::Policy;
use crate::request::{RemoveFile, WriteFile, WriteMode};
use crate::run::Engine;
use crate::tools::Item;

pub(super) fn write_file(engine: &mut Engine, write: &WriteFile) -> Result<Item> {
    if let Some(token) = &write.confirm {
        inspect(&engine.policy.cp_home, token)?;
    }
    let _lock = locked(&engine.policy)?;
    let pending = written(&engine.policy, write)?;
    let asks = (pending.before.is_some() && !is_undoable(engine, &pending)?) || write.confirm.is_some();
    let confirmed = if asks { Some(confirm_overwrite(engine, write, &pending)?) } else { None };
    let (mut described, receipt) = change(engine, "filesystem.write_file", &[pending], confirmed.as_deref())?;
    Ok(Item::new("filesystem.write_file", described.remove(0), receipt, "/value"))
}

/// The change that a write would make.
fn written(policy: &Policy, write: &WriteFile) -> Result<Pending> {
    let path = writable_path(policy, &write.path)?;
    let before = present(&path)?;
    if before.is_some() && write.mode == WriteMode::Create {
        return Err(exists(&path));
    }
    let after = After::new(write.content.as_bytes().to_vec(), None);
    Ok(Pending { path, before, after: Some(after) })
}

/// True if an overwrite needs no confirmation, because it is a change of a run below its working directory, like an
/// edit, and the run can undo it. A file that the run knows must be unchanged.
fn is_undoable(Engine { policy, journal, .. }: &mut Engine, pending: &Pending) -> Result<bool> {
    let Some(before) = &pending.before else { return Ok(false) };
    let is_edit = policy.actor.run.is_some() && policy.actor.call.is_some() && pending.path.starts_with(&policy.base);
    Ok(is_edit && unchanged((policy, journal), &pending.path, before, None).map(|_| true)?)
}

/// Confirms an overwrite: requires the mode `overwrite`, and the approval of exactly this replacement. Returns the
/// hash of the token that was spent.
fn confirm_overwrite(engine: &mut Engine, write: &WriteFile, pending: &Pending) -> Result<String> {
    let policy = &engine.policy;
    let before = pending.before.as_ref().map(|before| before.bytes.as_slice()).unwrap_or_default();
    let asked = approval_of_change(policy, Action::Write, &pending.path, before, write.content.as_bytes())?;
    if let Some(token) = &write.confirm {
        return approval::redeem(&policy.cp_home, token, &asked);
    }
    // A model cannot get a token, so an approval is requested.
    if policy.actor.call.is_some() {
        let spent = spend(policy, &asked)?;
        engine.journal.approval(Said::Spent(&spent.grant), &spent.approval)?;
        return Ok(spent.confirmed);
    }
    let (token, expires_at) = approval::issue(&policy.cp_home, &asked)?;
    Err(Error::new(Code::ConfirmationRequired, format!("{} would be overwritten", pending.path.display()))
        .with("rule", "overwrite")
        .with("confirm_token", token)
        .with("expires_at", expires_at)
        .hint(r#"send the same request again with "confirm":TOKEN"#))
}

pub(super) fn remove_file(engine: &mut Engine, remove: &RemoveFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let pending = removed(engine, remove)?;
    let (mut described, receipt) = change(engine, "filesystem.remove_file", &[pending], None)?;
    Ok(Item::new("filesystem.remove_file", described.remove(0), receipt, "/value"))
}

/// The file of a removal. The request does not show that its caller knows the content, so the run must know it.
fn removed(Engine { policy, journal, .. }: &mut Engine, remove: &RemoveFile) -> Result<Pending> {
    let path = writable_path(policy, &remove.path)?;
    let before = present(&path)?.ok_or_else(|| file_not_found(&path))?;
    if !unchanged((policy, journal), &path, &before, remove.expected_sha256.as_deref())? {
        return Err(Error::new(Code::Conflict, format!("this run has not read {}", path.display()))
            .with("rule", "unread")
            .with("path", path.display().to_string())
            .hint("read it first"));
    }
    Ok(Pending { path, before: Some(before), after: None })
}
