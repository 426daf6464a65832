//! `filesystem.read_file`, `list_directory` and `write_file`: file work under the policy's paths, without a process.

use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::home::resolved;
use cp_common::program::approval::bound;
use cp_common::program::confirm::{Change, fingerprint, inspect, issue, redeem};
use cp_common::wire::Action;
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde_json::json;

use super::item::Item;
use crate::decision::confirm::{of_change, spend};
use crate::digest::sha256;
use crate::place;
use crate::policy::{Access, Policy, covering};
use crate::refusal::{denied, denied_by, owner_decides};
use crate::request::{Encoding, FileOperation, ListDirectory, ReadFile, WriteFile, WriteMode};
use crate::run::Engine;

/// The most bytes one read answers with.
const READ: u64 = 4 << 20;
/// The most entries one page of a listing has.
const PAGE: usize = 1000;

/// Does a file operation, on the record. `spent` is the token of the set it belongs to.
pub(crate) fn operate(engine: &mut Engine, operation: &FileOperation, spent: Option<&str>) -> Result<Item> {
    engine.policy.check_base()?;
    match operation {
        FileOperation::ReadFile(read) => read_file(engine, read),
        FileOperation::ListDirectory(list) => list_directory(engine, list),
        FileOperation::WriteFile(write) => write_file(engine, write, spent),
    }
}

/// What a file operation would do, and whether it destroys something.
pub(crate) fn change(policy: &Policy, operation: &FileOperation) -> Result<(Change, bool)> {
    policy.check_base()?;
    let (action, asked) = match operation {
        FileOperation::ReadFile(read) => ("read", &read.path),
        FileOperation::ListDirectory(list) => ("list", &list.path),
        FileOperation::WriteFile(write) => ("create", &write.path),
    };
    let path = path_of(policy, asked)?;
    let change = |action: &str, before: serde_json::Value, after: serde_json::Value| Change {
        action: action.to_owned(),
        resource: "file".to_owned(),
        id: path.display().to_string(),
        before,
        after,
    };
    let FileOperation::WriteFile(write) = operation else {
        readable(policy, &path)?;
        return Ok((change(action, json!(null), json!(null)), false));
    };
    writable(policy, &path)?;
    let after = sha256(write.content.as_bytes()).into();
    match fs::read(&path) {
        Ok(_) if write.mode == WriteMode::Create => Err(there_already(&path)),
        Ok(before) => Ok((change("overwrite", sha256(&before).into(), after), true)),
        Err(_) => Ok((change(action, json!(null), after), false)),
    }
}

fn path_of(policy: &Policy, asked: &str) -> Result<PathBuf> {
    if asked.is_empty() || asked.contains('\0') {
        return Err(Error::validation("the path is empty or contains a NUL byte").with("rule", "path"));
    }
    Ok(resolved(&policy.base.join(policy.expand(asked))))
}

/// A path that may be read. What is masked from commands is hidden here too.
fn readable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, path, Access::Read)
}

fn visible(policy: &Policy, path: &Path, access: Access) -> Result<()> {
    for module in policy.modules_at(&[&policy.base]) {
        module.check(access, path)?;
    }
    let hint = owner_decides("[paths] lists what may be read");
    if let Some(pattern) = policy.bounds.forbidding(path) {
        return Err(denied_by("read", path, "forbidden", pattern.text()).hint(hint));
    }
    if policy.hides(path) {
        return Err(denied("read", path).with("rule", "secret").hint("secrets are hidden from commands and tools"));
    }
    if !policy.is_tool(path) && !policy.bounds.lists(Access::Read, path) {
        return Err(denied("read", path).with("rule", "paths.read").hint(hint));
    }
    Ok(())
}

/// A path that may be written: declared, and neither pristine nor forbidden nor something that runs later.
fn writable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, path, Access::Write)?;
    let hint = owner_decides("[paths] lists what may be written");
    if let Some(pattern) = covering(&policy.pristine, path) {
        return Err(denied_by("write", path, "pristine", pattern.text()).hint(hint));
    }
    if let Some(governed) = &policy.governed {
        governed.check_writable(path)?;
    }
    if policy.is_guarded(path) || policy.protected()?.iter().any(|protected| path.starts_with(protected)) {
        return Err(denied("write", path)
            .with("rule", "protected")
            .with("guard", "before")
            .hint("other programs run commands from this file; only its owner can change it"));
    }
    if !policy.bounds.lists(Access::Write, path) {
        return Err(denied("write", path).with("rule", "paths.write").hint(hint));
    }
    Ok(())
}

/// Opens a path that was resolved and allowed, through no link: one that is on its way now was put there since.
fn open(path: &Path, what: &str, flags: OFlags) -> Result<File> {
    place::open_with(path, flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK).map(File::from).map_err(|e| {
        match e {
            Errno::NOENT => Error::not_found(format!("{what} not found: {}", path.display())),
            Errno::LOOP => {
                denied("read", path).with("rule", "changed").hint("a link came on its way meanwhile; try again")
            }
            Errno::NOTDIR if what == "directory" => Error::validation(format!("{} is not a directory", path.display()))
                .hint("for a file use filesystem.read_file"),
            e => Error::io("cannot be read", std::io::Error::from(e)).in_file(path),
        }
    })
}

fn read_file(engine: &mut Engine, read: &ReadFile) -> Result<Item> {
    let path = path_of(&engine.policy, &read.path)?;
    readable(&engine.policy, &path)?;
    let mut file = open(&path, "file", OFlags::empty())?;
    let meta = file.metadata().map_err(|e| Error::io("cannot read the attributes", e).in_file(&path))?;
    if !meta.is_file() {
        return Err(Error::validation(format!("{} is not a file", path.display()))
            .hint("for a directory use filesystem.list_directory"));
    }
    let limit = read.limit.unwrap_or(READ).min(READ);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(read.offset))
        .and_then(|_| file.take(limit).read_to_end(&mut bytes))
        .map_err(|e| Error::io("cannot be read", e).in_file(&path))?;
    let end = read.offset + bytes.len() as u64;
    let (content, encoding) = match (std::str::from_utf8(&bytes), read.encoding) {
        (_, Some(Encoding::Base64)) | (Err(_), None) => (BASE64_STANDARD.encode(&bytes), "base64"),
        (Ok(text), _) => (text.to_owned(), "utf-8"),
        (Err(e), Some(Encoding::Utf8)) => {
            let at = read.offset + e.valid_up_to() as u64;
            return Err(Error::validation(format!("{} is not UTF-8: byte {at}", path.display()))
                .hint(r#"send "encoding":"base64""#));
        }
    };
    let hash = sha256(&bytes);
    let shown = path.display().to_string();
    let what = json!({ "reads": [{ "path": shown, "sha256": hash, "offset": read.offset, "bytes": bytes.len() }] });
    let receipt = engine.journal.operation("filesystem.read_file", &what)?;
    let value = json!({
        "path": shown, "content": content, "encoding": encoding, "offset": read.offset, "bytes": bytes.len(),
        "size": meta.len(), "has_more": end < meta.len(), "sha256": hash,
    });
    Ok(Item { operation: "filesystem.read_file", value, receipt, untrusted: vec!["/value/content".to_owned()] })
}

fn list_directory(engine: &mut Engine, list: &ListDirectory) -> Result<Item> {
    let path = path_of(&engine.policy, &list.path)?;
    readable(&engine.policy, &path)?;
    let directory = open(&path, "directory", OFlags::DIRECTORY)?;
    let failed = |e: Errno| Error::io("cannot be listed", std::io::Error::from(e)).in_file(&path);
    let mut names = Vec::new();
    for entry in Dir::read_from(&directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name().to_owned();
        if !matches!(name.to_bytes(), b"." | b"..") {
            names.push(name);
        }
    }
    names.sort();
    let limit = list.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let after = list.cursor.as_deref().map(name_of_cursor).transpose()?;
    let mut rest =
        names.into_iter().filter(|name| after.as_ref().is_none_or(|after| name.to_bytes() > after.as_slice()));
    let page: Vec<CString> = rest.by_ref().take(limit).collect();
    let has_more = rest.next().is_some();
    let entries: Vec<serde_json::Value> = page.iter().filter_map(|name| describe(&directory, name)).collect();
    let shown = path.display().to_string();
    let what = json!({ "reads": [{ "path": shown }] });
    let receipt = engine.journal.operation("filesystem.list_directory", &what)?;
    let next = has_more.then(|| page.last().map(|name| cursor_of(name))).flatten();
    let value = json!({
        "path": shown, "entries": entries, "count": entries.len(), "has_more": has_more, "next_cursor": next,
    });
    Ok(Item { operation: "filesystem.list_directory", value, receipt, untrusted: vec!["/value/entries".to_owned()] })
}

/// What an entry is, by the descriptor of its directory: whatever takes the place of that meanwhile is not looked at.
fn describe(directory: &File, name: &CStr) -> Option<serde_json::Value> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "directory",
        FileType::RegularFile => "file",
        FileType::Symlink => "symlink",
        _ => "other",
    };
    let modified = cp_common::clock::from_unix_seconds(u64::try_from(stat.st_mtime).unwrap_or(0));
    let mut entry = json!({ "name": name.to_string_lossy(), "kind": kind, "size": stat.st_size, "mtime": modified });
    if name.to_str().is_err() {
        entry["name_base64"] = BASE64_STANDARD.encode(name.to_bytes()).into();
    }
    Some(entry)
}

/// What a cursor of bytes that are not UTF-8 begins with, and one that would pass for such a cursor.
const BYTES: &str = "base64:";

fn cursor_of(name: &CStr) -> String {
    match name.to_str() {
        Ok(name) if !name.starts_with(BYTES) => name.to_owned(),
        _ => format!("{BYTES}{}", BASE64_STANDARD.encode(name.to_bytes())),
    }
}

fn name_of_cursor(cursor: &str) -> Result<Vec<u8>> {
    match cursor.strip_prefix(BYTES) {
        None => Ok(cursor.as_bytes().to_vec()),
        Some(bytes) => BASE64_STANDARD
            .decode(bytes)
            .map_err(|e| Error::validation(format!("the cursor is not one of a listing: {e}")).with("rule", "cursor")),
    }
}

fn write_file(engine: &mut Engine, write: &WriteFile, spent: Option<&str>) -> Result<Item> {
    if let (Some(token), None) = (&write.confirm, spent) {
        inspect(&engine.policy.cp_home, token)?;
    }
    let path = path_of(&engine.policy, &write.path)?;
    writable(&engine.policy, &path)?;
    let before = fs::symlink_metadata(&path).ok();
    if before.as_ref().is_some_and(|meta| !meta.is_file()) {
        return Err(Error::validation(format!("{} exists and is not a regular file", path.display())));
    }
    let hash = sha256(write.content.as_bytes());
    let shown = path.display().to_string();
    let confirmed = match before {
        Some(_) => Some(confirm_overwrite(engine, write, &path, spent)?),
        // What the token was to replace is gone.
        None if write.confirm.is_some() && spent.is_none() => Some(confirm_overwrite(engine, write, &path, None)?),
        None => None,
    };
    let what = json!({
        "writes": [{
            "path": shown,
            "sha256": hash,
            "bytes": write.content.len(),
            "mode": if before.is_some() { "overwrite" } else { "create" },
        }],
        "confirmed": confirmed,
    });
    let receipt = engine.journal.operation("filesystem.write_file", &what)?;
    write_whole(&path, write.content.as_bytes(), before.as_ref())?;
    let value = json!({ "path": shown, "bytes": write.content.len(), "sha256": hash, "created": before.is_none() });
    Ok(Item { operation: "filesystem.write_file", value, receipt, untrusted: vec!["/value".to_owned()] })
}

fn there_already(path: &Path) -> Error {
    Error::new(Code::Conflict, format!("{} already exists", path.display()))
        .with("rule", "exists")
        .hint(r#"send "mode":"overwrite" to replace it"#)
}

/// Replacing a file destroys what it held, so it needs the word `overwrite`, and a token for exactly this replacement. Answers with
/// the hash of the token that was spent.
fn confirm_overwrite(engine: &mut Engine, write: &WriteFile, path: &Path, spent: Option<&str>) -> Result<String> {
    let policy = &engine.policy;
    if write.mode == WriteMode::Create && path.symlink_metadata().is_ok() {
        return Err(there_already(path));
    }
    if let Some(token) = spent {
        return fingerprint(&policy.cp_home, token);
    }
    let before = fs::read(path).unwrap_or_default();
    let asked = of_change(policy, Action::Write, path, &before, write.content.as_bytes())?;
    if let Some(token) = &write.confirm {
        redeem(&policy.cp_home, token, &bound(&asked)?)?;
        return fingerprint(&policy.cp_home, token);
    }
    // A model has no way to a token: whoever may is asked.
    if policy.actor.call.is_some() {
        let spent = spend(policy, &asked)?;
        engine.journal.approval(Said::Spent(&spent.grant), &spent.approval)?;
        return Ok(spent.token);
    }
    let (token, expires) = issue(&policy.cp_home, &bound(&asked)?)?;
    Err(Error::new(Code::ConfirmationRequired, format!("{} would be overwritten", path.display()))
        .with("rule", "overwrite")
        .with("confirm_token", token)
        .with("expires_at", cp_common::clock::from_unix_seconds(expires))
        .hint(r#"send the same request again with "confirm":TOKEN"#))
}

/// Writes a file that appears whole or not at all, with the mode of the one it replaces. The path was resolved before, so
/// a link on the way to it now was put there since.
fn write_whole(path: &Path, bytes: &[u8], before: Option<&fs::Metadata>) -> Result<()> {
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Err(Error::validation("not a file name").with("rule", "path"));
    };
    let place = || -> std::io::Result<()> {
        let directory = place::open_with(parent, OFlags::PATH | OFlags::DIRECTORY)?;
        let temporary = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        let mode = Mode::from_raw_mode(before.map_or(0o644, |meta| meta.mode() & 0o777));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&directory, &temporary, flags, mode)?);
        let written = file.write_all(bytes).and_then(|()| file.sync_all());
        let placed = written.and_then(|()| match before {
            Some(_) => Ok(rustix::fs::renameat(&directory, &temporary, &directory, name)?),
            // Without replacing: a file that came meanwhile stays.
            None => Ok(rustix::fs::linkat(&directory, &temporary, &directory, name, AtFlags::empty())?),
        });
        if placed.is_err() || before.is_none() {
            rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty())?;
        }
        placed
    };
    place().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found(format!("directory not found: {}", parent.display()))
            .with("rule", "parent")
            .hint("make the directory first, for example with `mkdir -p`, where that command is allowed"),
        _ => Error::io("cannot be written", e).in_file(path),
    })
}
