//! The ledgers of the tree, with one JSON object on each line, and the state of the gates that they record.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use cp_common::Result;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::plane::files::{damaged, entry};
use crate::plane::packages::is_name;
use crate::plane::{Plane, Request, fault};

/// The default number of entries.
const LIMIT: usize = 10;

/// `ledger_query`
pub(super) fn query(plane: &Plane, request: &Request) -> Result<Value> {
    let kind = request.optional("type")?.unwrap_or("governance");
    let limit = request.count("limit")?.unwrap_or(LIMIT);
    let filter = request.optional("event_filter")?.map(str::to_lowercase);
    if !is_name(kind) {
        return Err(fault("INVALID_REQUEST", format!("`{kind}` is not the name of a ledger")).with("field", "type"));
    }
    let file = newest(plane, kind)?.ok_or_else(|| {
        fault("LEDGER_NOT_FOUND", format!("ledger not found: `{kind}`"))
            .with("type", kind)
            .hint(format!("looked for ledger/{kind}-*.jsonl, ledger/{kind}.jsonl and ledger/index.jsonl"))
    })?;
    let (mut newest, mut total) = (VecDeque::new(), 0_u64);
    plane.entries(&file, &mut |entry, _, _| {
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

/// Returns the newest segment of a ledger, or the ledger, or the index.
fn newest(plane: &Plane, kind: &str) -> Result<Option<PathBuf>> {
    let segments = segments(plane, kind)?;
    let plain = [format!("ledger/{kind}.jsonl"), "ledger/index.jsonl".to_owned()];
    let plain = plain.into_iter().map(PathBuf::from).find(|file| plane.root.join(file).is_file());
    Ok(segments.into_iter().next_back().or(plain))
}

/// Returns the segments of a rotated ledger, oldest first.
pub(super) fn segments(plane: &Plane, kind: &str) -> Result<Vec<PathBuf>> {
    let prefix = format!("{kind}-");
    let names = plane.names("ledger")?.into_iter();
    let segments = names.filter(|name| {
        name.starts_with(&prefix) && std::path::Path::new(name).extension().is_some_and(|kind| kind == "jsonl")
    });
    Ok(segments.map(|name| PathBuf::from("ledger").join(name)).collect())
}

/// The position of an entry as evidence: its file, its half-open range of lines from 0, and its hash.
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

/// The event of an entry: `event_type`, or `event` in our own format.
pub(super) fn event_of(entry: &Value) -> &str {
    ["event_type", "event"].iter().find_map(|name| entry.get(name)?.as_str()).unwrap_or_default()
}

/// A member of an entry, of its `metadata` or of its `data`.
pub(super) fn member<'a>(entry: &'a Value, name: &str) -> Option<&'a Value> {
    [Some(entry), entry.get("metadata"), entry.get("data")]
        .into_iter()
        .flatten()
        .find_map(|object| object.get(name).filter(|value| !value.is_null()))
}

/// The number of failures that are listed.
const RECENT: usize = 10;
/// The number of bytes at the end of the newest segment from which the state of the gates is derived.
const LATELY: u64 = 256 << 10;

/// The state of the gates of the tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GateState {
    /// No recent check failed.
    Open,
    /// A check failed recently, and another has passed since.
    Degraded,
    /// The last check failed, or the ledger cannot be read.
    Closed,
}

/// Parses a built-in text.
pub(super) fn built_in<T: DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|e| fault("HANDLER_ERROR", format!("a built-in text: {e}")))
}

/// The gates by name: phase and description.
pub(super) fn gates() -> Result<Map<String, Value>> {
    built_in(include_str!("guidance/gates.json"))
}

/// `gate_status`
pub(super) fn gate_status(plane: &Plane, gate: Option<&str>) -> Result<Value> {
    let mut gates = gates()?;
    let names: Vec<String> = gates.keys().cloned().collect();
    if let Some(gate) = gate {
        if !gates.contains_key(gate) {
            return Err(fault("INVALID_REQUEST", format!("no gate `{gate}`"))
                .with("field", "gate")
                .with("valid_gates", names.clone())
                .hint(format!("the gates are {}", names.join(", "))));
        }
        gates.retain(|name, _| name == gate);
    }
    let (mut recent, mut count) = (VecDeque::new(), 0_u64);
    for file in governance_files(plane)? {
        plane.entries(&file, &mut |entry, number, path| {
            if !has_failed(entry) {
                return;
            }
            let failure = failure(entry, number, path, &names);
            if gate.is_none_or(|gate| failure["gate"] == gate) {
                count += 1;
                if recent.len() == RECENT {
                    recent.pop_front();
                }
                recent.push_back(failure);
            }
        })?;
    }
    Ok(json!({"gates": gates, "recent_failures": recent, "failures_count": count}))
}

/// Returns the files of the governance ledger, oldest first.
pub(super) fn governance_files(plane: &Plane) -> Result<Vec<PathBuf>> {
    let exists = |path: &Path| plane.root.join(path).symlink_metadata().is_ok();
    let directory = Path::new("ledger");
    if exists(directory) && !plane.root.join(directory).is_dir() {
        return Err(damaged(directory, "not a directory"));
    }
    let mut files = segments(plane, "governance")?;
    let current = directory.join("governance.jsonl");
    if exists(&current) {
        // If there are segments, the plain name is the part before the first rotation.
        files.insert(0, current);
    }
    Ok(files)
}

fn has_failed(entry: &Value) -> bool {
    event_of(entry).to_uppercase().contains("FAIL")
}

fn failure(entry: &Value, number: u64, path: &Path, gates: &[String]) -> Value {
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| member(entry, name)?.as_str());
        found.map(str::to_owned)
    };
    // The entry itself comes first, because other evidence may have changed since.
    let mut evidence = vec![pointer(entry, number, path)];
    match member(entry, "evidence") {
        Some(Value::Array(named)) => evidence.extend(named.iter().cloned()),
        named => evidence.extend(named.cloned()),
    }
    json!({
        "gate": text(&["gate"]).or_else(|| gate_in(event_of(entry), gates)),
        "timestamp": text(&["timestamp", "ts"]),
        "package_id": text(&["package_id", "submission_id"]),
        "error_message": text(&["error_message", "reason", "error", "message"]),
        "evidence": evidence,
    })
}

/// The gate in the name of an event, such as `G0A_FAILED`.
fn gate_in(event: &str, gates: &[String]) -> Option<String> {
    let mut words = event.split(|c: char| !c.is_ascii_alphanumeric());
    words.find_map(|word| gates.iter().find(|gate| *gate == word)).cloned()
}

/// The state of the gates by the newest entries; closed if they cannot be read.
pub(crate) fn gate_state(plane: &Plane) -> GateState {
    lately(plane).unwrap_or(GateState::Closed)
}

fn lately(plane: &Plane) -> Result<GateState> {
    let Some(file) = governance_files(plane)?.into_iter().next_back() else { return Ok(GateState::Open) };
    let (tail, is_whole) = plane.tail(&file, LATELY)?.ok_or_else(|| damaged(&file, "leads to no file"))?;
    Ok(state_after(&tail, is_whole))
}

fn state_after(tail: &[u8], is_whole: bool) -> GateState {
    let mut state = GateState::Open;
    // A line that is cut, or still being written, is ignored.
    let begin = if is_whole { 0 } else { tail.iter().position(|byte| *byte == b'\n').map_or(tail.len(), |at| at + 1) };
    let end = tail.iter().rposition(|byte| *byte == b'\n').map_or(begin, |at| at.max(begin));
    for line in tail[begin..end].split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        let entry = entry(0, line);
        let event = event_of(&entry).to_uppercase();
        if event.contains("FAIL") || entry.get("unreadable").is_some() {
            state = GateState::Closed;
        } else if state == GateState::Closed && event.contains("PASS") {
            state = GateState::Degraded;
        }
    }
    state
}
