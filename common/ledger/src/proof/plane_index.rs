//! The control plane's index of closed segments: each row names a file beside it, and says what it holds. Nothing chains the rows, so
//! they are compared with the files.

use std::collections::HashSet;
use std::path::Path;

use cp_common::{Error, Result, json};
use serde_json::{Map, Value};

use crate::format::line::{inside, members};
use crate::proof::dialect;
use crate::proof::fault::{Fault, Kind};
use crate::proof::verifier::Report;
use crate::read::Raw;
use crate::read::segments::stem_of;
use crate::read::source::lines_of;
use crate::store::blob;

/// Whether a file is an index: it has that name, and its first row names a ledger and has no hash of its own.
pub fn is_index(path: &Path, first: &[u8]) -> bool {
    path.file_name().is_some_and(|name| name == "index.jsonl")
        && row_of(first).is_some_and(|row| named_by(&row).is_some() && !row.contains_key("entry_hash"))
}

/// Compares each row with the file that it names.
pub fn verify(path: &Path) -> Result<Report> {
    let mut reader = lines_of(path)?;
    let mut report = Report::empty(0);
    while let Some(raw) = reader.next()? {
        if raw.bytes.trim_ascii().is_empty() {
            continue;
        }
        report.lines += 1;
        match difference(path, &raw)? {
            None => report.intact += 1,
            Some((kind, message)) => {
                report.add(Fault { line: raw.number, offset: raw.offset, seq: None, kind, message });
            }
        }
    }
    report.bytes = reader.offset();
    Ok(report)
}

fn row_of(bytes: &[u8]) -> Option<Map<String, Value>> {
    serde_json::from_slice(bytes).ok()
}

/// The ledger that a row names.
fn named_by(row: &Map<String, Value>) -> Option<&str> {
    let names = row.values().filter_map(Value::as_str);
    // Only the name: what a row says does not lead out of the index's directory.
    names.filter_map(|name| Path::new(name).file_name()?.to_str()).find(|name| stem_of(Path::new(name)).is_some())
}

fn difference(path: &Path, raw: &Raw<'_>) -> Result<Option<(Kind, String)>> {
    let Some(row) = row_of(raw.bytes) else { return Ok(Some((Kind::Json, "not a JSON object".to_owned()))) };
    let Some(name) = named_by(&row) else {
        return Ok(Some((Kind::Shape, "the row names no ledger".to_owned())));
    };
    let file = path.with_file_name(name);
    let digest = blob::digest(&file).map_err(|e| Error::io("cannot read", e).in_file(&file))?;
    let Some((whole, _)) = digest else {
        return Ok(Some((Kind::Segment, format!("{name} is missing"))));
    };
    let (lines, mut hashes) = ends_of(&file)?;
    hashes.insert(whole.hex().to_owned());
    for (member, value) in &row {
        let is_count = matches!(member.as_str(), "count" | "entries" | "entry_count" | "lines" | "records");
        if let Some(count) = value.as_u64().filter(|count| is_count && *count != lines) {
            return Ok(Some((Kind::Segment, format!("{name} has {lines} entries, not {count}"))));
        }
        let hex = value.as_str().map(|text| text.strip_prefix("sha256:").unwrap_or(text));
        let is_previous = member.starts_with("prev");
        if let Some(hex) = hex.filter(|hex| hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit()))
            && !is_previous
            && !hashes.contains(hex)
        {
            return Ok(Some((Kind::Segment, format!("{name} has no {member} {hex}"))));
        }
    }
    Ok(None)
}

/// How many entries a ledger has, and the hashes of the first and the last.
fn ends_of(file: &Path) -> Result<(u64, HashSet<String>)> {
    let (mut reader, mut lines) = (lines_of(file)?, 0);
    let (mut first, mut last) = (None, None);
    while let Some(raw) = reader.next()? {
        if raw.bytes.trim_ascii().is_empty() {
            continue;
        }
        lines += 1;
        let mut text = Vec::with_capacity(raw.bytes.len());
        let is_json = json::normalize(raw.bytes, &mut text).is_ok();
        let hash = inside(&text).filter(|_| is_json).and_then(|object| {
            let (_, hash) = members(object).find(|(name, _)| *name == b"entry_hash")?;
            json::unquote(hash)
        });
        let hash = hash.map(|hash| hash.strip_prefix("sha256:").map(str::to_owned).unwrap_or(hash));
        first = first.or_else(|| hash.clone());
        last = hash.or(last);
    }
    Ok((lines, first.into_iter().chain(last).collect()))
}

/// What a file holds, as its first line says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Entries that are chained by `previous_hash` and `entry_hash`.
    Entries,
    /// An index of files with such entries.
    Index,
    /// Anything else.
    Else,
}

/// What a plain file or an archive holds.
pub fn held_by(path: &Path) -> Result<Holds> {
    let mut reader = lines_of(path)?;
    while let Some(raw) = reader.next()? {
        if raw.bytes.trim_ascii().is_empty() {
            continue;
        }
        return Ok(if dialect::is_entry(raw.bytes) {
            Holds::Entries
        } else if is_index(path, raw.bytes) {
            Holds::Index
        } else {
            Holds::Else
        });
    }
    Ok(Holds::Else)
}
