//! The class of a path, after symbolic links are resolved.

use std::io::ErrorKind;
use std::path::Path;

use cp_common::home::{Home, resolved, resolved_below};
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};

/// The governed roots of a tree without `config/governed_roots.json`.
const GOVERNED_ROOTS: &str =
    "lib scripts frameworks schemas policies registries modules tests specs config docs governed_prompts";

/// The class of a path, which determines the permitted operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum PathClass {
    /// Under a governed root: these programs do not write it.
    Pristine,
    /// Derived from other files, and can be generated again.
    Derived,
    /// Ledgers: only appended to.
    AppendOnly,
    /// Any other path below the root.
    Unknown,
    /// Outside the root.
    External,
}

/// The classes that are the same in every tree. A `*` matches one component.
const CLASSES: [(PathClass, &[&str]); 2] = [
    (PathClass::AppendOnly, &["ledger", "planes/*/ledger", "planes/*/sessions/*"]),
    (PathClass::Derived, &["packages_store", "registries/compiled", "versions", "tmp", "_staging", "installed"]),
];

/// Returns the class of `path` (relative to `root`, or absolute), after `.`, `..` and symbolic links are resolved, and
/// the directory of the root that determines it. The root's own path contains no links. A prefix matches whole
/// components.
pub fn classify(root: &Path, path: &Path, governed_roots: &[String]) -> (PathClass, Option<String>) {
    let path = resolved_below(root, path);
    let Ok(inside) = path.strip_prefix(root) else {
        return (PathClass::External, None);
    };
    let parts: Vec<&str> = inside.components().map(|part| part.as_os_str().to_str().unwrap_or_default()).collect();
    let under = |prefix: &str| {
        let prefix: Vec<&str> = prefix.split('/').filter(|part| !part.is_empty()).collect();
        let matched = parts.get(..prefix.len()).filter(|matched| !matched.is_empty())?;
        let is_equal = |(part, wanted): (&&str, &str)| wanted == "*" || *part == wanted;
        matched.iter().zip(prefix).all(is_equal).then(|| matched.join("/"))
    };
    let fixed = CLASSES.into_iter().flat_map(|(class, prefixes)| prefixes.iter().map(move |prefix| (class, *prefix)));
    let governed = governed_roots.iter().map(|prefix| (PathClass::Pristine, prefix.as_str()));
    let found = fixed.chain(governed).find_map(|(class, prefix)| {
        let matched = under(prefix)?;
        // A governed root is named as its list spells it.
        Some((class, Some(if class == PathClass::Pristine { prefix.to_owned() } else { matched })))
    });
    found.unwrap_or((PathClass::Unknown, None))
}

/// Returns the governed roots of a tree without a list.
pub fn default_roots() -> Vec<String> {
    GOVERNED_ROOTS.split(' ').map(str::to_owned).collect()
}

/// The file that lists the governed roots of a tree.
pub const ROOTS_FILE: &str = "config/governed_roots.json";

/// Parses the list of the governed roots of a tree.
pub fn parse_roots(list: &[u8]) -> serde_json::Result<Vec<String>> {
    #[derive(Deserialize)]
    struct List {
        governed_roots: Vec<String>,
    }
    serde_json::from_slice(list).map(|list: List| list.governed_roots)
}

/// Returns the governed roots of a tree: those in its list, or the default ones if there is no list.
pub fn governed_roots(root: &Path) -> Result<Vec<String>> {
    Ok(listed_roots(root)?.unwrap_or_else(default_roots))
}

/// Returns the roots in the list of a tree; `None` if there is no list. A list that cannot be read or parsed is an error,
/// because the default roots could leave out those that only the list names.
fn listed_roots(root: &Path) -> Result<Option<Vec<String>>> {
    let file = root.join(ROOTS_FILE);
    let error = match std::fs::read(&file).map(|list| parse_roots(&list)) {
        Ok(Ok(roots)) => return Ok(Some(roots)),
        Ok(Err(e)) => Error::config(format!("not a valid list of governed roots: {e}")).at_line(e.line() as u64),
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => Error::config(format!("the list of governed roots cannot be read: {e}")),
    };
    Err(error.in_file(&file).hint(r#"restore the file, or write {"governed_roots":["lib","specs"]}"#).fatal())
}

/// Fails if `path` is pristine for `home`, or for a tree above it that lists its governed roots. Every option that names
/// an output file must call this.
pub fn check_writable(home: &Home, path: &Path) -> Result<()> {
    let path = resolved(&std::path::absolute(path)?);
    let is_configuration = path.starts_with(resolved(&home.path("config")));
    for root in path.ancestors().skip(1).chain([home.root()]) {
        let is_home = root == home.root();
        let Some(roots) = listed_roots(root)?.or_else(|| is_home.then(default_roots)) else { continue };
        if is_configuration || classify(&resolved(root), &path, &roots).0 == PathClass::Pristine {
            return Err(Error::new(Code::Forbidden, format!("{} is PRISTINE", path.display()))
                .with("rule", "pristine")
                .with("class", "PRISTINE")
                .with("path", path.display().to_string())
                .hint(format!("name a file outside the governed roots of {}", root.display()))
                .fatal());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(path: &str) -> PathClass {
        classify(Path::new("/nowhere/root"), Path::new(path), &default_roots()).0
    }

    #[test]
    fn resolved_follows_link_to_missing_target() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("lib")).unwrap();
        std::os::unix::fs::symlink("lib/new.py", root.join("innocent")).unwrap();
        std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
        let roots = ["lib".to_owned()];
        assert_eq!(classify(&root, Path::new("innocent"), &roots).0, PathClass::Pristine);
        assert_eq!(classify(&root, Path::new("other"), &roots).0, PathClass::Unknown);
        assert_eq!(resolved(&root.join("innocent/../x")), root.join("lib/x"));
        assert_eq!(resolved(&root.join("loop")), root.join("loop"));
    }

    #[test]
    fn check_writable_fails_for_pristine_path_of_any_tree() {
        let place = tempfile::tempdir().unwrap();
        let (home, tree) = (place.path().join("home"), place.path().join("tree"));
        std::fs::create_dir_all(tree.join("config")).unwrap();
        std::fs::create_dir_all(home.join("specs")).unwrap();
        let home = Home::find(Some(&home)).unwrap();
        let check = |path: &str| check_writable(&home, &place.path().join(path));
        assert!(check("tree/own/x").is_ok() && check("home/out/x").is_ok() && check("home/specs/x").is_err());
        assert!(check("tree/specs/x").is_ok(), "nothing says that it is a tree");
        std::fs::write(tree.join(ROOTS_FILE), r#"{"governed_roots":["own"]}"#).unwrap();
        let refusal = check("tree/own/x").unwrap_err();
        assert_eq!((refusal.code(), &refusal.details()["class"]), (Code::Forbidden, &"PRISTINE".into()));
        std::os::unix::fs::symlink("tree/own", place.path().join("link")).unwrap();
        assert!(check("link/x").is_err() && check("tree/specs/x").is_ok());
    }

    #[test]
    fn damaged_list_of_roots_permits_nothing() {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(&place.path().join("home"))).unwrap();
        let tree = place.path().join("tree");
        let list = tree.join(ROOTS_FILE);
        std::fs::create_dir_all(tree.join("config")).unwrap();
        let check = || check_writable(&home, &tree.join("own/x"));
        assert_eq!(governed_roots(&tree).unwrap(), default_roots());
        for damage in
            ["", "{", "{\n\"governed_roots\": [\"own\",]}", "[\"own\"]", "{}", "{\"governed_roots\": \"own\"}"]
        {
            std::fs::write(&list, damage).unwrap();
            for error in [governed_roots(&tree).unwrap_err(), check().unwrap_err()] {
                assert_eq!((error.code(), &error.details()["file"]), (Code::Config, &list.to_str().unwrap().into()));
                assert!(error.details()["line"].is_number() && error.hint_text().is_some(), "{damage}");
            }
        }
        std::fs::remove_file(&list).unwrap();
        std::fs::create_dir(&list).unwrap();
        assert_eq!(
            (governed_roots(&tree).unwrap_err().code(), check().unwrap_err().code()),
            (Code::Config, Code::Config)
        );
        std::fs::remove_dir(&list).unwrap();
        std::fs::write(&list, r#"{"governed_roots":["own"]}"#).unwrap();
        assert_eq!(check().unwrap_err().code(), Code::Forbidden);
        std::fs::remove_file(&list).unwrap();
        assert!(check().is_ok());
    }

    #[test]
    fn classify_compares_whole_components() {
        assert_eq!(class("lib/x.py"), PathClass::Pristine);
        assert_eq!(class("library/x.py"), PathClass::Unknown);
        assert_eq!(class("ledger/a.jsonl"), PathClass::AppendOnly);
        assert_eq!(class("ledgerish/x"), PathClass::Unknown);
        assert_eq!(class("planes/ho2/ledger/workorder.jsonl"), PathClass::AppendOnly);
        assert_eq!(class("planes/ho1/sessions/SES-1/session.jsonl"), PathClass::AppendOnly);
        assert_eq!(class("registries/compiled/x.json"), PathClass::Derived);
        assert_eq!(class("registries/x.csv"), PathClass::Pristine);
        assert_eq!(class("lib/../../etc/passwd"), PathClass::External);
        assert_eq!(class("tmp/../lib/x"), PathClass::Pristine);
    }
}
