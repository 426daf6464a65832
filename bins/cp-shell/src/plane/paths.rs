//! What may be done with a path of the tree, after everything in it that leads elsewhere is followed.

use std::path::Path;
use std::rc::Rc;

use cp_common::home::{GOVERNED_ROOTS, resolved_below};
use serde_json::{Value, json};

use crate::plane::files::damaged;
use crate::plane::{Failure, Plane};

const CONFIG: &str = "config/governed_roots.json";
const DERIVED: [&str; 6] = ["packages_store", "registries/compiled", "versions", "tmp", "_staging", "installed"];

/// Whether a path of the tree is pristine, or a ledger. Where the governed roots cannot be read, every path is.
pub(super) fn governs(plane: &Plane, path: &str) -> bool {
    let class = |roots: Rc<[String]>| classify(plane.root(), Path::new(path), &roots).0;
    roots(plane).map_or(true, |roots| ["PRISTINE", "APPEND_ONLY"].contains(&class(roots)))
}

/// `governed_roots`
pub(super) fn governed_roots(plane: &Plane) -> Result<Value, Failure> {
    let roots = roots(plane)?;
    Ok(json!({"roots": roots.as_ref(), "count": roots.len()}))
}

/// The governed roots: those of the tree, else those of every tree.
fn roots(plane: &Plane) -> Result<Rc<[String]>, Failure> {
    let Some(bytes) = plane.files.bytes(CONFIG)? else {
        return Ok(Rc::from(GOVERNED_ROOTS.map(str::to_owned)));
    };
    // The same bytes hold the same roots.
    if let Some((of, roots)) = &*plane.roots.borrow()
        && Rc::ptr_eq(of, &bytes)
    {
        return Ok(Rc::clone(roots));
    }
    let roots = parsed(&bytes)?;
    *plane.roots.borrow_mut() = Some((bytes, Rc::clone(&roots)));
    Ok(roots)
}

fn parsed(config: &[u8]) -> Result<Rc<[String]>, Failure> {
    let config: Value =
        serde_json::from_slice(config).map_err(|e| damaged(Path::new(CONFIG), &format!("not valid JSON: {e}")))?;
    let roots = config.get("governed_roots").and_then(Value::as_array);
    let roots: Option<Rc<[String]>> =
        roots.and_then(|roots| roots.iter().map(|root| root.as_str().map(str::to_owned)).collect());
    roots.ok_or_else(|| damaged(Path::new(CONFIG), "`governed_roots` is not a list of strings"))
}

/// `explain_path`
pub(super) fn explain(plane: &Plane, path: &str) -> Result<Value, Failure> {
    if path.contains('\0') {
        return Err(Failure::request("a path cannot contain NUL").with("field", "path"));
    }
    let roots = roots(plane)?;
    let (classification, root, explanation) = classify(plane.root(), Path::new(path), &roots);
    Ok(json!({"path": path, "classification": classification, "governed_root": root, "explanation": explanation}))
}

/// The class of a path, the root that gives it, and what that means.
fn classify(root: &Path, path: &Path, governed: &[String]) -> (&'static str, Option<String>, String) {
    let real = resolved_below(root, path);
    let Ok(inside) = real.strip_prefix(root) else {
        return ("EXTERNAL", None, format!("{} lies outside of the tree: nothing here governs it.", real.display()));
    };
    let parts: Vec<&std::ffi::OsStr> = inside.iter().collect();
    let under = |prefix: &&str| {
        let mut prefix = prefix.split('/').filter(|part| !part.is_empty()).peekable();
        let mut parts = parts.iter();
        prefix.peek().is_some() && prefix.all(|part| parts.next().is_some_and(|here| *here == part))
    };
    let text = |at: usize| parts.get(at).and_then(|part| part.to_str()).unwrap_or_default();
    let append_only = match (text(0), text(2)) {
        ("ledger", _) => Some("ledger".to_owned()),
        ("planes", "ledger") => Some(format!("planes/{}/ledger", text(1))),
        ("planes", "sessions") if parts.len() > 4 => Some(format!("planes/{}/sessions/{}", text(1), text(3))),
        _ => None,
    };
    if let Some(root) = append_only {
        let explanation = format!("{root} holds ledgers: they are appended to, and never changed.");
        return ("APPEND_ONLY", Some(root), explanation);
    }
    if let Some(root) = DERIVED.iter().find(|prefix| under(prefix)) {
        let explanation = format!("{root} is made from something else: it is changed by making it again.");
        return ("DERIVED", Some((*root).to_owned()), explanation);
    }
    if let Some(root) = governed.iter().map(String::as_str).find(|prefix| under(prefix)) {
        let explanation = format!("{root} is a governed root: only installing a package writes there.");
        return ("PRISTINE", Some(root.to_owned()), explanation);
    }
    ("UNKNOWN", None, "No governed, derived or append-only root holds this path.".to_owned())
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
        classify(root, Path::new(path), &GOVERNED_ROOTS.map(str::to_owned)).0
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

    #[test]
    fn the_programs_that_write_have_the_same_classes() {
        let (_place, root) = tree();
        let governed = GOVERNED_ROOTS.map(str::to_owned);
        for path in ["lib/x.py", "ledger/x", "tmp/x", "x", "../x", "innocent/x", "planes/ho1/sessions/SES-1/x"] {
            let theirs = serde_json::to_value(cp_common::home::classify(&root, Path::new(path), &governed)).unwrap();
            assert_eq!(class(&root, path), theirs, "{path}");
        }
    }
}
