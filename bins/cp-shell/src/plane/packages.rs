//! The installed packages: a directory each, with a manifest and a receipt.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::plane::files::damaged;
use crate::plane::{Failure, Plane};

/// The plane whose packages lie in `installed/` itself.
const ROOT_PLANE: &str = "ho3";

/// A package that is installed.
#[derive(Clone, Debug)]
pub(crate) struct Package {
    /// Its id: the name of its directory.
    pub(crate) id: String,
    /// Its directory, below the root.
    directory: PathBuf,
    /// The plane whose directory it lies in.
    plane: String,
    manifest: Map<String, Value>,
    receipt: Map<String, Value>,
}

impl Package {
    /// A member of the manifest.
    pub(crate) fn member(&self, name: &str) -> Value {
        self.manifest.get(name).cloned().unwrap_or_default()
    }

    fn either(&self, name: &str) -> Value {
        self.receipt.get(name).or_else(|| self.manifest.get(name)).cloned().unwrap_or_default()
    }

    fn assets(&self) -> Vec<Value> {
        self.manifest.get("assets").and_then(Value::as_array).cloned().unwrap_or_default()
    }

    fn plane(&self) -> Value {
        self.manifest.get("plane_id").cloned().unwrap_or_else(|| self.plane.clone().into())
    }

    fn kind(&self) -> Value {
        let kind = self.either("package_type");
        if kind.is_null() { "standard".into() } else { kind }
    }

    /// As a row of the list.
    pub(crate) fn row(&self) -> Value {
        json!({
            "package_id": self.id,
            "version": self.member("version"),
            "assets_count": self.assets().len(),
            "package_type": self.kind(),
            "plane_id": self.plane(),
            "installed_at": self.receipt.get("installed_at"),
        })
    }

    /// All there is to know.
    pub(crate) fn info(&self) -> Value {
        let dependencies = self.member("dependencies");
        json!({
            "package_id": self.id,
            "version": self.member("version"),
            "spec_id": self.member("spec_id"),
            "plane_id": self.plane(),
            "package_type": self.kind(),
            "assets": self.assets(),
            "assets_count": self.assets().len(),
            "dependencies": if dependencies.is_array() { dependencies } else { json!([]) },
            "installed_at": self.receipt.get("installed_at"),
            "manifest_hash": self.receipt.get("manifest_hash"),
        })
    }
}

/// The installed packages of a plane.
pub(super) fn list(plane: &Plane, of: Option<&str>) -> Result<Vec<Package>, Failure> {
    let name = of.unwrap_or(ROOT_PLANE);
    if !is_name(name) {
        return Err(Failure::request(format!("`{name}` is not the name of a plane"))
            .with("field", "plane")
            .hint("the planes are ho1, ho2 and ho3"));
    }
    let directory = directory_of(name);
    let mut packages = Vec::new();
    for id in plane.files.names(&directory)? {
        packages.extend(read(plane, &directory, &id, name)?);
    }
    Ok(packages)
}

/// All packages of all planes.
pub(super) fn all(plane: &Plane) -> Result<Vec<Package>, Failure> {
    let mut packages = list(plane, None)?;
    for name in plane.files.names("planes")? {
        if is_name(&name) && name != ROOT_PLANE {
            packages.extend(list(plane, Some(&name))?);
        }
    }
    Ok(packages)
}

/// One package, in whichever plane it is.
pub(super) fn find(plane: &Plane, id: &str) -> Result<Option<Package>, Failure> {
    if !is_name(id) {
        return Ok(None);
    }
    let mut planes = vec![ROOT_PLANE.to_owned()];
    planes.extend(plane.files.names("planes")?.into_iter().filter(|name| is_name(name) && name != ROOT_PLANE));
    for name in planes {
        let directory = directory_of(&name);
        if plane.root().join(&directory).join(id).is_dir() {
            let package = read(plane, &directory, id, &name)
                .map_err(|failure| Failure { code: "INVALID_MANIFEST", ..failure.with("package_id", id) })?;
            return package.map(Some).ok_or_else(|| {
                Failure::new("INVALID_MANIFEST", format!("the package `{id}` has no manifest.json"))
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

/// Reads a package. A directory without a manifest is none.
fn read(plane: &Plane, installed: &std::path::Path, id: &str, name: &str) -> Result<Option<Package>, Failure> {
    let directory = installed.join(id);
    let Some(manifest) = object(plane, &directory.join("manifest.json"))? else { return Ok(None) };
    if manifest.get("assets").is_some_and(|assets| !assets.is_array()) {
        return Err(damaged(&directory.join("manifest.json"), "`assets` is not a list"));
    }
    let receipt = object(plane, &directory.join("receipt.json"))?.unwrap_or_default();
    Ok(Some(Package { id: id.to_owned(), directory, plane: name.to_owned(), manifest, receipt }))
}

fn object(plane: &Plane, file: &std::path::Path) -> Result<Option<Map<String, Value>>, Failure> {
    match plane.files.json(file)? {
        None => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(damaged(file, "not a JSON object")),
    }
}

impl Package {
    /// Where it lies, below the root.
    pub(crate) fn location(&self) -> String {
        self.directory.display().to_string()
    }
}

/// Whether a name can be that of a directory and nothing more.
pub(super) fn is_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}
