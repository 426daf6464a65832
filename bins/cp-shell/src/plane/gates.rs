//! The gates: what each looks at, and what failed at them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};

use crate::plane::ledgers::{entry, event_of, member, segments};
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
    /// The last thing that was checked failed.
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
        plane.files.lines(&file, &mut |number, bytes, path| {
            let entry = entry(number, bytes);
            if !has_failed(&entry) {
                return;
            }
            let failure = failure(&entry, number, path);
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
fn ledgers(plane: &Plane) -> Result<Vec<PathBuf>, Failure> {
    let mut files = segments(plane, "governance")?;
    let current = PathBuf::from("ledger/governance.jsonl");
    if plane.root().join(&current).is_file() {
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
    let hash = ["entry_hash", "hash"].iter().find_map(|name| entry.get(name));
    let evidence = match member(entry, "evidence") {
        Some(Value::Array(evidence)) => Value::Array(evidence.clone()),
        Some(other) => json!([other]),
        None => json!([{
            "source": "ledger",
            "path": path.display().to_string(),
            "range": [number - 1, number],
            "hash": hash,
            "timestamp": text(&["timestamp", "ts"]),
        }]),
    };
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

/// Whether the gates let things through, by the newest entries.
pub(super) fn state(plane: &Plane) -> GateState {
    let newest = ledgers(plane).ok().and_then(|files| files.into_iter().next_back());
    let tail = newest.and_then(|file| plane.files.tail(&file, LATELY).ok().flatten()).unwrap_or_default();
    let mut state = GateState::Open;
    for line in tail.split(|byte| *byte == b'\n') {
        let entry = entry(0, line);
        let event = event_of(&entry).to_uppercase();
        if event.contains("FAIL") {
            state = GateState::Closed;
        } else if state == GateState::Closed && event.contains("PASS") {
            state = GateState::Degraded;
        }
    }
    state
}
