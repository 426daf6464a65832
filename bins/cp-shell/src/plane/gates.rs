//! The gates: what each looks at, and what failed at them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::plane::files::{Tail, damaged, entry};
use crate::plane::ledgers::{event_of, member, pointer, segments};
use crate::plane::{Failure, Plane, guidance};

/// How many failures are listed.
const RECENT: usize = 10;
/// How much of the newest segment the state of the gates is read from.
const LATELY: u64 = 256 << 10;

/// Whether the gates of the tree let things through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GateState {
    /// Nothing failed lately.
    Open,
    /// Something failed lately, and something has passed since.
    Degraded,
    /// The last thing that was checked failed, or what was checked cannot be read.
    Closed,
}

impl GateState {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Degraded => "degraded",
            Self::Closed => "closed",
        }
    }
}

/// `gate_status`
pub(super) fn status(plane: &Plane, gate: Option<&str>) -> Result<Value, Failure> {
    let mut gates = guidance::gates()?;
    if let Some(gate) = gate {
        if !gates.contains_key(gate) {
            let names: Vec<String> = gates.keys().cloned().collect();
            return Err(Failure::request(format!("no gate `{gate}`"))
                .with("field", "gate")
                .with("valid_gates", names.clone())
                .hint(format!("the gates are {}", names.join(", "))));
        }
        gates.retain(|name, _| name == gate);
    }
    let (mut recent, mut count) = (VecDeque::new(), 0_u64);
    for file in ledgers(plane)? {
        plane.files.entries(&file, &mut |entry, number, path| {
            if !has_failed(entry) {
                return;
            }
            let failure = failure(entry, number, path);
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

/// The files of the governance ledger, oldest first.
pub(super) fn ledgers(plane: &Plane) -> Result<Vec<PathBuf>, Failure> {
    let exists = |path: &Path| plane.root().join(path).symlink_metadata().is_ok();
    let directory = Path::new("ledger");
    if exists(directory) && !plane.root().join(directory).is_dir() {
        return Err(damaged(directory, "not a directory"));
    }
    let mut files = segments(plane, "governance")?;
    let current = directory.join("governance.jsonl");
    if exists(&current) {
        // Where there are segments the plain name is what came before the first rotation.
        files.insert(0, current);
    }
    Ok(files)
}

fn has_failed(entry: &Value) -> bool {
    event_of(entry).to_uppercase().contains("FAIL")
}

fn failure(entry: &Value, number: u64, path: &Path) -> Value {
    let text = |names: &[&str]| {
        let found = names.iter().find_map(|name| member(entry, name)?.as_str());
        found.map(str::to_owned)
    };
    // The entry itself first: what it names besides may have changed since.
    let mut evidence = vec![pointer(entry, number, path)];
    match member(entry, "evidence") {
        Some(Value::Array(named)) => evidence.extend(named.iter().cloned()),
        named => evidence.extend(named.cloned()),
    }
    json!({
        "gate": text(&["gate"]).or_else(|| gate_in(event_of(entry))),
        "timestamp": text(&["timestamp", "ts"]),
        "package_id": text(&["package_id", "submission_id"]),
        "error_message": text(&["error_message", "reason", "error", "message"]),
        "evidence": evidence,
    })
}

/// The gate that an event's name has in it: `G0A_FAILED`.
fn gate_in(event: &str) -> Option<String> {
    let gates = guidance::gates().ok()?;
    let mut words = event.split(|c: char| !c.is_ascii_alphanumeric());
    words.find(|word| gates.contains_key(*word)).map(str::to_owned)
}

/// Whether the gates let things through, by the newest entries. What cannot be read lets nothing through.
pub(super) fn state(plane: &Plane) -> GateState {
    lately(plane).unwrap_or(GateState::Closed)
}

fn lately(plane: &Plane) -> Result<GateState, Failure> {
    let Some(file) = ledgers(plane)?.into_iter().next_back() else { return Ok(GateState::Open) };
    let tail = plane.files.tail(&file, LATELY)?;
    tail.as_ref().map(state_after).ok_or_else(|| damaged(&file, "leads to no file"))
}

fn state_after(Tail { bytes: tail, is_whole }: &Tail) -> GateState {
    let mut state = GateState::Open;
    // A line that is cut, or still being written, says nothing.
    let begin = if *is_whole { 0 } else { tail.iter().position(|byte| *byte == b'\n').map_or(tail.len(), |at| at + 1) };
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
