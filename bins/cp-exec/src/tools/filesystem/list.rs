//! `filesystem.list_directory`: the entries of a directory, page by page.

use std::ffi::{CStr, CString};
use std::fs::File;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::{Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use serde_json::json;

use super::{open, path_of, readable};
use crate::request::ListDirectory;
use crate::run::Engine;
use crate::tools::Item;

/// The most entries of one page.
const PAGE: usize = 1000;

pub(super) fn list_directory(engine: &mut Engine, list: &ListDirectory) -> Result<Item> {
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
    Ok(Item::new("filesystem.list_directory", value, receipt, "/value/entries"))
}

/// Describes an entry relative to the descriptor of its directory, so that a replaced directory has no effect.
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

/// The prefix of a cursor that is not UTF-8, or that itself starts with this prefix.
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
