//! Where an artifact comes from and what comes from it: file, package, spec, framework, work order and ledger entry, each to the others.

use std::path::Path;

use cp_policy::Row;
use serde_json::{Value, json};

use crate::plane::lineage::{Lineage, add_entries, entry_of, names, union};
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
    // What it is, and which ids work orders and ledger entries may know it by.
    let (kind, mut data, known) = if let Some(row) = lineage.framework(id) {
        let specs = lineage.specs_of_framework(id);
        ("framework", framework(lineage, &specs, row), specs)
    } else if let Some(row) = lineage.spec(id) {
        let packages = lineage.packages_of_spec(id);
        ("spec", spec(lineage, &packages, row), packages)
    } else if let Some(package) = packages::find(plane, id)? {
        let specs = lineage.specs_of_package(&package);
        ("package", self::package(lineage, &specs, &package), specs)
    } else if let Some(order) = lineage.orders.iter().find(|order| order.id == id) {
        ("work_order", work_order(lineage, order), Vec::new())
    } else if let Some(data) = file(plane, lineage, id)? {
        ("file", data, union([lineage.packages_of_file(id), lineage.specs_of_file(id)]))
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
    let own = vec![id.to_owned()];
    if kind != "work_order" {
        let received = data["work_order_id"].as_str().unwrap_or_default().to_owned();
        let known = union([own.clone(), known.clone()]);
        lineage.add_orders(&mut data, |order| order.id == received || known.iter().any(|id| names(&order.payload, id)));
    }
    // The entries of a package are its own: those of its specs are about other packages, too.
    let known = if kind == "package" { own } else { union([own, known]) };
    add_entries(plane, &mut data, &known)?;
    Ok(Some((kind, data)))
}

fn value(row: Option<Row<'_>>) -> Value {
    row.map_or(Value::Null, Row::to_value)
}

fn framework(lineage: &Lineage, specs: &[String], row: Row<'_>) -> Value {
    let mut data = row.to_value();
    data["specs"] = specs.into();
    data["packages"] = union(specs.iter().map(|spec| lineage.packages_of_spec(spec))).into();
    data["files"] = union(specs.iter().map(|spec| lineage.files_of_spec(spec))).into();
    data
}

fn spec(lineage: &Lineage, packages: &[String], row: Row<'_>) -> Value {
    let mut data = row.to_value();
    data["framework"] = value(lineage.framework(row.get("framework_id")));
    data["packages"] = packages.into();
    data["files"] = lineage.files_of_spec(row.get("spec_id")).into();
    data
}

/// The first of the specs, and its framework, as members.
fn add_spec(lineage: &Lineage, data: &mut Value, specs: &[String]) {
    let spec = specs.first().and_then(|spec| lineage.spec(spec));
    data["spec"] = value(spec);
    data["framework"] = value(spec.and_then(|spec| lineage.framework(spec.get("framework_id"))));
    data["specs"] = specs.into();
}

fn package(lineage: &Lineage, specs: &[String], package: &Package) -> Value {
    let mut data = package.info();
    add_spec(lineage, &mut data, specs);
    data["location"] = package.location().into();
    data["work_order_id"] = package.received("work_order_id");
    data
}

fn work_order(lineage: &Lineage, order: &WorkOrder) -> Value {
    let mut data = order.to_value();
    lineage.add_named(&mut data, &order.payload, Some(&order.id));
    data["payload"] = order.payload.clone();
    data
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
