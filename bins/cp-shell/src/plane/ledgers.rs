//! The ledgers of the tree, whoever writes them: one JSON object a line.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::plane::packages::is_name;
use crate::plane::{Failure, Plane, Request};

/// How many entries are given by default.
const LIMIT: usize = 10;

/// `ledger_query`
pub(super) fn query(plane: &Plane, request: &Request) -> Result<Value, Failure> {
    let kind = request.optional("type")?.unwrap_or("governance");
    let limit = request.count("limit")?.unwrap_or(LIMIT);
    let filter = request.optional("event_filter")?.map(str::to_lowercase);
    if !is_name(kind) {
        return Err(Failure::request(format!("`{kind}` is not the name of a ledger")).with("field", "type"));
    }
    let file = newest(plane, kind)?.ok_or_else(|| {
        Failure::new("LEDGER_NOT_FOUND", format!("ledger not found: `{kind}`"))
            .with("type", kind)
            .hint(format!("looked for ledger/{kind}-*.jsonl, ledger/{kind}.jsonl and ledger/index.jsonl"))
    })?;
    let (mut newest, mut total) = (VecDeque::new(), 0_u64);
    plane.files.entries(&file, &mut |entry, _, _| {
        total += 1;
        let wanted = filter.as_deref().is_none_or(|filter| event_of(entry).to_lowercase().contains(filter));
        if wanted {
            if newest.len() == limit {
                newest.pop_front();
            }
            newest.push_back(entry.clone());
        }
    })?;
    Ok(json!({
        "entries": newest,
        "ledger_file": file.file_name().and_then(std::ffi::OsStr::to_str),
        "count": newest.len(),
        "total_in_file": total,
    }))
}

/// The newest segment of a ledger, else the ledger, else the index.
fn newest(plane: &Plane, kind: &str) -> Result<Option<PathBuf>, Failure> {
    let segments = segments(plane, kind)?;
    let plain = [format!("ledger/{kind}.jsonl"), "ledger/index.jsonl".to_owned()];
    let plain = plain.into_iter().map(PathBuf::from).find(|file| plane.root().join(file).is_file());
    Ok(segments.into_iter().next_back().or(plain))
}

/// The segments of a ledger that was rotated, oldest first.
pub(super) fn segments(plane: &Plane, kind: &str) -> Result<Vec<PathBuf>, Failure> {
    let prefix = format!("{kind}-");
    let names = plane.files.names("ledger")?.into_iter();
    let segments = names.filter(|name| {
        name.starts_with(&prefix) && std::path::Path::new(name).extension().is_some_and(|kind| kind == "jsonl")
    });
    Ok(segments.map(|name| PathBuf::from("ledger").join(name)).collect())
}

/// Where an entry stands, as evidence: its file, its lines as a range from 0 that leaves its end out, and its hash.
pub(super) fn pointer(entry: &Value, number: u64, path: &Path) -> Value {
    let text = |names: [&str; 2]| names.iter().find_map(|name| entry.get(name)?.as_str()).unwrap_or_default();
    json!({
        "source": "ledger",
        "path": path.display().to_string(),
        "range": [number - 1, number],
        "hash": text(["entry_hash", "hash"]),
        "timestamp": text(["timestamp", "ts"]),
    })
}

/// The event of an entry: `event_type`, in our own format `event`.
pub(super) fn event_of(entry: &Value) -> &str {
    ["event_type", "event"].iter().find_map(|name| entry.get(name)?.as_str()).unwrap_or_default()
}

/// A member of an entry: its own, else of its `metadata`, else of its `data`.
pub(super) fn member<'a>(entry: &'a Value, name: &str) -> Option<&'a Value> {
    [Some(entry), entry.get("metadata"), entry.get("data")]
        .into_iter()
        .flatten()
        .find_map(|object| object.get(name).filter(|value| !value.is_null()))
}
