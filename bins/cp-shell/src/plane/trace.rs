//! Where an artifact comes from and what comes from it: file, package, spec, framework, work order and ledger entry, each to the others.

use std::path::Path;

use cp_policy::Row;
use serde_json::{Value, json};

use crate::plane::lineage::{Lineage, entries, entry_of, names, union};
use crate::plane::packages::Package;
use crate::plane::{Failure, Plane, WorkOrder, capabilities, packages};

/// `trace`
pub(super) fn trace(plane: &Plane, id: &str) -> Result<Value, Failure> {
    let lineage = Lineage::read(plane)?;
    let (kind, mut data) = match traced(plane, &lineage, id)? {
        Some(found) => found,
        None => ("unknown", json!({"query": id, "message": "Nothing in the tree has this id or path."})),
    };
    if !lineage.unreadable.is_empty() {
        data["unreadable"] = lineage.unreadable.into();
    }
    Ok(json!({"artifact_id": id, "type": kind, "data": data}))
}

fn traced(plane: &Plane, lineage: &Lineage, id: &str) -> Result<Option<(&'static str, Value)>, Failure> {
    let own = vec![id.to_owned()];
    let of_specs = |specs: &[String], row: Row<'_>| {
        let mut data = row.to_value();
        data["packages"] = union(specs.iter().map(|spec| lineage.packages_of_spec(spec))).into();
        data["files"] = union(specs.iter().map(|spec| lineage.files_of_spec(spec))).into();
        data
    };
    // What it is, and the ids by which work orders and ledger entries may name it.
    let (kind, mut data, ids, entry_ids) = if let Some(row) = lineage.framework(id) {
        let specs = lineage.specs_of_framework(id);
        let mut data = of_specs(&specs, row);
        data["specs"] = specs.clone().into();
        let ids = union([own, specs]);
        ("framework", data, ids.clone(), ids)
    } else if let Some(row) = lineage.spec(id) {
        let mut data = of_specs(&own, row);
        data["framework"] = value(lineage.framework(row.get("framework_id")));
        let ids = union([own, lineage.packages_of_spec(id)]);
        ("spec", data, ids.clone(), ids)
    } else if let Some(package) = packages::find(plane, id)? {
        let specs = lineage.specs_of_package(&package);
        let mut data = package.info();
        add_spec(lineage, &mut data, &specs);
        data["location"] = package.location().into();
        data["work_order_id"] = package.received("work_order_id");
        // The entries of its specs are about other packages, too.
        ("package", data, union([own.clone(), specs]), own)
    } else if let Some(order) = lineage.orders.iter().find(|order| order.id == id) {
        let mut data = order.to_value();
        lineage.add_named(&mut data, &order.payload, Some(id));
        data["payload"] = order.payload.clone();
        ("work_order", data, Vec::new(), own)
    } else if let Some(data) = file(plane, lineage, id)? {
        let ids = union([own, lineage.packages_of_file(id), lineage.specs_of_file(id)]);
        ("file", data, ids.clone(), ids)
    } else {
        // Their ids are like no path: no path makes all ledgers be read in vain.
        let entry = if id.contains(['/', '.']) { None } else { entry_of(plane, id)? };
        return Ok(entry.map(|mut data| {
            let entry = data["entry"].take();
            lineage.add_named(&mut data, &entry, None);
            data["entry"] = entry;
            ("ledger_entry", data)
        }));
    };
    if kind != "work_order" {
        let is_its = |order: &WorkOrder| data["work_order_id"] == order.id || names(&order.payload, &ids);
        data["work_orders"] = lineage.orders(is_its).into();
    }
    data["ledger_entries"] = entries(plane, &entry_ids)?.into();
    Ok(Some((kind, data)))
}

fn value(row: Option<Row<'_>>) -> Value {
    row.map_or(Value::Null, Row::to_value)
}

/// The first of the specs, and its framework, as members.
fn add_spec(lineage: &Lineage, data: &mut Value, specs: &[String]) {
    let spec = specs.first().and_then(|spec| lineage.spec(spec));
    data["spec"] = value(spec);
    data["framework"] = value(spec.and_then(|spec| lineage.framework(spec.get("framework_id"))));
    data["specs"] = specs.into();
}

/// A file that somebody owns or lists, or that is there.
fn file(plane: &Plane, lineage: &Lineage, id: &str) -> Result<Option<Value>, Failure> {
    let registered = value(lineage.owned(id));
    let (packages, specs) = (lineage.packages_of_file(id), lineage.specs_of_file(id));
    let is_below = !id.contains('\0') && Path::new(id).is_relative();
    let there = is_below && plane.root().join(id).is_file();
    if registered.is_null() && !there && packages.is_empty() && specs.is_empty() {
        return Ok(None);
    }
    if there {
        capabilities::check_read(plane, id)?;
    }
    let found = if there { plane.files.hash(id)? } else { None };
    let hash = registered["sha256"].as_str().unwrap_or_default();
    let same = |found: &String| hash.trim_start_matches("sha256:") == found.trim_start_matches("sha256:");
    let mut data = json!({
        "file_path": id,
        "owner_package_id": packages.first(),
        "sha256": registered.get("sha256"),
        "classification": registered.get("classification"),
        "installed_at": registered.get("installed_at"),
        "exists": there,
        "current_sha256": found,
        "unchanged": found.as_ref().filter(|_| !hash.is_empty()).map(same),
        "spec_id": specs.first(),
    });
    add_spec(lineage, &mut data, &specs);
    data["package"] = packages.first().and_then(|id| lineage.package(id)).map(Package::row).unwrap_or_default();
    data["packages"] = packages.into();
    Ok(Some(data))
}
