//! `filesystem.write_file` and `remove_file`, and `restore_files`, which undoes changes.

use std::path::PathBuf;

use cp_common::program::approval::bound;
use cp_common::program::confirm::{fingerprint, inspect, issue, redeem};
use cp_common::wire::Action;
use cp_common::{Code, Error, Result};
use cp_hosts::{After, Pending};
use cp_ledger::format::approval::Said;
use cp_ledger::format::line::Hash;
use serde_json::json;

use super::edit::exists;
use super::missing::file_not_found;
use super::{change, locked, present, unchanged, utf_8_only, writable_path};
use crate::decision::confirm::{approval_of_change, spend};
use crate::digest::sha256;
use crate::policy::Policy;
use crate::request::{RemoveFile, RestoreFiles, WriteFile, WriteMode};
use crate::run::Engine;
use crate::tools::Item;

const OVERWRITE: &str = "overwrite";

pub(super) fn write_file(engine: &mut Engine, write: &WriteFile) -> Result<Item> {
    if let Some(token) = &write.confirm {
        inspect(&engine.policy.cp_home, token)?;
    }
    let _lock = locked(&engine.policy)?;
    let pending = written(&engine.policy, write)?;
    let asks = (pending.before.is_some() && !is_undoable(&engine.policy, &pending)?) || write.confirm.is_some();
    let confirmed = if asks { Some(confirm_overwrite(engine, write, &pending)?) } else { None };
    let created = pending.before.is_none();
    let path = pending.path.display().to_string();
    let receipt = change(engine, "filesystem.write_file", &[pending], confirmed.as_deref())?;
    let hash = sha256(write.content.as_bytes());
    let value = json!({ "path": path, "bytes": write.content.len(), "sha256": hash, "created": created });
    Ok(Item::new("filesystem.write_file", value, receipt, "/value"))
}

/// The change that a write would make.
pub(super) fn written(policy: &Policy, write: &WriteFile) -> Result<Pending> {
    let path = writable_path(policy, &write.path)?;
    let before = present(&path)?;
    utf_8_only(&path, before.as_ref())?;
    if before.is_some() && write.mode == WriteMode::Create {
        return Err(exists(&path));
    }
    let mode = if before.is_some() { OVERWRITE } else { "create" };
    let after = After::new(write.content.as_bytes().to_vec(), None);
    Ok(Pending { path, mode, before, after: Some(after) })
}

/// True if an overwrite needs no confirmation, because it is a change of a run below its working directory, like an
/// edit, and the run can undo it. A file that the run knows must be unchanged.
fn is_undoable(policy: &Policy, pending: &Pending) -> Result<bool> {
    let Some(before) = &pending.before else { return Ok(false) };
    let is_edit = policy.actor.run.is_some() && policy.actor.call.is_some() && pending.path.starts_with(&policy.base);
    Ok(is_edit && unchanged(policy, &pending.path, before, None).map(|_| true)?)
}

/// Confirms an overwrite: requires the mode `overwrite`, and the approval of exactly this replacement. Returns the
/// hash of the token that was spent.
fn confirm_overwrite(engine: &mut Engine, write: &WriteFile, pending: &Pending) -> Result<String> {
    let policy = &engine.policy;
    let before = pending.before.as_ref().map(|before| before.bytes.as_slice()).unwrap_or_default();
    let asked = approval_of_change(policy, Action::Write, &pending.path, before, write.content.as_bytes())?;
    if let Some(token) = &write.confirm {
        redeem(&policy.cp_home, token, &bound(&asked)?)?;
        return fingerprint(&policy.cp_home, token);
    }
    // A model cannot get a token, so an approval is requested.
    if policy.actor.call.is_some() {
        let spent = spend(policy, &asked)?;
        engine.journal.approval(Said::Spent(&spent.grant), &spent.approval)?;
        return Ok(spent.token);
    }
    let (token, expires) = issue(&policy.cp_home, &bound(&asked)?)?;
    Err(Error::new(Code::ConfirmationRequired, format!("{} would be overwritten", pending.path.display()))
        .with("rule", OVERWRITE)
        .with("confirm_token", token)
        .with("expires_at", cp_common::clock::from_unix_seconds(expires))
        .hint(r#"send the same request again with "confirm":TOKEN"#))
}

pub(super) fn remove_file(engine: &mut Engine, remove: &RemoveFile) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let pending = removed(&engine.policy, remove)?;
    let path = pending.path.display().to_string();
    let receipt = change(engine, "filesystem.remove_file", &[pending], None)?;
    Ok(Item::new("filesystem.remove_file", json!({ "path": path, "removed": true }), receipt, "/value"))
}

/// The file of a removal. The request does not show that its caller knows the content, so the run must know it.
pub(super) fn removed(policy: &Policy, remove: &RemoveFile) -> Result<Pending> {
    let path = writable_path(policy, &remove.path)?;
    let before = present(&path)?.ok_or_else(|| file_not_found(policy, &path))?;
    if !unchanged(policy, &path, &before, remove.expected_sha256.as_deref())? {
        return Err(Error::new(Code::Conflict, format!("this run has not read {}", path.display()))
            .with("rule", "unread")
            .with("path", path.display().to_string())
            .hint("read it first"));
    }
    Ok(Pending { path, mode: "remove", before: Some(before), after: None })
}

pub(super) fn restore_files(engine: &mut Engine, restore: &RestoreFiles) -> Result<Item> {
    let _lock = locked(&engine.policy)?;
    let changes = restored(&engine.policy, restore)?;
    let paths: Vec<String> = changes.iter().map(|pending| pending.path.display().to_string()).collect();
    let receipt = change(engine, "filesystem.restore_files", &changes, None)?;
    Ok(Item::new("filesystem.restore_files", json!({ "restored": paths }), receipt, "/value"))
}

/// The changes of a restoration. All files are checked before any change.
pub(super) fn restored(policy: &Policy, restore: &RestoreFiles) -> Result<Vec<Pending>> {
    let mut changes: Vec<Pending> = Vec::new();
    for file in &restore.files {
        let path = writable_path(policy, &file.path)?;
        let before = present(&path)?;
        let now = before.as_ref().map(|before| before.hash.to_string());
        if now != file.from {
            return Err(Error::new(Code::Conflict, format!("{} is not as it was", path.display()))
                .with("rule", "changed")
                .with("path", path.display().to_string())
                .with("sha256", now));
        }
        let permissions = file.permissions.as_deref().map(|octal| u32::from_str_radix(octal, 8)).transpose();
        let permissions = permissions.ok().filter(|permissions| permissions.is_none_or(|bits| bits <= 0o777));
        let hash = file.to.as_deref().map(|to| Hash::parse(to).ok_or(())).transpose();
        let (Some(permissions), Ok(hash)) = (permissions, hash) else {
            return Err(Error::validation("a hash or the permissions cannot be read").with("rule", "request"));
        };
        let bytes = hash.map(|hash| cp_ledger::store::blob::load(&policy.ledger, &hash)).transpose()?;
        let after = bytes.map(|bytes| After::new(bytes, permissions));
        if before.is_some() || after.is_some() {
            changes.push(Pending { path, mode: "restore", before, after });
        }
    }
    let mut paths: Vec<&PathBuf> = changes.iter().map(|pending| &pending.path).collect();
    paths.sort();
    if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Error::validation(format!("{} is named twice", twice[0].display())).with("rule", "request"));
    }
    Ok(changes)
}
