//! `filesystem.read_file`: reads a part of a file of any length, by bytes or by lines. `filesystem.list_directory`: the
//! entries of a directory, page by page.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use cp_common::wire::Block;
use cp_common::{Code, Error, Result};
use rustix::fs::{AtFlags, Dir, FileType, OFlags};
use rustix::io::Errno;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{file_not_found, open, path_of, readable};
use crate::digest::{format_digest, sha256};
use crate::request::{self, ListDirectory, ReadFile};
use crate::run::Engine;
use crate::tools::Item;

/// The most bytes of one answer.
const READ: u64 = 4 << 20;
/// The default limit of lines.
const LINES: u64 = 2000;
/// Up to this size, the hash of the whole file is returned even if a part is read by bytes.
const HASHED: u64 = 16 << 20;

/// The part of a file that was read.
struct Part {
    bytes: Vec<u8>,
    /// The offset in the file.
    offset: u64,
    /// The hash of the whole file, if the whole file was read.
    whole: Option<String>,
    /// Members of the answer in addition to the content.
    members: Value,
    /// A remark for a model about an incomplete part.
    note: Option<String>,
}

pub(super) fn read_file(engine: &mut Engine, read: &ReadFile) -> Result<Item> {
    let path = path_of(&engine.policy, &read.path)?;
    readable(&engine.policy, &path)?;
    let file = open(&path, "file", OFlags::empty()).map_err(|error| match error.code() {
        Code::NotFound => file_not_found(&engine.policy, &path),
        _ => error,
    })?;
    let failed = |e: std::io::Error| Error::io("cannot be read", e).in_file(&path);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::validation(format!("{} is not a file", path.display()))
            .hint("for a directory use filesystem.list_directory"));
    }
    let by_lines = read.line.is_some() || read.lines.is_some() || read.numbered;
    if by_lines && (read.offset > 0 || read.limit.is_some() || read.encoding == Some(request::Encoding::Base64)) {
        return Err(Error::validation("a file is read by bytes (offset, limit) or by lines (line, lines, numbered)")
            .with("rule", "request"));
    }
    let shape = |text: &str| if read.numbered { numbered(text, read.line.unwrap_or(1)) } else { text.to_owned() };
    let (part, content, encoding) = if by_lines {
        let part = lines_of(file, &path, read)?;
        let text = shape(&String::from_utf8_lossy(&part.bytes));
        (part, text, "utf-8")
    } else {
        let part = bytes_of(file, meta.len(), read).map_err(failed)?;
        let (content, encoding) = encoded(&path, &part, read.encoding)?;
        (part, content, encoding)
    };
    let Part { bytes, offset, whole, members, note } = part;
    let is_other = read.encoding.is_none() && std::str::from_utf8(&bytes).is_err();
    let image =
        image_type(&bytes).filter(|_| !by_lines && read.encoding.is_none() && whole.is_some() && note.is_none());
    let (hash, shown) = (sha256(&bytes), path.display().to_string());
    let mut known = json!({ "path": shown, "sha256": hash, "offset": offset, "bytes": bytes.len() });
    let mut value = json!({
        "path": shown, "content": content, "encoding": encoding, "offset": offset, "bytes": bytes.len(),
        "size": meta.len(), "has_more": offset + (bytes.len() as u64) < meta.len(), "sha256": hash,
    });
    for (name, member) in members.as_object().into_iter().flatten() {
        value[name] = member.clone();
    }
    if let Some(whole) = whole {
        known["file_sha256"] = whole.clone().into();
        value["file_sha256"] = whole.into();
    }
    let receipt = super::record(engine, "filesystem.read_file", json!({ "reads": [known] }))?;
    let item = Item::new("filesystem.read_file", value, receipt, "/value/content");
    if let Some(media_type) = image {
        let is_large = bytes.len() > IMAGE;
        let more = if is_large { format!(": too large to show, the limit is {IMAGE}") } else { String::new() };
        let images = if is_large { Vec::new() } else { vec![Block::image(media_type, &content)] };
        return Ok(Item { images, ..item.shown_as(format!("[{media_type}, {} bytes{more}]", bytes.len())) });
    }
    let other = is_other.then(|| {
        let name = utf_16(&bytes).unwrap_or("not UTF-8");
        let form = if by_lines { "other bytes are shown as \u{fffd}" } else { "the content is base64" };
        format!("[{name}: {form}; `iconv -f ENCODING -t UTF-8 FILE` shows it as text]")
    });
    let notes = [note, other].into_iter().flatten().collect::<Vec<_>>().join("\n");
    Ok(if notes.is_empty() {
        item
    } else {
        item.shown_as(format!("{content}{}{notes}", if content.ends_with('\n') { "" } else { "\n" }))
    })
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

/// The name of the encoding of bytes that begin with a byte order mark of UTF-16.
pub(super) fn utf_16(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0xff, 0xfe, ..] => Some("UTF-16LE"),
        [0xfe, 0xff, ..] => Some("UTF-16BE"),
        _ => None,
    }
}

fn bytes_of(mut file: File, size: u64, read: &ReadFile) -> std::io::Result<Part> {
    let limit = read.limit.unwrap_or(READ).min(READ);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(read.offset))?;
    (&file).take(limit).read_to_end(&mut bytes)?;
    let (offset, end) = (read.offset, read.offset + bytes.len() as u64);
    let is_whole = offset == 0 && end >= size;
    let whole = if is_whole {
        Some(sha256(&bytes))
    } else if size <= HASHED {
        file.seek(SeekFrom::Start(0))?;
        let mut all = Vec::new();
        file.take(HASHED).read_to_end(&mut all)?;
        Some(sha256(&all))
    } else {
        None
    };
    let note = (!is_whole).then(|| format!("[bytes {offset} to {end} of {size}]"));
    Ok(Part { bytes, offset, whole, members: Value::Null, note })
}

/// Reads some lines. The whole file is read for its length and hash, but only the lines of the answer are kept.
fn lines_of(file: File, path: &Path, read: &ReadFile) -> Result<Part> {
    let (first, most) = (read.line.unwrap_or(1).max(1), read.lines.unwrap_or(LINES));
    let last = first.saturating_add(most);
    let mut file = BufReader::with_capacity(64 << 10, file);
    let (mut hash, mut bytes, mut offset, mut position) = (Sha256::new(), Vec::new(), 0, 0);
    // The number of the current line, and true if the line has begun.
    let (mut number, mut begun, mut cut) = (1, false, false);
    loop {
        let block = file.fill_buf().map_err(|e| Error::io("cannot be read", e).in_file(path))?;
        if block.is_empty() {
            break;
        }
        cp_common::signals::check()?;
        hash.update(block);
        for line in block.split_inclusive(|byte| *byte == b'\n') {
            if (first..last).contains(&number) {
                if bytes.is_empty() {
                    offset = position;
                }
                let room = usize::try_from(READ).unwrap_or(usize::MAX) - bytes.len();
                cut |= line.len() > room;
                bytes.extend_from_slice(&line[..line.len().min(room)]);
            }
            position += line.len() as u64;
            begun = !line.ends_with(b"\n");
            number += u64::from(!begun);
        }
        let length = block.len();
        file.consume(length);
    }
    let total = number - u64::from(!begun);
    let shown = last.min(total + 1).saturating_sub(first);
    if bytes.contains(&0) {
        return Err(Error::validation(format!("{} is binary: it has no lines", path.display()))
            .hint(r#"read it by bytes, with "encoding":"base64""#));
    }
    if first > total.max(1) {
        return Err(Error::validation(format!("{} has {total} lines", path.display())).with("total_lines", total));
    }
    let more = if cut { "; cut at 4 MiB: read the rest by bytes" } else { "" };
    let note = (shown < total || cut).then(|| format!("[lines {first} to {} of {total}{more}]", first + shown - 1));
    let members = json!({ "line": first, "lines": shown, "total_lines": total });
    Ok(Part { bytes, offset, whole: Some(format_digest(hash)), members, note })
}

fn numbered(text: &str, first: u64) -> String {
    let lines = (first.max(1)..).zip(text.split_inclusive('\n'));
    lines.flat_map(|(number, line)| [number.to_string(), "\t".to_owned(), line.to_owned()]).collect()
}

fn encoded(path: &Path, part: &Part, encoding: Option<request::Encoding>) -> Result<(String, &'static str)> {
    match (std::str::from_utf8(&part.bytes), encoding) {
        (_, Some(request::Encoding::Base64)) | (Err(_), None) => Ok((BASE64_STANDARD.encode(&part.bytes), "base64")),
        (Ok(text), _) => Ok((text.to_owned(), "utf-8")),
        (Err(e), Some(request::Encoding::Utf8)) => {
            let at = part.offset + e.valid_up_to() as u64;
            Err(Error::validation(format!("{} is not UTF-8: byte {at}", path.display()))
                .hint(r#"send "encoding":"base64""#))
        }
    }
}

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
    let receipt = super::record(engine, "filesystem.list_directory", what)?;
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
