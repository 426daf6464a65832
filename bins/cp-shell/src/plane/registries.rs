//! The registries: frameworks, specs, and the counts of all of them.

use std::collections::BTreeMap;

use cp_policy::{Row, Table};
use serde_json::{Value, json};

use crate::plane::files::text;
use crate::plane::packages::is_name;
use crate::plane::{Failure, Plane, yaml};

const FRAMEWORKS: &str = "registries/frameworks_registry.csv";
const SPECS: &str = "registries/specs_registry.csv";
const OWNERSHIP: &str = "registries/file_ownership.csv";
const ARTIFACTS: &str = "registries/control_plane_registry.csv";

pub(super) fn frameworks(plane: &Plane) -> Result<Table, Failure> {
    plane.files.table(FRAMEWORKS)
}

pub(super) fn specs(plane: &Plane) -> Result<Table, Failure> {
    plane.files.table(SPECS)
}

/// Who owns which file.
pub(super) fn ownership(plane: &Plane) -> Result<Table, Failure> {
    plane.files.table(OWNERSHIP)
}

/// Which spec each artifact comes from, where a tree has this registry.
pub(super) fn artifacts(plane: &Plane) -> Result<Table, Failure> {
    plane.files.table(ARTIFACTS)
}

/// `list_frameworks`
pub(super) fn list_frameworks(plane: &Plane) -> Result<Value, Failure> {
    let frameworks: Vec<Value> = frameworks(plane)?.rows().map(Row::to_value).collect();
    Ok(json!({"frameworks": frameworks, "count": frameworks.len()}))
}

/// `list_specs`
pub(super) fn list_specs(plane: &Plane, framework: Option<&str>) -> Result<Value, Failure> {
    let table = specs(plane)?;
    let wanted = table.rows().filter(|row| framework.is_none_or(|id| row.get("framework_id") == id));
    let specs: Vec<Value> = wanted.map(Row::to_value).collect();
    Ok(json!({"specs": specs, "count": specs.len(), "filter": framework.map(|id| json!({"framework_id": id}))}))
}

/// `spec_info`
pub(super) fn spec_info(plane: &Plane, id: &str) -> Result<Value, Failure> {
    let manifest = spec_manifest(plane, id)?.ok_or_else(|| {
        Failure::new("SPEC_NOT_FOUND", format!("the spec `{id}` has no manifest"))
            .with("spec_id", id)
            .hint("list_specs lists the registered ones")
    })?;
    Ok(json!({"spec_id": id, "manifest": manifest}))
}

/// The manifest of a spec, if it has one.
pub(super) fn spec_manifest(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    if !is_name(id) {
        return Ok(None);
    }
    let file = std::path::Path::new("specs").join(id).join("manifest.yaml");
    plane.files.parsed(&file, |bytes| match yaml::parse(text(bytes)?) {
        Ok(manifest @ Value::Object(_)) => Ok(manifest),
        Ok(_) => Err("not a mapping".to_owned()),
        Err(reason) => Err(format!("not valid YAML: {reason}")),
    })
}

/// How much each registry holds.
pub(super) fn stats(plane: &Plane) -> Result<Value, Failure> {
    let (mut total, mut registries) = (0, 0);
    let (mut by_status, mut by_registry) = (BTreeMap::<String, usize>::new(), BTreeMap::new());
    for name in plane.files.names("registries")? {
        if std::path::Path::new(&name).extension().is_none_or(|kind| kind != "csv") {
            continue;
        }
        let table = plane.files.table(std::path::Path::new("registries").join(&name))?;
        registries += 1;
        total += table.len();
        by_registry.insert(name, table.len());
        for (status, count) in table.counts("status") {
            let status = if status.is_empty() { "unknown".to_owned() } else { status };
            *by_status.entry(status).or_default() += count;
        }
    }
    Ok(json!({"registries": registries, "total_items": total, "by_status": by_status, "by_registry": by_registry}))
}
