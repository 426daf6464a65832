//! What may be done with a path of the tree, after everything in it that leads elsewhere is followed.

use std::path::Path;

use cp_common::home::{GOVERNED_ROOTS, PathClass, classify_below, resolved_below};
use serde_json::{Value, json};

use crate::plane::{Failure, Plane};

const CONFIG: &str = "config/governed_roots.json";

/// Whether a path of the tree is pristine, or a ledger. Where the governed roots cannot be read, every path is.
pub(super) fn governs(plane: &Plane, path: &str) -> bool {
    let class = |roots: Vec<String>| classify_below(plane.root(), Path::new(path), &roots).0;
    roots(plane).map_or(true, |roots| matches!(class(roots), PathClass::Pristine | PathClass::AppendOnly))
}

/// `governed_roots`
pub(super) fn governed_roots(plane: &Plane) -> Result<Value, Failure> {
    let roots = roots(plane)?;
    let count = roots.len();
    Ok(json!({"roots": roots, "count": count}))
}

/// The governed roots: those of the tree, else those of every tree.
fn roots(plane: &Plane) -> Result<Vec<String>, Failure> {
    let roots = plane.files.parsed(CONFIG, |config| {
        let config: Value = serde_json::from_slice(config).map_err(|e| format!("not valid JSON: {e}"))?;
        let roots = config.get("governed_roots").and_then(Value::as_array);
        roots
            .and_then(|roots| roots.iter().map(|root| root.as_str().map(str::to_owned)).collect())
            .ok_or_else(|| "`governed_roots` is not a list of strings".to_owned())
    })?;
    Ok(roots.unwrap_or_else(|| GOVERNED_ROOTS.map(str::to_owned).to_vec()))
}

/// `explain_path`
pub(super) fn explain(plane: &Plane, path: &str) -> Result<Value, Failure> {
    if path.contains('\0') {
        return Err(Failure::request("a path cannot contain NUL").with("field", "path"));
    }
    let roots = roots(plane)?;
    let (class, root) = classify_below(plane.root(), Path::new(path), &roots);
    let held = root.as_deref().unwrap_or_default();
    let explanation = match class {
        PathClass::AppendOnly => format!("{held} holds ledgers: they are appended to, and never changed."),
        PathClass::Derived => format!("{held} is made from something else: it is changed by making it again."),
        PathClass::Pristine => format!("{held} is a governed root: only installing a package writes there."),
        PathClass::Unknown => "No governed, derived or append-only root holds this path.".to_owned(),
        PathClass::External => {
            let real = resolved_below(plane.root(), Path::new(path));
            format!("{} lies outside of the tree: nothing here governs it.", real.display())
        }
    };
    Ok(json!({"path": path, "classification": class.name(), "governed_root": root, "explanation": explanation}))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use std::os::unix::fs::symlink;

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
        classify_below(root, Path::new(path), &GOVERNED_ROOTS.map(str::to_owned)).0.name()
    }

    #[test]
    fn nothing_in_a_path_hides_where_it_leads() {
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
}
