//! The installed packages: a directory each, with a manifest and a receipt.

use std::path::PathBuf;

use cp_common::{Error, Result};
use serde_json::{Value, json};

use crate::plane::files::damaged;
use crate::plane::{FAULT, Failure, Plane, fault};

/// The plane whose packages are in `installed/` itself.
const ROOT_PLANE: &str = "ho3";

/// An installed package.
#[derive(Clone, Debug, Default)]
pub(crate) struct Package {
    /// The id, which is the name of the directory.
    pub(crate) id: String,
    /// The directory, relative to the root.
    directory: PathBuf,
    /// The plane that contains the directory.
    plane: String,
    manifest: Value,
    receipt: Value,
    /// The failure, if the package cannot be read.
    fault: Option<Value>,
}

impl Package {
    /// A member of the manifest.
    pub(crate) fn member(&self, name: &str) -> Value {
        self.manifest.get(name).cloned().unwrap_or_default()
    }

    fn or(&self, name: &str, default: &str) -> Value {
        self.manifest.get(name).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| default.into())
    }

    /// A member of the receipt, or an empty string.
    pub(crate) fn received(&self, name: &str) -> Value {
        self.receipt.get(name).filter(|value| !value.is_null()).cloned().unwrap_or_else(|| "".into())
    }

    fn assets(&self) -> &[Value] {
        self.manifest.get("assets").and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// The spec of the manifest.
    pub(crate) fn spec(&self) -> Option<&str> {
        self.manifest.get("spec_id")?.as_str()
    }

    /// The reason why the package cannot be read, if any.
    pub(crate) fn fault(&self) -> Option<&str> {
        self.fault.as_ref()?["message"].as_str()
    }

    /// The paths of its assets.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.assets().iter().filter_map(path_of)
    }

    fn plane(&self) -> Value {
        self.manifest.get("plane_id").cloned().unwrap_or_else(|| self.plane.clone().into())
    }

    fn kind(&self) -> Value {
        self.receipt.get("package_type").cloned().unwrap_or_else(|| self.or("package_type", "standard"))
    }

    /// The directory, relative to the root.
    pub(crate) fn location(&self) -> String {
        self.directory.display().to_string()
    }

    /// The package as a row of the list.
    pub(crate) fn row(&self) -> Value {
        let mut row = json!({
            "package_id": self.id,
            "version": self.or("version", "0.0.0"),
            "assets_count": self.assets().len(),
            "package_type": self.kind(),
            "plane_id": self.plane(),
            "installed_at": self.received("installed_at"),
        });
        if let Some(fault) = &self.fault {
            row["error"] = fault.clone();
        }
        row
    }

    /// The full information about the package.
    pub(crate) fn info(&self) -> Value {
        let dependencies = self.member("dependencies");
        json!({
            "package_id": self.id,
            "version": self.or("version", "0.0.0"),
            "spec_id": self.or("spec_id", ""),
            "plane_id": self.plane(),
            "package_type": self.kind(),
            "assets": self.assets(),
            "assets_count": self.assets().len(),
            "dependencies": if dependencies.is_array() { dependencies } else { json!([]) },
            "installed_at": self.received("installed_at"),
            "manifest_hash": self.received("manifest_hash"),
        })
    }
}

/// `pkg_list`
pub(super) fn rows(plane: &Plane, of: Option<&str>) -> Result<Value> {
    let rows: Vec<Value> = list(plane, of)?.iter().map(Package::row).collect();
    Ok(json!({"packages": rows, "count": rows.len()}))
}

/// `pkg_info`
pub(super) fn info(plane: &Plane, id: &str) -> Result<Value> {
    find(plane, id)?.map(|package| package.info()).ok_or_else(|| {
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
        let bad = |error: Error| {
            let fault = Some(json!(Failure::from(invalid(error, &id))));
            Package {
                id: id.clone(),
                directory: directory.join(&id),
                plane: name.to_owned(),
                fault,
                ..Package::default()
            }
        };
        packages.extend(read(plane, &directory, &id, name).unwrap_or_else(|error| Some(bad(error))));
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
        if plane.root().join(&directory).join(id).is_dir() {
            let package = read(plane, &directory, id, &name).map_err(|error| invalid(error, id))?;
            return package.map(Some).ok_or_else(|| {
                fault("INVALID_MANIFEST", format!("the package `{id}` has no manifest.json"))
                    .with("package_id", id)
                    .hint("install it again")
            });
        }
    }
    Ok(None)
}

fn invalid(error: Error, id: &str) -> Error {
    error.with("package_id", id).with(FAULT, "INVALID_MANIFEST")
}

fn directory_of(plane: &str) -> PathBuf {
    if plane == ROOT_PLANE { PathBuf::from("installed") } else { ["planes", plane, "installed"].iter().collect() }
}

/// Reads a package. `None` if the directory has no manifest.
fn read(plane: &Plane, installed: &std::path::Path, id: &str, name: &str) -> Result<Option<Package>> {
    let directory = installed.join(id);
    let Some(manifest) = object(plane, &directory.join("manifest.json"))? else { return Ok(None) };
    if manifest.get("assets").is_some_and(|assets| !assets.is_array()) {
        return Err(damaged(&directory.join("manifest.json"), "`assets` is not a list"));
    }
    let receipt = object(plane, &directory.join("receipt.json"))?.unwrap_or_default();
    Ok(Some(Package { id: id.to_owned(), directory, plane: name.to_owned(), manifest, receipt, fault: None }))
}

fn object(plane: &Plane, file: &std::path::Path) -> Result<Option<Value>> {
    let value = plane.json(file)?;
    if value.as_ref().is_some_and(|value| !value.is_object()) {
        return Err(damaged(file, "not a JSON object"));
    }
    Ok(value)
}

/// True if a name is a plain directory name, without separators.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
