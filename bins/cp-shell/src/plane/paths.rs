//! The class of a path of the tree, after all links are resolved, and the paths that `modules/shell/capabilities.json`
//! forbids the shell to read. cp-exec decides about commands.

use std::path::Path;

use cp_common::home::resolved_below;
use cp_policy::{PathClass, classify, default_roots};
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::{Value, json};

use crate::plane::files::damaged;
use crate::plane::{Failure, Plane};

const CONFIG: &str = "config/governed_roots.json";

/// `governed_roots`
pub(super) fn governed_roots(plane: &Plane) -> Result<Value, Failure> {
    let roots = roots(plane)?;
    let count = roots.len();
    Ok(json!({"roots": roots, "count": count}))
}

/// The governed roots of the tree, or the default ones.
fn roots(plane: &Plane) -> Result<Vec<String>, Failure> {
    let roots = plane.parsed(CONFIG, |config| {
        let config: Value = serde_json::from_slice(config).map_err(|e| format!("not valid JSON: {e}"))?;
        let roots = config.get("governed_roots").and_then(Value::as_array);
        roots
            .and_then(|roots| roots.iter().map(|root| root.as_str().map(str::to_owned)).collect())
            .ok_or_else(|| "`governed_roots` is not a list of strings".to_owned())
    })?;
    Ok(roots.unwrap_or_else(default_roots))
}

/// `explain_path`
pub(super) fn explain(plane: &Plane, path: &str) -> Result<Value, Failure> {
    if path.contains('\0') {
        return Err(Failure::request("a path cannot contain NUL").with("field", "path"));
    }
    let roots = roots(plane)?;
    let (class, root) = classify(plane.root(), Path::new(path), &roots);
    let held = root.as_deref().unwrap_or_default();
    let explanation = match class {
        PathClass::AppendOnly => format!("{held} holds ledgers, which are append-only."),
        PathClass::Derived => format!("{held} is derived from other files: generate it again instead of changing it."),
        PathClass::Pristine => format!("{held} is a governed root: only the installation of a package writes there."),
        PathClass::Unknown => "No governed, derived or append-only root contains this path.".to_owned(),
        PathClass::External => {
            let real = resolved_below(plane.root(), Path::new(path));
            format!("{} is outside of the tree, which does not govern it.", real.display())
        }
    };
    Ok(json!({"path": path, "classification": class.name(), "governed_root": root, "explanation": explanation}))
}

const FILE: &str = "modules/shell/capabilities.json";

/// Refuses to read a forbidden file.
pub(super) fn check_read(plane: &Plane, path: &str) -> Result<(), Failure> {
    let Some(capabilities) = plane.json(FILE)? else { return Ok(()) };
    let forbidden: Option<Vec<String>> = serde_json::from_value(capabilities["capabilities"]["forbidden"].clone())
        .map_err(|_| damaged(Path::new(FILE), "`capabilities.forbidden` is not a list of strings"))?;
    let forbidden = patterns(&forbidden.unwrap_or_default()).map_err(|e| damaged(Path::new(FILE), &e.to_string()))?;
    let real = resolved_below(plane.root(), Path::new(path));
    let Some(path) = real.strip_prefix(plane.root()).ok().and_then(Path::to_str) else { return Ok(()) };
    if forbidden.is_match(path) {
        return Err(Failure::new("CAPABILITY_DENIED", format!("Capability denied: read on {path}"))
            .with("capability", "read")
            .with("path", path)
            .hint(format!("it is forbidden in {FILE}")));
    }
    Ok(())
}

/// The patterns of a list. `*` and `?` do not match `/`, `**` does; a directory matches everything below it.
fn patterns(list: &[String]) -> Result<GlobSet, globset::Error> {
    let mut set = GlobSetBuilder::new();
    for pattern in list {
        let pattern = pattern.trim_start_matches("./").trim_end_matches('/');
        let literal = |c: char| if "[]{}\\".contains(c) { format!("\\{c}") } else { c.to_string() };
        let pattern: String = pattern.chars().map(literal).collect();
        for pattern in [format!("{pattern}/**"), pattern] {
            set.add(GlobBuilder::new(&pattern).literal_separator(true).build()?);
        }
    }
    set.build()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A tree with a link of each kind, and its real root.
    fn tree() -> (tempfile::TempDir, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join("root");
        for directory in ["lib/deep", "ledger", "other", "planes/ho1/sessions/SES-1/ledger"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        std::fs::write(root.join("lib/x.py"), "").unwrap();
        for (target, link) in [
            ("lib", "innocent"),
            ("lib/not-yet.py", "dangling"),
            ("../outside", "way-out"),
            ("/etc", "absolute"),
            ("loop", "loop"),
            ("../lib", "other/up"),
        ] {
            symlink(target, root.join(link)).unwrap();
        }
        (place, root)
    }

    fn class(root: &Path, path: &str) -> &'static str {
        classify(root, Path::new(path), &default_roots()).0.name()
    }

    #[test]
    fn path_class_resolves_links_and_dots() {
        let (_place, root) = tree();
        for (path, expected) in [
            ("lib/x.py", "PRISTINE"),
            ("lib", "PRISTINE"),
            ("./lib//x.py", "PRISTINE"),
            ("lib/", "PRISTINE"),
            ("library/x", "UNKNOWN"),
            ("ledgerish/x", "UNKNOWN"),
            ("ledger/a.jsonl", "APPEND_ONLY"),
            ("lib/../ledger/a.jsonl", "APPEND_ONLY"),
            ("planes/ho2/ledger/workorder.jsonl", "APPEND_ONLY"),
            ("planes/ho1/sessions/SES-1/session.jsonl", "APPEND_ONLY"),
            ("planes/ho1/x/ledger", "UNKNOWN"),
            ("registries/compiled/x.json", "DERIVED"),
            ("registries/compiled.json", "PRISTINE"),
            ("tmp/../lib/x", "PRISTINE"),
            ("tmp/x", "DERIVED"),
            ("../root/lib/x.py", "PRISTINE"),
            ("..", "EXTERNAL"),
            ("lib/../../x", "EXTERNAL"),
            ("../../../../../../../../etc/passwd", "EXTERNAL"),
            ("/etc/passwd", "EXTERNAL"),
            ("innocent/x.py", "PRISTINE"),
            ("innocent/../x", "UNKNOWN"),
            ("innocent/deep/../../ledger/x", "APPEND_ONLY"),
            ("dangling", "PRISTINE"),
            ("way-out", "EXTERNAL"),
            ("way-out/../root/lib/x.py", "PRISTINE"),
            ("absolute/passwd", "EXTERNAL"),
            ("other/up/x.py", "PRISTINE"),
            ("loop/x", "UNKNOWN"),
            ("lib\u{ff0f}x.py", "UNKNOWN"),
            ("li\u{301}b/x.py", "UNKNOWN"),
            ("LIB/x.py", "UNKNOWN"),
            (" lib/x.py", "UNKNOWN"),
            ("none/../lib/x.py", "PRISTINE"),
        ] {
            assert_eq!(class(&root, path), expected, "{path}");
        }
        assert_eq!(class(&root, root.join("lib/x.py").to_str().unwrap()), "PRISTINE");
        assert_eq!(class(&root, &format!("//{}/./ledger", root.display())), "APPEND_ONLY");
    }

    #[test]
    fn patterns_match_files_parts_and_directories() {
        let matches = |pattern: &str, path: &str| patterns(&[pattern.to_owned()]).unwrap().is_match(path);
        for (pattern, path) in [
            ("lib/secret.py", "lib/secret.py"),
            ("lib/*.py", "lib/a.py"),
            ("lib", "lib/a/b.py"),
            ("lib/", "lib/a.py"),
            ("**/secret*", "a/b/secret.txt"),
            ("**/secret*", "secret.txt"),
            ("lib/**", "lib/a/b"),
            ("l?b/a", "lib/a"),
            ("./lib/[a]{b}\\c", "lib/[a]{b}\\c"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("lib/*.py", "lib/a/b.py"), ("lib", "library"), ("l?b", "l/b"), ("secret", "a/secret")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
        // In no time.
        assert!(!matches(&format!("{}x", "**/*a".repeat(40)), &"a/".repeat(200)));
    }
}
