//! `trace`: the lineage of an artifact. Links files, packages, specs, frameworks, work orders and ledger entries by the
//! manifests, registries, work orders and ledgers that name them.

use std::path::{Path, PathBuf};

use cp_common::Result;
use cp_common::home::resolved_below;
use cp_policy::{Row, Table};
use serde_json::{Value, json};

use crate::plane::ledgers::{event_of, pointer};
use crate::plane::packages::{Package, path_of};
use crate::plane::{Plane, WorkOrder, files, ledgers, packages, registries, work_orders};

/// `trace`
pub(super) fn trace(plane: &Plane, id: &str) -> Result<Value> {
    let lineage = Lineage::read(plane)?;
    let (kind, mut data) = match lineage.traced(plane, id)? {
        Some(found) => found,
        None => ("unknown", json!({"query": id, "message": "No artifact of the tree has this id or path."})),
    };
    if !lineage.unreadable.is_empty() {
        data["unreadable"] = lineage.unreadable.into();
    }
    Ok(json!({"artifact_id": id, "type": kind, "data": data}))
}

/// The number of newest ledger entries that are listed for an artifact.
const ENTRIES: usize = 20;

/// The links between the artifacts of a tree.
struct Lineage {
    frameworks: Table,
    specs: Table,
    owners: Table,
    packages: Vec<Package>,
    orders: Vec<WorkOrder>,
    /// Each package with the spec of its manifest, and each package with its files, the owners of files first.
    spec_of: Vec<(String, String)>,
    files_of: Vec<(String, String)>,
    /// Each spec with its files: those of its manifest, those that are registered, and those of its packages.
    covers: Vec<(String, String)>,
    /// Messages about files that cannot be read.
    unreadable: Vec<String>,
}

/// What a relation links to an id, from left to right.
fn right<'a>(relation: &'a [(String, String)], id: &'a str) -> impl Iterator<Item = String> + 'a {
    relation.iter().filter(move |(left, _)| left == id).map(|(_, right)| right.clone())
}

/// What a relation links to an id, from right to left.
fn left<'a>(relation: &'a [(String, String)], id: &'a str) -> impl Iterator<Item = String> + 'a {
    relation.iter().filter(move |(_, right)| right == id).map(|(left, _)| left.clone())
}

impl Lineage {
    fn read(plane: &Plane) -> Result<Self> {
        let (mut covers, mut unreadable) = (Vec::new(), Vec::new());
        for spec in plane.names("specs")? {
            match registries::spec_manifest(plane, &spec) {
                Ok(manifest) => {
                    let assets = manifest.as_ref().and_then(|manifest| manifest["assets"].as_array());
                    let files = assets.into_iter().flatten().filter_map(path_of);
                    covers.extend(files.map(|file| (spec.clone(), file.to_owned())));
                }
                Err(e) => unreadable.push(e.message().to_owned()),
            }
        }
        let artifacts = plane.table(registries::ARTIFACTS)?;
        covers.extend(artifacts.rows.iter().map(|row| {
            (row.get("source_spec_id").to_owned(), row.get("artifact_path").trim_start_matches('/').to_owned())
        }));
        let packages = packages::all(plane)?;
        unreadable.extend(packages.iter().filter_map(Package::fault).map(str::to_owned));
        let orders = work_orders::all(plane).unwrap_or_else(|failure| {
            unreadable.push(failure.message().to_owned());
            Vec::new()
        });
        let owners = plane.table(registries::OWNERSHIP)?;
        let owned =
            owners.rows.iter().map(|row| (row.get("owner_package_id").to_owned(), row.get("file_path").to_owned()));
        let (mut files_of, mut spec_of): (Vec<_>, Vec<_>) = (owned.collect(), Vec::new());
        for package in &packages {
            let files = package.paths().map(str::to_owned);
            files_of.extend(files.map(|file| (package.id.clone(), file)));
            if let Some(spec) = package.spec() {
                spec_of.push((package.id.clone(), spec.to_owned()));
                covers.extend(package.paths().map(|file| (spec.to_owned(), file.to_owned())));
            }
        }
        let (frameworks, specs) = (plane.table(registries::FRAMEWORKS)?, plane.table(registries::SPECS)?);
        Ok(Self { frameworks, specs, owners, packages, orders, spec_of, files_of, covers, unreadable })
    }

    /// The kind of an artifact, and what belongs to it.
    fn traced(&self, plane: &Plane, id: &str) -> Result<Option<(&'static str, Value)>> {
        let own = || vec![id.to_owned()];
        // Its kind, and the ids by which work orders and ledger entries may name it.
        let (kind, mut data, ids, entry_ids) = if let Some(row) = row_of(&self.frameworks, "framework_id", id) {
            let specs = self.specs.rows.iter().filter(|row| row.get("framework_id") == id);
            let specs = union(specs.map(|row| row.get("spec_id").to_owned()));
            let mut data = self.of_specs(&specs, row);
            data["specs"] = specs.clone().into();
            let ids = union(own().into_iter().chain(specs));
            ("framework", data, ids.clone(), ids)
        } else if let Some(row) = row_of(&self.specs, "spec_id", id) {
            let mut data = self.of_specs(&own(), row);
            data["framework"] = self.framework(Some(row));
            let ids = union(own().into_iter().chain(self.packages_of_spec(id)));
            ("spec", data, ids.clone(), ids)
        } else if let Some(package) = packages::find(plane, id)? {
            let files = package.paths().flat_map(|file| self.specs_of_file(file));
            let specs = union(right(&self.spec_of, id).chain(files));
            let mut data = package.info.clone();
            self.add_spec(&mut data, &specs);
            data["location"] = package.location.clone().into();
            data["work_order_id"] = package.work_order_id.clone();
            // The entries of its specs also concern other packages.
            ("package", data, union(own().into_iter().chain(specs)), own())
        } else if let Some(data) = self.file(plane, &self.path_of(plane, id))? {
            let path = data["file_path"].as_str().unwrap_or_default();
            let own = std::iter::once(path.to_owned());
            let ids = union(own.chain(left(&self.files_of, path)).chain(self.specs_of_file(path)));
            ("file", data, ids.clone(), ids)
        } else {
            return Ok(None);
        };
        let is_its = |order: &&WorkOrder| data["work_order_id"] == order.id || names(&order.payload, &ids);
        let orders: Vec<String> = self.orders.iter().filter(is_its).map(|order| order.id.clone()).collect();
        data["work_orders"] = orders.into();
        data["ledger_entries"] = entries(plane, &entry_ids)?.into();
        Ok(Some((kind, data)))
    }

    /// The specs of a file; the specs that list it come before the spec of its package.
    fn specs_of_file(&self, file: &str) -> Vec<String> {
        let packages = union(left(&self.files_of, file));
        union(left(&self.covers, file).chain(packages.iter().flat_map(|package| right(&self.spec_of, package))))
    }

    /// The packages that name a spec, and the packages that contain its files.
    fn packages_of_spec(&self, spec: &str) -> Vec<String> {
        let files = union(right(&self.covers, spec));
        union(left(&self.spec_of, spec).chain(files.iter().flat_map(|file| left(&self.files_of, file))))
    }

    /// A row with the packages and files of its specs.
    fn of_specs(&self, specs: &[String], row: &Row) -> Value {
        let mut data = row.to_value();
        data["packages"] = union(specs.iter().flat_map(|spec| self.packages_of_spec(spec))).into();
        data["files"] = union(specs.iter().flat_map(|spec| right(&self.covers, spec))).into();
        data
    }

    /// The framework of a spec.
    fn framework(&self, spec: Option<&Row>) -> Value {
        value(spec.and_then(|spec| row_of(&self.frameworks, "framework_id", spec.get("framework_id"))))
    }

    /// Adds the first spec and its framework as members.
    fn add_spec(&self, data: &mut Value, specs: &[String]) {
        let spec = specs.first().and_then(|spec| row_of(&self.specs, "spec_id", spec));
        data["spec"] = value(spec);
        data["framework"] = self.framework(spec);
        data["specs"] = specs.into();
    }

    /// A path as the registries have it: as it is written, or after `.`, `..` and links are resolved.
    fn path_of(&self, plane: &Plane, id: &str) -> String {
        let real = (!id.contains('\0')).then(|| resolved_below(&plane.root, Path::new(id)));
        let below = real.as_ref().and_then(|real| real.strip_prefix(&plane.root).ok()?.to_str());
        let is_listed = left(&self.files_of, id).next().is_some();
        below.filter(|_| !is_listed).unwrap_or(id).to_owned()
    }

    /// A file that is registered, listed or present.
    fn file(&self, plane: &Plane, id: &str) -> Result<Option<Value>> {
        let registered = value(row_of(&self.owners, "file_path", id));
        let (packages, specs) = (union(left(&self.files_of, id)), self.specs_of_file(id));
        let is_below = !id.contains('\0') && Path::new(id).is_relative();
        let there = is_below && plane.root.join(id).is_file();
        if registered.is_null() && !there && packages.is_empty() && specs.is_empty() {
            return Ok(None);
        }
        if there {
            files::check_read(plane, id)?;
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
        self.add_spec(&mut data, &specs);
        let package = packages.first().and_then(|id| self.packages.iter().find(|package| package.id == *id));
        data["package"] = package.map(Package::row).unwrap_or_default();
        data["packages"] = packages.into();
        Ok(Some(data))
    }
}

fn row_of<'a>(table: &'a Table, column: &str, id: &str) -> Option<&'a Row> {
    table.rows.iter().find(|row| row.get(column) == id)
}

fn value(row: Option<&Row>) -> Value {
    row.map_or(Value::Null, Row::to_value)
}

/// The newest ledger entries that contain one of these ids.
fn entries(plane: &Plane, ids: &[String]) -> Result<Vec<Value>> {
    let mut found = Vec::new();
    for file in ledgers::governance_files(plane)?.into_iter().chain([PathBuf::from(work_orders::LEDGER)]) {
        plane.entries(&file, &mut |entry, number, path| {
            if names(entry, ids) {
                let id = entry.get("id").or_else(|| entry.get("seq"));
                found.push(json!({"id": id, "event_type": event_of(entry), "evidence": pointer(entry, number, path)}));
            }
        })?;
    }
    Ok(found.split_off(found.len().saturating_sub(ENTRIES)))
}

/// True if a string anywhere in a value is one of these ids.
fn names(value: &Value, ids: &[String]) -> bool {
    match value {
        Value::String(text) => ids.contains(text),
        Value::Array(items) => items.iter().any(|item| names(item, ids)),
        Value::Object(members) => members.values().any(|member| names(member, ids)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The ids without duplicates and blanks, in order.
fn union(ids: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for id in ids {
        if !id.is_empty() && !all.contains(&id) {
            all.push(id);
        }
    }
    all
}
