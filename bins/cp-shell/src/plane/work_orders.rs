//! Work orders: files below `work_orders/`, and their status in the ledger of the second plane.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cp_common::{Code, Error, Result, clock};
use cp_ledger::{Entry, Ledger, Sync};
use serde_json::{Value, json};

use crate::plane::files::entry;
use crate::plane::ledgers::{event_of, member};
use crate::plane::{Plane, fault};
use cp_ledger::format::canonical::hash_value;

pub(crate) const LEDGER: &str = "planes/ho2/ledger/workorder.jsonl";
/// The deepest directory of work orders.
const DEPTH: usize = 8;

/// A work order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WorkOrder {
    /// `WO-YYYYMMDD-NNN`
    pub(crate) id: String,
    /// The latest recorded status, in lower case.
    pub(crate) status: String,
    /// The file relative to the root, or the ledger.
    pub(crate) source: String,
    /// The content of the file, or the newest entry.
    pub(crate) payload: Value,
    /// The position of its last entry in the ledger, or 0.
    order: usize,
}

impl WorkOrder {
    /// True if the work order is in force.
    pub(crate) fn is_active(&self) -> bool {
        const OVER: [&str; 8] = ["complete", "closed", "done", "cancel", "reject", "fail", "expire", "draft"];
        !OVER.iter().any(|word| self.status.contains(word))
    }

    /// As a row of a list.
    pub(crate) fn to_value(&self) -> Value {
        json!({"work_order_id": self.id, "status": self.status, "active": self.is_active(), "source": self.source})
    }
}

/// The work orders, sorted by id.
pub(super) fn all(plane: &Plane) -> Result<Vec<WorkOrder>> {
    let mut orders: BTreeMap<String, WorkOrder> = BTreeMap::new();
    for file in files(plane, Path::new("work_orders"), 0)? {
        let Some(payload) = plane.json(&file)? else { continue };
        let named = id_in(&payload).map(str::to_owned);
        let Some(id) = named.or_else(|| Some(file.file_stem()?.to_str()?.to_owned())) else { continue };
        let status = payload.get("status").and_then(Value::as_str).unwrap_or("issued").to_lowercase();
        let source = file.display().to_string();
        orders.insert(id.clone(), WorkOrder { id, status, source, payload, order: 0 });
    }
    let mut latest = 0;
    plane.entries(Path::new(LEDGER), &mut |entry, _, _| {
        let Some(id) = id_in(entry).map(str::to_owned) else { return };
        latest += 1;
        let status = member(entry, "status").and_then(Value::as_str).unwrap_or_else(|| event_of(entry)).to_lowercase();
        let order = orders.entry(id.clone()).or_insert_with(|| WorkOrder {
            id,
            status: String::new(),
            source: LEDGER.to_owned(),
            payload: entry.clone(),
            order: 0,
        });
        (order.status, order.order) = (status, latest);
    })?;
    Ok(orders.into_values().collect())
}

/// The work orders, or one of them with its payload.
pub(super) fn query(plane: &Plane, id: Option<&str>) -> Result<Value> {
    let orders = all(plane)?;
    let Some(id) = id else {
        let rows: Vec<Value> = orders.iter().map(WorkOrder::to_value).collect();
        return Ok(json!({"work_orders": rows, "count": rows.len(), "active": active(plane)}));
    };
    let order = orders.into_iter().find(|order| order.id == id).ok_or_else(|| {
        fault("WORK_ORDER_NOT_FOUND", format!("no work order `{id}`")).with("work_order_id", id).hint("`wo` lists them")
    })?;
    let mut answer = order.to_value();
    answer["payload"] = order.payload;
    Ok(answer)
}

/// The active work order: the latest one in the ledger, or the newest id.
pub(crate) fn active(plane: &Plane) -> Option<String> {
    let orders = all(plane).ok()?;
    let newest = orders.into_iter().filter(WorkOrder::is_active).max_by(|a, b| (a.order, &a.id).cmp(&(b.order, &b.id)));
    newest.map(|order| order.id)
}

fn id_in(value: &Value) -> Option<&str> {
    ["work_order_id", "wo_id", "id"]
        .iter()
        .filter_map(|name| member(value, name)?.as_str())
        .find(|id| id.starts_with("WO-"))
}

fn files(plane: &Plane, directory: &Path, depth: usize) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for name in plane.names(directory)? {
        let path = directory.join(&name);
        let kind = plane.root.join(&path).symlink_metadata();
        if kind.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            if depth < DEPTH {
                found.extend(files(plane, &path, depth + 1)?);
            }
        } else if path.extension().is_some_and(|kind| kind == "json") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Applies a work order to a home: appends its payload to the ledger of the second plane, once. The same id with
/// another payload is a conflict. Returns the id, and true unless it had been applied with the same payload.
pub(crate) fn apply(home: &Path, payload: &Value) -> Result<(String, bool)> {
    let id = id_in(payload)
        .filter(|id| is_id(id))
        .ok_or_else(|| {
            Error::validation("the work order has no id")
                .hint("add `work_order_id`: WO-, the date as YYYYMMDD, and three digits, such as WO-20260203-001")
        })?
        .to_owned();
    let path = home.join(LEDGER);
    if let Some(directory) = path.parent() {
        cp_common::home::make_directory(directory)?;
    }
    let mut ledger = Ledger::open(&path, Sync::Line)?;
    let hash = hash_value(payload);
    let mut is_new = true;
    // Checked under the lock, because another process may apply the same work order.
    ledger.append_placed(|_| {
        match applied_before(&path, &id)? {
            Some(before) if before == hash => {
                is_new = false;
                return Ok(Vec::new());
            }
            Some(before) => {
                return Err(Error::new(Code::Conflict, format!("`{id}` was applied with another payload"))
                    .with("work_order_id", id.clone())
                    .with("applied", before)
                    .with("given", hash.clone())
                    .hint("a work order cannot be changed; use a new id"));
            }
            None => {}
        }
        let entry = Entry::new("WO_APPLIED")
            .with("event_type", "WO_APPLIED")
            .with("work_order_id", &id)
            .with("payload_hash", &hash)
            .with("payload", payload)
            .with("status", "active")
            .with("timestamp", &clock::now());
        Ok(vec![entry])
    })?;
    Ok((id, is_new))
}

/// The hash of the payload with which a work order was applied.
fn applied_before(path: &Path, id: &str) -> Result<Option<String>> {
    let mut lines = cp_ledger::read::lines(path)?;
    while let Some(raw) = lines.next()? {
        let entry = entry(raw.number, raw.bytes);
        if event_of(&entry) == "WO_APPLIED" && id_in(&entry) == Some(id) {
            return Ok(member(&entry, "payload_hash").and_then(Value::as_str).map(str::to_owned));
        }
    }
    Ok(None)
}

fn is_id(id: &str) -> bool {
    let digits = |text: &str, many: usize| text.len() == many && text.bytes().all(|byte| byte.is_ascii_digit());
    let mut parts = id.split('-');
    parts.next() == Some("WO")
        && parts.next().is_some_and(|day| digits(day, 8))
        && parts.next().is_some_and(|number| digits(number, 3))
        && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_order_reapply_is_no_op_or_conflict() {
        let home = tempfile::tempdir().unwrap();
        let order = json!({"work_order_id": "WO-20260203-001", "task": "a"});
        let spelled = json!({"task": "a", "work_order_id": "WO-20260203-001"});
        assert!(apply(home.path(), &order).unwrap().1);
        let before = std::fs::read(home.path().join(LEDGER)).unwrap();
        assert!(!apply(home.path(), &spelled).unwrap().1);
        let other = json!({"work_order_id": "WO-20260203-001", "task": "b"});
        assert_eq!(apply(home.path(), &other).unwrap_err().code(), Code::Conflict);
        assert_eq!(std::fs::read(home.path().join(LEDGER)).unwrap(), before);
        assert_eq!(active(&Plane::open(home.path()).unwrap()).as_deref(), Some("WO-20260203-001"));
    }

    #[test]
    fn work_order_id_form_is_checked() {
        assert!(is_id("WO-20260203-001"));
        for bad in ["", "WO-1-1", "WO-20260203-0011", "wo-20260203-001", "WO-20260203-001-x", "../WO-20260203-001"] {
            assert!(!is_id(bad), "{bad}");
        }
    }
}
