//! The installed packages: a directory each, with a manifest and a receipt.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use serde_json::{Value, json};

use crate::plane::files::damaged;
use crate::plane::{FAULT, Failure, Plane, fault};

/// The plane whose packages are in `installed/` itself.
const ROOT_PLANE: &str = "ho3";

/// An installed package.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// The id, which is the name of the directory.
    pub(crate) id: String,
    /// The directory, relative to the root.
    pub(crate) location: String,
    /// The full information about the package; with `error` if it cannot be read.
    pub(crate) info: Value,
    /// The work order of the receipt, or an empty string.
    pub(crate) work_order_id: Value,
}

impl Package {
    fn new(id: &str, directory: &Path, plane: &str, manifest: &Value, receipt: &Value) -> Self {
        let member = |object: &Value, name: &str| object.get(name).filter(|value| !value.is_null()).cloned();
        let declared = |name: &str, default: &str| member(manifest, name).unwrap_or_else(|| default.into());
        let received = |name: &str| member(receipt, name).unwrap_or_else(|| "".into());
        let list = |name: &str| member(manifest, name).filter(Value::is_array).unwrap_or_else(|| json!([]));
        let assets = list("assets");
        let info = json!({
            "package_id": id,
            "version": declared("version", "0.0.0"),
            "spec_id": declared("spec_id", ""),
            "plane_id": declared("plane_id", plane),
            "package_type": member(receipt, "package_type").unwrap_or_else(|| declared("package_type", "standard")),
            "assets": assets,
            "assets_count": assets.as_array().map_or(0, Vec::len),
            "dependencies": list("dependencies"),
            "installed_at": received("installed_at"),
            "manifest_hash": received("manifest_hash"),
        });
        let location = directory.display().to_string();
        Self { id: id.to_owned(), location, info, work_order_id: received("work_order_id") }
    }

    /// The spec of the manifest.
    pub(crate) fn spec(&self) -> Option<&str> {
        self.info["spec_id"].as_str().filter(|spec| !spec.is_empty())
    }

    /// The reason why the package cannot be read, if any.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.info["error"]["message"].as_str()
    }

    /// The paths of its assets.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.info["assets"].as_array().into_iter().flatten().filter_map(path_of)
    }

    /// The package as a row of the list.
    pub(crate) fn row(&self) -> Value {
        let names = ["package_id", "version", "assets_count", "package_type", "plane_id", "installed_at", "error"];
        names.iter().filter_map(|name| Some(((*name).to_owned(), self.info.get(name)?.clone()))).collect()
    }
}

/// `pkg_list`
pub(super) fn rows(plane: &Plane, of: Option<&str>) -> Result<Value> {
    let rows: Vec<Value> = list(plane, of)?.iter().map(Package::row).collect();
    Ok(json!({"packages": rows, "count": rows.len()}))
}

/// `pkg_info`
pub(super) fn info(plane: &Plane, id: &str) -> Result<Value> {
    find(plane, id)?.map(|package| package.info).ok_or_else(|| {
        fault("PACKAGE_NOT_FOUND", format!("the package `{id}` is not installed"))
            .with("package_id", id)
            .hint("`pkg_list` lists the installed packages")
    })
}

/// The path of an asset, which is a string or an object with `path`.
pub(super) fn path_of(asset: &Value) -> Option<&str> {
    asset.as_str().or_else(|| asset.get("path")?.as_str()).map(|path| path.trim_start_matches('/'))
}

/// Returns the installed packages of a plane. A package that cannot be read is listed with the reason.
pub(super) fn list(plane: &Plane, of: Option<&str>) -> Result<Vec<Package>> {
    let name = of.unwrap_or(ROOT_PLANE);
    if !is_name(name) {
        return Err(fault("INVALID_REQUEST", format!("`{name}` is not the name of a plane"))
            .with("field", "plane")
            .hint("the planes are ho1, ho2 and ho3"));
    }
    let directory = directory_of(name);
    let mut packages = Vec::new();
    for id in plane.names(&directory)? {
        packages.extend(read(plane, &directory, &id, name).unwrap_or_else(|error| {
            let mut package = Package::new(&id, &directory.join(&id), name, &Value::Null, &Value::Null);
            package.info["error"] = json!(Failure::from(error));
            Some(package)
        }));
    }
    Ok(packages)
}

/// Returns the packages of all planes.
pub(super) fn all(plane: &Plane) -> Result<Vec<Package>> {
    let mut packages = Vec::new();
    for name in planes(plane)? {
        packages.extend(list(plane, Some(&name))?);
    }
    Ok(packages)
}

/// The planes that have packages, the root plane first.
fn planes(plane: &Plane) -> Result<Vec<String>> {
    let others = plane.names("planes")?.into_iter().filter(|name| is_name(name) && name != ROOT_PLANE);
    Ok(std::iter::once(ROOT_PLANE.to_owned()).chain(others).collect())
}

/// Finds a package in any plane.
pub(super) fn find(plane: &Plane, id: &str) -> Result<Option<Package>> {
    if !is_name(id) {
        return Ok(None);
    }
    for name in planes(plane)? {
        let directory = directory_of(&name);
        if plane.root.join(&directory).join(id).is_dir() {
            return read(plane, &directory, id, &name)?.map(Some).ok_or_else(|| {
                fault("INVALID_MANIFEST", format!("the package `{id}` has no manifest.json"))
                    .with("package_id", id)
                    .hint("install it again")
            });
        }
    }
    Ok(None)
}

fn directory_of(plane: &str) -> PathBuf {
    if plane == ROOT_PLANE { PathBuf::from("installed") } else { ["planes", plane, "installed"].iter().collect() }
}

/// Reads a package. `None` if the directory has no manifest.
fn read(plane: &Plane, installed: &Path, id: &str, name: &str) -> Result<Option<Package>> {
    let directory = installed.join(id);
    let object = |file: &Path| match plane.json(file)? {
        Some(value) if !value.is_object() => Err(damaged(file, "not a JSON object")),
        value => Ok(value),
    };
    let files = || {
        let file = directory.join("manifest.json");
        let Some(manifest) = object(&file)? else { return Ok(None) };
        if manifest.get("assets").is_some_and(|assets| !assets.is_array()) {
            return Err(damaged(&file, "`assets` is not a list"));
        }
        Ok(Some((manifest, object(&directory.join("receipt.json"))?.unwrap_or_default())))
    };
    let files = files().map_err(|error: Error| error.with("package_id", id).with(FAULT, "INVALID_MANIFEST"))?;
    Ok(files.map(|(manifest, receipt)| Package::new(id, &directory, name, &manifest, &receipt)))
}

/// True if a name is a plain directory name, without separators.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
