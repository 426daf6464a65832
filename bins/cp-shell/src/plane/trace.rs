//! Where an artifact comes from: a file, a package, a framework or a spec.

use std::path::Path;

use cp_policy::{Row, Table};
use serde_json::{Value, json};

use crate::plane::{Failure, Plane, capabilities, packages, registries};

/// `trace`
pub(super) fn trace(plane: &Plane, id: &str) -> Result<Value, Failure> {
    let found = match framework(plane, id)? {
        Some(data) => Some(("framework", data)),
        None => match spec(plane, id)? {
            Some(data) => Some(("spec", data)),
            None => match package(plane, id)? {
                Some(data) => Some(("package", data)),
                None => file(plane, id)?.map(|data| ("file", data)),
            },
        },
    };
    let (kind, data) = found.unwrap_or_else(|| {
        let message = "No file, package, framework or spec has this id.";
        ("unknown", json!({"query": id, "message": message}))
    });
    Ok(json!({"artifact_id": id, "type": kind, "data": data}))
}

/// The row of a table whose column has this value.
fn row(table: &Table, column: &str, value: &str) -> Value {
    table.rows().find(|row| row.get(column) == value).map_or(Value::Null, Row::to_value)
}

fn framework(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    let mut data = row(&registries::frameworks(plane)?, "framework_id", id);
    if data.is_null() {
        return Ok(None);
    }
    let specs = registries::specs(plane)?;
    let of_it = specs.rows().filter(|row| row.get("framework_id") == id);
    data["specs"] = of_it.map(|row| row.get("spec_id").to_owned()).collect::<Vec<_>>().into();
    Ok(Some(data))
}

fn spec(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    let mut data = row(&registries::specs(plane)?, "spec_id", id);
    if data.is_null() {
        return Ok(None);
    }
    let framework = data["framework_id"].as_str().unwrap_or_default().to_owned();
    data["framework"] = row(&registries::frameworks(plane)?, "framework_id", &framework);
    let packages = packages::all(plane)?;
    let of_it = packages.iter().filter(|package| package.member("spec_id") == id);
    data["packages"] = of_it.map(|package| package.id.clone()).collect::<Vec<_>>().into();
    Ok(Some(data))
}

fn package(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    let Some(package) = packages::find(plane, id)? else { return Ok(None) };
    let mut data = package.info();
    let spec = row(&registries::specs(plane)?, "spec_id", package.member("spec_id").as_str().unwrap_or_default());
    let framework = spec["framework_id"].as_str().unwrap_or_default().to_owned();
    data["framework"] = row(&registries::frameworks(plane)?, "framework_id", &framework);
    data["spec"] = spec;
    data["location"] = package.location().into();
    Ok(Some(data))
}

/// A file that somebody owns, or that is there.
fn file(plane: &Plane, id: &str) -> Result<Option<Value>, Failure> {
    let registered = row(&registries::ownership(plane)?, "file_path", id);
    let is_below = !id.contains('\0') && Path::new(id).is_relative();
    let there = is_below && plane.root().join(id).is_file();
    if registered.is_null() && !there {
        return Ok(None);
    }
    if there {
        capabilities::check_read(plane, id)?;
    }
    let found = if there { plane.files.hash(id)? } else { None };
    let hash = registered["sha256"].as_str().unwrap_or_default();
    let same = |found: &String| hash.trim_start_matches("sha256:") == found.trim_start_matches("sha256:");
    let owner = registered["owner_package_id"].as_str().map(str::to_owned);
    let package = owner.as_deref().map(|owner| packages::find(plane, owner)).transpose()?.flatten();
    Ok(Some(json!({
        "file_path": id,
        "owner_package_id": owner,
        "sha256": registered.get("sha256"),
        "classification": registered.get("classification"),
        "installed_at": registered.get("installed_at"),
        "exists": there,
        "current_sha256": found,
        "unchanged": found.as_ref().filter(|_| !hash.is_empty()).map(same),
        "spec_id": package.map(|package| package.member("spec_id")),
    })))
}
