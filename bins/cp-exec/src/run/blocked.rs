//! A guess why a command failed: its standard error names a path that the sandbox hides or keeps read-only, or a port
//! at which a listed name cannot be reached.

use std::path::Path;

use cp_egress::Destination;

use crate::policy::normal;
use crate::refusal::allow_line;
use crate::sandbox::plan::{Operation, View};

/// The errors of a hidden and of a read-only path, in lower case.
const OF_HIDDEN: [&str; 2] = ["permission denied", "eacces"];
const OF_READ_ONLY: [&str; 2] = ["read-only file system", "erofs"];

/// The most bytes at the end of standard error that are read.
const READ: usize = 8 << 10;

/// The guess in a sentence, for the last line that names such a path or port. Relative paths start at `cwd`.
pub(super) fn guess(stderr: &[u8], cwd: &Path, view: &View, listed: &[Destination]) -> Option<String> {
    let text = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(READ)..]);
    let about_path = |line| paths(line).map(|path| normal(&cwd.join(path))).find_map(|path| about(line, &path, view));
    text.lines().rev().find_map(|line| about_path(line).or_else(|| about_port(line, listed)))
}

/// The guess about a line that names a listed name together with another port: `NAME:PORT`, or `NAME port PORT`.
fn about_port(line: &str, listed: &[Destination]) -> Option<String> {
    let line = line.to_ascii_lowercase().replace(" port ", ":");
    let mut words = line.split(|letter: char| !letter.is_ascii_alphanumeric() && !".-:".contains(letter));
    words.find_map(|word| {
        let (name, port) = word.split_once(':')?;
        let port: u16 = port.trim_end_matches(['.', ':']).parse().ok()?;
        let named = listed.iter().filter(|destination| destination.contains(name));
        let ports: Vec<u16> = named.flat_map(Destination::ports).copied().collect();
        (!ports.is_empty() && !ports.contains(&port)).then(|| {
            let line = allow_line("network", &format!("{name}:{port}"));
            format!("a guess: it failed because the policy does not list {name} for port {port}; `{line}` allows it")
        })
    })
}

fn about(line: &str, path: &Path, view: &View) -> Option<String> {
    let line = line.to_lowercase();
    let has = |errors: [&str; 2]| errors.iter().any(|error| line.contains(error));
    let shown = path.display();
    if has(OF_HIDDEN) && view.is_within(Operation::Hidden, path) {
        return Some(format!("a guess: it failed because commands cannot read {shown}, which the policy hides"));
    }
    if !has(OF_READ_ONLY) || !path.parent().is_some_and(Path::is_dir) {
        return None;
    }
    if path.starts_with("/dev") {
        return Some(format!("a guess: it failed because the mode, owner and times of {shown} belong to the machine"));
    }
    if view.is_within(Operation::ReadOnly, path) {
        let reason = "because other programs run what it names";
        return Some(format!("a guess: it failed because {shown} is read-only for commands, {reason}"));
    }
    let advice = format!("`cp-exec allow write {shown}` makes it writable");
    (!view.is_within(Operation::Write, path))
        .then(|| format!("a guess: it failed because {shown} is read-only for commands; {advice}"))
}

/// The words of a line that can be paths.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    let is_border = |letter: char| letter.is_whitespace() || "'\"`,;()‘’".contains(letter);
    let words = line.split(is_border).map(|word| word.trim_end_matches([':', '.']));
    words.filter(|word| word.contains('/') || word.contains('.'))
}
