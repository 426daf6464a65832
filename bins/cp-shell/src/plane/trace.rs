//! `trace`: the lineage of an artifact. Links files, packages, specs, frameworks, work orders and ledger entries by the
//! manifests, registries, work orders and ledgers that name them.

use std::path::{Path, PathBuf};

use cp_policy::{Row, Table};
use serde_json::{Value, json};

use crate::plane::ledgers::{event_of, pointer};
use crate::plane::packages::{Package, path_of};
use crate::plane::{Failure, Plane, WorkOrder, ledgers, packages, paths, registries, work_orders};

/// `trace`
pub(super) fn trace(plane: &Plane, id: &str) -> Result<Value, Failure> {
    let lineage = Lineage::read(plane)?;
    let (kind, mut data) = match traced(plane, &lineage, id)? {
        Some(found) => found,
        None => ("unknown", json!({"query": id, "message": "No artifact of the tree has this id or path."})),
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
    // Its kind, and the ids by which work orders and ledger entries may name it.
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
        // The entries of its specs also concern other packages.
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
        // Ids of entries have no slash or dot; so ledgers are not read for paths.
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

/// Adds the first spec and its framework as members.
fn add_spec(lineage: &Lineage, data: &mut Value, specs: &[String]) {
    let spec = specs.first().and_then(|spec| lineage.spec(spec));
    data["spec"] = value(spec);
    data["framework"] = value(spec.and_then(|spec| lineage.framework(spec.get("framework_id"))));
    data["specs"] = specs.into();
}

/// A file that is registered, listed or present.
fn file(plane: &Plane, lineage: &Lineage, id: &str) -> Result<Option<Value>, Failure> {
    let registered = value(lineage.owned(id));
    let (packages, specs) = (lineage.packages_of_file(id), lineage.specs_of_file(id));
    let is_below = !id.contains('\0') && Path::new(id).is_relative();
    let there = is_below && plane.root().join(id).is_file();
    if registered.is_null() && !there && packages.is_empty() && specs.is_empty() {
        return Ok(None);
    }
    if there {
        paths::check_read(plane, id)?;
    }
    let found = if there { plane.hash(id)? } else { None };
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

/// The number of newest ledger entries that are listed for an artifact.
const ENTRIES: usize = 20;

/// The links between the artifacts of a tree.
pub(super) struct Lineage {
    frameworks: Table,
    specs: Table,
    owners: Table,
    artifacts: Table,
    packages: Vec<Package>,
    pub(super) orders: Vec<WorkOrder>,
    /// Each spec with the files of its manifest.
    listed: Vec<(String, Vec<String>)>,
    /// Messages about files that cannot be read.
    pub(super) unreadable: Vec<String>,
}

impl Lineage {
    pub(super) fn read(plane: &Plane) -> Result<Self, Failure> {
        let (mut listed, mut unreadable) = (Vec::new(), Vec::new());
        for spec in plane.names("specs")? {
            match registries::spec_manifest(plane, &spec) {
                Ok(manifest) => {
                    let assets = manifest.as_ref().and_then(|manifest| manifest["assets"].as_array());
                    let files = assets.into_iter().flatten().filter_map(path_of);
                    listed.push((spec, files.map(str::to_owned).collect()));
                }
                Err(failure) => unreadable.push(failure.message),
            }
        }
        let packages = packages::all(plane)?;
        unreadable.extend(packages.iter().filter_map(Package::fault).map(str::to_owned));
        let orders = work_orders::all(plane).unwrap_or_else(|failure| {
            unreadable.push(failure.message);
            Vec::new()
        });
        Ok(Self {
            frameworks: plane.table(registries::FRAMEWORKS)?,
            specs: plane.table(registries::SPECS)?,
            owners: plane.table(registries::OWNERSHIP)?,
            artifacts: plane.table(registries::ARTIFACTS)?,
            packages,
            orders,
            listed,
            unreadable,
        })
    }

    pub(super) fn framework(&self, id: &str) -> Option<Row<'_>> {
        self.frameworks.rows().find(|row| row.get("framework_id") == id)
    }

    pub(super) fn spec(&self, id: &str) -> Option<Row<'_>> {
        self.specs.rows().find(|row| row.get("spec_id") == id)
    }

    pub(super) fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// The row of a file in the registry of owners.
    pub(super) fn owned(&self, file: &str) -> Option<Row<'_>> {
        self.owners.rows().find(|row| row.get("file_path") == file)
    }

    pub(super) fn specs_of_framework(&self, id: &str) -> Vec<String> {
        let rows = self.specs.rows().filter(|row| row.get("framework_id") == id);
        rows.map(|row| row.get("spec_id").to_owned()).collect()
    }

    /// The specs of a file; the specs that list it come before the spec of its package.
    pub(super) fn specs_of_file(&self, file: &str) -> Vec<String> {
        let listed = self.listed.iter().filter(|(_, files)| files.iter().any(|listed| listed == file));
        let registered = self.artifacts.rows().filter(|row| artifact(row) == file);
        let packages = self.packages_of_file(file);
        let theirs = packages.iter().filter_map(|id| self.package(id)).filter_map(Package::spec);
        union([
            listed.map(|(spec, _)| spec.clone()).collect(),
            registered.map(|row| row.get("source_spec_id").to_owned()).collect(),
            theirs.map(str::to_owned).collect(),
        ])
    }

    /// The packages of a file, its owner first.
    pub(super) fn packages_of_file(&self, file: &str) -> Vec<String> {
        let owner = self.owned(file).map(|row| row.get("owner_package_id").to_owned());
        let with_it = self.packages.iter().filter(|package| package.paths().any(|path| path == file));
        union([owner.into_iter().collect(), with_it.map(|package| package.id.clone()).collect()])
    }

    pub(super) fn files_of_spec(&self, id: &str) -> Vec<String> {
        let listed = self.listed.iter().find(|(spec, _)| spec == id).map(|(_, files)| files.clone());
        let registered = self.artifacts.rows().filter(|row| row.get("source_spec_id") == id);
        let packages = self.packages.iter().filter(|package| package.spec() == Some(id));
        union([
            listed.unwrap_or_default(),
            registered.map(|row| artifact(&row).to_owned()).collect(),
            packages.flat_map(Package::paths).map(str::to_owned).collect(),
        ])
    }

    /// The packages that name a spec, and the packages that contain its files.
    pub(super) fn packages_of_spec(&self, id: &str) -> Vec<String> {
        let naming = self.packages.iter().filter(|package| package.spec() == Some(id));
        let holding = self.files_of_spec(id);
        union([
            naming.map(|package| package.id.clone()).collect(),
            union(holding.iter().map(|file| self.packages_of_file(file))),
        ])
    }

    pub(super) fn specs_of_package(&self, package: &Package) -> Vec<String> {
        let own = package.spec().map(str::to_owned).into_iter().collect();
        union([own, union(package.paths().map(|file| self.specs_of_file(file)))])
    }

    /// Adds the specs, packages and other work orders that a value names as members.
    pub(super) fn add_named(&self, data: &mut Value, by: &Value, order: Option<&str>) {
        let named = |id: &str| names(by, &[id.to_owned()]);
        let specs = self.specs.rows().map(|row| row.get("spec_id").to_owned());
        data["specs"] = specs.filter(|id| named(id)).collect::<Vec<_>>().into();
        let installed_by = |package: &&Package| order.is_some_and(|id| package.received("work_order_id") == id);
        let packages = self.packages.iter().filter(|package| named(&package.id) || installed_by(package));
        data["packages"] = packages.map(|package| package.id.clone()).collect::<Vec<_>>().into();
        data["work_orders"] = self.orders(|other| order != Some(other.id.as_str()) && named(&other.id)).into();
    }

    /// The ids of the work orders for which a predicate holds.
    pub(super) fn orders(&self, holds: impl Fn(&WorkOrder) -> bool) -> Vec<String> {
        self.orders.iter().filter(|order| holds(order)).map(|order| order.id.clone()).collect()
    }
}

/// The newest ledger entries that contain one of these ids.
pub(super) fn entries(plane: &Plane, ids: &[String]) -> Result<Vec<Value>, Failure> {
    let mut found = Vec::new();
    each_entry(plane, &mut |entry, number, path| {
        if names(entry, ids) {
            let id = entry.get("id").or_else(|| entry.get("seq"));
            found.push(json!({"id": id, "event_type": event_of(entry), "evidence": pointer(entry, number, path)}));
        }
    })?;
    Ok(found.split_off(found.len().saturating_sub(ENTRIES)))
}

/// The ledger entry with this id or hash.
pub(super) fn entry_of(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    let mut found = None;
    each_entry(plane, &mut |entry, number, path| {
        if ["id", "entry_hash", "hash"].iter().any(|name| entry.get(name).is_some_and(|value| value == id)) {
            found = Some(json!({"entry": entry, "evidence": pointer(entry, number, path)}));
        }
    })?;
    Ok(found)
}

fn each_entry(plane: &Plane, each: &mut dyn FnMut(&Value, u64, &Path)) -> Result<(), Failure> {
    for file in ledgers::governance_files(plane)?.into_iter().chain([PathBuf::from(work_orders::LEDGER)]) {
        plane.entries(&file, each)?;
    }
    Ok(())
}

/// True if a string anywhere in a value is one of these ids.
pub(super) fn names(value: &Value, ids: &[String]) -> bool {
    match value {
        Value::String(text) => ids.contains(text),
        Value::Array(items) => items.iter().any(|item| names(item, ids)),
        Value::Object(members) => members.values().any(|member| names(member, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The union of lists, in order and without duplicates.
pub(super) fn union(lists: impl IntoIterator<Item = Vec<String>>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for id in lists.into_iter().flatten().filter(|id| !id.is_empty()) {
        if !all.contains(&id) {
            all.push(id);
        }
    }
    all
}

fn artifact<'a>(row: &'a Row<'_>) -> &'a str {
    row.get("artifact_path").trim_start_matches('/')
}
