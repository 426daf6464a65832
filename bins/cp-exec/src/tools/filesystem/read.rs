//! `filesystem.read_file`: reads a file, or some of its lines. `filesystem.list_directory`: the entries of a directory,
//! page by page.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::wire::Block;
use cp_common::{Code, Error, Result};
use rustix::fs::{AtFlags, FileType, OFlags};
use serde_json::json;

use super::{file_not_found, open, path_of, readable};
use crate::digest::sha256;
use crate::nofollow;
use crate::request::{ListDirectory, ReadFile};
use crate::run::Engine;
use crate::tools::Item;

/// The longest file. All of it is read, because its hash tells later whether others changed it.
const LONGEST: u64 = 64 << 20;
/// The most bytes of one answer.
const READ: usize = 4 << 20;

pub(super) fn read_file(engine: &mut Engine, read: &ReadFile) -> Result<Item> {
    let path = path_of(&engine.policy, &read.path)?;
    readable(&engine.policy, &path)?;
    let file = open(&path, "file", OFlags::empty()).map_err(|error| match error.code() {
        Code::NotFound => file_not_found(&path),
        _ => error,
    })?;
    let failed = |e: std::io::Error| Error::io("cannot be read", e).in_file(&path);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::validation(format!("{} is not a file", path.display()))
            .hint("for a directory use filesystem.list_directory"));
    }
    let mut all = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut all).map_err(failed)?;
    if all.len() as u64 > LONGEST {
        return Err(Error::validation(format!("{} has {} bytes", path.display(), meta.len()))
            .hint(format!("the limit is {LONGEST} bytes; a command such as `tail`, `sed -n` or `grep` reads a part")));
    }
    let lines = || all.split_inclusive(|byte| *byte == b'\n');
    let length = |from, most| lines().skip(from).take(most).map(<[u8]>::len).sum::<usize>();
    let (first, total, size, whole) = (number(read.line.unwrap_or(1).max(1)), lines().count(), all.len(), sha256(&all));
    if first > total.max(1) {
        return Err(Error::validation(format!("{} has {total} lines", path.display())).with("total_lines", total));
    }
    let offset = length(0, first - 1);
    let bytes = &all[offset..][..length(first - 1, read.lines.map_or(usize::MAX, number)).min(READ)];
    let (count, has_more) = (bytes.split_inclusive(|byte| *byte == b'\n').count(), offset + bytes.len() < size);
    let note = (first > 1 || has_more).then(|| {
        let is_cut = has_more && bytes.len() == READ;
        let more = if is_cut { "; cut at 4 MiB: read from a later line on, or a long line with `cut -c`" } else { "" };
        format!("[lines {first} to {} of {total}{more}]", first - 1 + count)
    });
    let by_lines = read.line.is_some() || read.lines.is_some() || read.numbered;
    let text = std::str::from_utf8(bytes);
    let (content, encoding) = match text {
        Err(_) if !by_lines => (BASE64_STANDARD.encode(bytes), "base64"),
        _ if read.numbered => (numbered(&String::from_utf8_lossy(bytes), first), "utf-8"),
        _ => (String::from_utf8_lossy(bytes).into_owned(), "utf-8"),
    };
    let (hash, shown) = (sha256(bytes), path.display().to_string());
    let known = json!({
        "path": shown, "sha256": hash, "offset": offset, "bytes": bytes.len(), "file_sha256": whole,
    });
    let value = json!({
        "path": shown, "content": content, "encoding": encoding, "offset": offset, "bytes": bytes.len(), "size": size,
        "has_more": has_more, "sha256": hash, "file_sha256": whole, "line": first, "lines": count, "total_lines": total,
    });
    let receipt = super::record(engine, "filesystem.read_file", json!({ "reads": [known] }))?;
    let item = Item::new("filesystem.read_file", value, receipt, "/value/content");
    let is_whole = encoding == "base64" && note.is_none();
    if let Some(media_type) = image_type(bytes).filter(|_| is_whole) {
        let is_large = bytes.len() > IMAGE;
        let more = if is_large { format!(": too large to show, the limit is {IMAGE}") } else { String::new() };
        let images = if is_large { Vec::new() } else { vec![Block::image(media_type, &content)] };
        return Ok(Item { images, ..item.shown_as(format!("[{media_type}, {} bytes{more}]", bytes.len())) });
    }
    let other = text.is_err().then(|| {
        let form = if by_lines { "other bytes are shown as \u{fffd}" } else { "the content is base64" };
        format!("[not UTF-8: {form}; `iconv -f ENCODING -t UTF-8 FILE` shows it as text]")
    });
    let notes = [note, other].into_iter().flatten().collect::<Vec<_>>().join("\n");
    let end = if content.ends_with('\n') { "" } else { "\n" };
    Ok(if notes.is_empty() { item } else { item.shown_as(format!("{content}{end}{notes}")) })
}

/// The largest image that a model gets, in bytes: 5 MB in base64, as providers accept.
const IMAGE: usize = 3_700_000;

/// The media type of an image that providers accept.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// A number of a request. Beyond what this machine can count, there is nothing to read.
fn number(asked: u64) -> usize {
    usize::try_from(asked).unwrap_or(usize::MAX)
}

fn numbered(text: &str, first: usize) -> String {
    let lines = (first..).zip(text.split_inclusive('\n'));
    lines.flat_map(|(number, line)| [number.to_string(), "\t".to_owned(), line.to_owned()]).collect()
}

/// The most entries of one page.
const PAGE: usize = 1000;

pub(super) fn list_directory(engine: &mut Engine, list: &ListDirectory) -> Result<Item> {
    let path = path_of(&engine.policy, &list.path)?;
    readable(&engine.policy, &path)?;
    let directory = open(&path, "directory", OFlags::DIRECTORY)?;
    let failed = |e| Error::io("cannot be listed", e).in_file(&path);
    let invalid = |e| Error::validation(format!("the cursor is not one of a listing: {e}")).with("rule", "cursor");
    // The last name of the page before.
    let after = list.cursor.as_ref().map(|cursor| BASE64_STANDARD.decode(cursor)).transpose().map_err(invalid)?;
    let mut names = nofollow::names(&directory).map_err(failed)?;
    names.retain(|name| after.as_deref().is_none_or(|after| name.as_bytes() > after));
    names.sort_unstable();
    let limit = list.limit.unwrap_or(PAGE).clamp(1, PAGE);
    let has_more = names.len() > limit;
    names.truncate(limit);
    let entries: Vec<serde_json::Value> = names.iter().filter_map(|name| describe(&directory, name)).collect();
    let shown = path.display().to_string();
    let what = json!({ "reads": [{ "path": shown }] });
    let receipt = super::record(engine, "filesystem.list_directory", what)?;
    let next = names.last().filter(|_| has_more).map(|name| BASE64_STANDARD.encode(name.as_bytes()));
    let value = json!({
        "path": shown, "entries": entries, "count": entries.len(), "has_more": has_more, "next_cursor": next,
    });
    Ok(Item::new("filesystem.list_directory", value, receipt, "/value/entries"))
}

/// Describes an entry relative to the descriptor of its directory, so that a replaced directory has no effect.
fn describe(directory: &File, name: &OsStr) -> Option<serde_json::Value> {
    let stat = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => "directory",
        FileType::RegularFile => "file",
        FileType::Symlink => "symlink",
        _ => "other",
    };
    let modified = cp_common::clock::from_unix_seconds(u64::try_from(stat.st_mtime).unwrap_or(0));
    let mut entry = json!({ "name": name.to_string_lossy(), "kind": kind, "size": stat.st_size, "mtime": modified });
    if name.to_str().is_none() {
        entry["name_base64"] = BASE64_STANDARD.encode(name.as_bytes()).into();
    }
    Some(entry)
}
