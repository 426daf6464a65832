//! The class of a path of the tree, after all links are resolved, and the paths that `modules/shell/capabilities.json` lets the shell read
//! and execute. The capabilities narrow the policy, and never widen it.

use std::ffi::OsString;
use std::path::Path;

use cp_common::home::{GOVERNED_ROOTS, PathClass, classify_below, resolved_below};
use serde_json::{Value, json};

use crate::plane::files::damaged;
use crate::plane::{Failure, Plane};
use cp_common::words::{Words, split};
use cp_common::{Context, coprocess};

const CONFIG: &str = "config/governed_roots.json";

/// True if a path of the tree is pristine, or a ledger. Every path is, if the governed roots cannot be read.
fn governs(plane: &Plane, path: &str) -> bool {
    let class = |roots: Vec<String>| classify_below(plane.root(), Path::new(path), &roots).0;
    roots(plane).map_or(true, |roots| matches!(class(roots), PathClass::Pristine | PathClass::AppendOnly))
}

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
const FORBIDDEN: &str = "This path is forbidden by package manifest";

/// Refuses a command if a word names a forbidden path, or if its script is not declared.
fn check_capability(plane: &Plane, argv: &[String]) -> Result<(), Failure> {
    let Some(capabilities) = plane.json(FILE)? else { return Ok(()) };
    let forbidden = patterns(&capabilities, "forbidden")?;
    let execute = patterns(&capabilities, "execute")?;
    let here = std::env::current_dir().unwrap_or_default();
    let script = script(argv);
    for (at, word) in argv.iter().enumerate() {
        for base in [plane.root(), &here] {
            let real = resolved_below(base, Path::new(word));
            let Some(path) = real.strip_prefix(plane.root()).ok().and_then(Path::to_str) else { continue };
            let action = if script == Some(at) { "execute" } else { "read" };
            if forbidden.iter().any(|pattern| matches(pattern, path)) {
                return Err(denied(action, path).hint(FORBIDDEN));
            }
            let is_script = script == Some(at) && real.is_file();
            if is_script && !execute.iter().any(|pattern| declares(pattern, path, &argv[at + 1..])) {
                return Err(denied(action, path)
                    .hint(format!("{FILE} declares the executable scripts: {}", execute.join(", "))));
            }
        }
    }
    Ok(())
}

/// The position of the script that a command runs: its program, or the operand of an interpreter.
fn script(argv: &[String]) -> Option<usize> {
    const INTERPRETERS: [&str; 10] = ["sh", "bash", "dash", "ksh", "zsh", "python", "python3", "node", "perl", "ruby"];
    let program = Path::new(argv.first()?);
    if INTERPRETERS.iter().any(|name| program.file_name().is_some_and(|program| program == *name)) {
        return argv.iter().skip(1).position(|word| !word.starts_with('-')).map(|at| at + 1);
    }
    argv[0].contains('/').then_some(0)
}

/// True if a pattern, which may end with arguments, matches a script with these arguments.
fn declares(pattern: &str, path: &str, arguments: &[String]) -> bool {
    let (file, with) = pattern.split_once(' ').unwrap_or((pattern, "**"));
    matches(file, path) && glob(with.replace('*', "**").as_bytes(), arguments.join(" ").as_bytes())
}

/// Refuses to read a forbidden file.
pub(super) fn check_read(plane: &Plane, path: &str) -> Result<(), Failure> {
    let Some(capabilities) = plane.json(FILE)? else { return Ok(()) };
    let real = resolved_below(plane.root(), Path::new(path));
    let Some(path) = real.strip_prefix(plane.root()).ok().and_then(Path::to_str) else { return Ok(()) };
    if patterns(&capabilities, "forbidden")?.iter().any(|pattern| matches(pattern, path)) {
        return Err(denied("read", path).hint(FORBIDDEN));
    }
    Ok(())
}

fn denied(action: &str, path: &str) -> Failure {
    Failure::new("CAPABILITY_DENIED", format!("Capability denied: {action} on {path}"))
        .with("capability", action)
        .with("path", path)
}

fn patterns(capabilities: &Value, name: &str) -> Result<Vec<String>, Failure> {
    let wrong = || damaged(Path::new(FILE), &format!("`capabilities.{name}` is not a list of strings"));
    match &capabilities["capabilities"][name] {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => {
            list.iter().map(|pattern| pattern.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// True if a pattern matches a path. `*` and `?` do not match `/`, `**` does; a directory matches everything below it.
fn matches(pattern: &str, path: &str) -> bool {
    let pattern = pattern.trim_start_matches("./");
    let below = pattern.strip_suffix('/').unwrap_or(pattern);
    glob(below.as_bytes(), path.as_bytes()) || glob(format!("{below}/**").as_bytes(), path.as_bytes())
}

/// Matches a glob pattern by tracking which prefixes of the path the pattern so far can match. The time is linear in both lengths.
fn glob(pattern: &[u8], path: &[u8]) -> bool {
    let mut reached = vec![false; path.len() + 1];
    reached[0] = true;
    let mut rest = pattern;
    while let Some((first, after)) = rest.split_first() {
        let (many, next) = match after {
            [b'*', next @ ..] if *first == b'*' => (Some(true), next),
            _ => ((*first == b'*').then_some(false), after),
        };
        match many {
            // `**/` also matches the empty string.
            Some(true) if next.first() == Some(&b'/') => {
                let begins = |at: usize| at == 0 || path[at - 1] == b'/';
                let from = reached.iter().position(|here| *here).unwrap_or(reached.len());
                let was = reached.clone();
                for at in from..reached.len() {
                    reached[at] = (begins(at) && at > from) || (was[at] && begins(at));
                }
                rest = &next[1..];
                continue;
            }
            Some(crosses) => {
                for at in 1..reached.len() {
                    reached[at] |= reached[at - 1] && (crosses || path[at - 1] != b'/');
                }
            }
            None => {
                for at in (1..reached.len()).rev() {
                    let same = path[at - 1] == *first || (*first == b'?' && path[at - 1] != b'/');
                    reached[at] = reached[at - 1] && same;
                }
                reached[0] = false;
            }
        }
        rest = next;
    }
    reached[path.len()]
}

/// Refuses a command that the tree forbids. Its words may be relative to the working directory or to the root of the tree; both are
/// checked. cp-exec decides about the programs of a command line when they start.
pub(crate) fn check_command(context: &Context, plane: &Plane, command: &str) -> Result<(), Failure> {
    let Ok(Words { argv, .. }) = split(command) else { return Ok(()) };
    check_capability(plane, &argv)?;
    let is_governed = |word: &&String| Path::new(word).is_relative() && governs(plane, word);
    let Some(word) = argv.iter().skip(1).find(is_governed) else { return Ok(()) };
    let mut question: Vec<OsString> = vec!["check".into(), "--cwd".into(), plane.root().into(), "--".into()];
    question.extend(argv.iter().map(OsString::from));
    let decision: Value = coprocess::ask("cp-exec", &question, b"", context)?.data()?;
    match decision["rule"].as_str() {
        Some(rule @ ("pristine" | "append_only")) => {
            let class = rule.to_uppercase();
            Err(Failure::new("CAPABILITY_DENIED", format!("Capability denied: write on {word}: {class}"))
                .with("capability", "write")
                .with("path", word.as_str())
                .with("rule", class)
                .hint("only the installation of a package writes there; name a file elsewhere by its absolute path"))
        }
        _ => Ok(()),
    }
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
        classify_below(root, Path::new(path), &GOVERNED_ROOTS.map(str::to_owned)).0.name()
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
        for (pattern, path) in [
            ("lib/secret.py", "lib/secret.py"),
            ("lib/*.py", "lib/a.py"),
            ("lib", "lib/a/b.py"),
            ("lib/", "lib/a.py"),
            ("**/secret*", "a/b/secret.txt"),
            ("**/secret*", "secret.txt"),
            ("lib/**", "lib/a/b"),
            ("l?b/a", "lib/a"),
        ] {
            assert!(matches(pattern, path), "{pattern} {path}");
        }
        for (pattern, path) in [("lib/*.py", "lib/a/b.py"), ("lib", "library"), ("l?b", "l/b"), ("secret", "a/secret")]
        {
            assert!(!matches(pattern, path), "{pattern} {path}");
        }
    }

    #[test]
    fn pattern_matching_is_fast() {
        assert!(!matches(&format!("{}x", "**/*a".repeat(40)), &"a/".repeat(200)));
        assert!(matches(&"**/*a*".repeat(3), "x/a/b/a/c/a/d"));
    }

    #[test]
    fn forbidden_path_and_undeclared_script_are_denied() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["modules/shell", "lib", "scripts"] {
            std::fs::create_dir_all(root.path().join(directory)).unwrap();
        }
        for file in ["scripts/good.sh", "scripts/bad.sh", "lib/secret.py"] {
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let text = r#"{"capabilities":{"execute":["scripts/good*"],"forbidden":["lib/secret.py"]}}"#;
        std::fs::write(root.path().join(FILE), text).unwrap();
        let plane = Plane::open(root.path()).unwrap();
        let check =
            |words: &[&str]| check_capability(&plane, &words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        check(&["cat", "lib/other.py"]).unwrap();
        check(&["scripts/good.sh"]).unwrap();
        check(&["ls"]).unwrap();
        let denied = check(&["cat", "lib/../lib/secret.py"]).unwrap_err();
        assert_eq!(
            (denied.code, denied.message.as_str()),
            ("CAPABILITY_DENIED", "Capability denied: read on lib/secret.py")
        );
        assert_eq!(check(&["scripts/bad.sh"]).unwrap_err().message, "Capability denied: execute on scripts/bad.sh");
    }
}
