//! Completion with the Tab key: the names of commands, the ids and paths that each command takes, and paths after an
//! `@`.

use std::path::{Path, PathBuf};

use crate::interactive::commands::{COMMANDS, Command, find};
use crate::plane::Plane;

/// The sources of ids for completion. They are read only when Tab is pressed.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub(crate) root: PathBuf,
    pub(crate) agents: Vec<String>,
}

impl Ids {
    /// The possible arguments of a command.
    fn of(&self, command: &Command) -> Vec<String> {
        let fixed = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match command.name() {
            "help" => COMMANDS.iter().map(|command| command.name().to_owned()).collect(),
            "agent" => self.agents.clone(),
            "ctx" => fixed(&["persistent", "isolated"]),
            "hub" => fixed(&["log"]),
            "inbox" => fixed(&["read"]),
            "pkg" => self.names("installed"),
            "spec" => self.names("specs"),
            "gate" => ["MANIFEST", "G0A", "G0B", "G1", "OWN", "G3", "G4", "G5"].map(str::to_owned).to_vec(),
            "ledger" => {
                let files = self.names("ledger");
                files.iter().filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect()
            }
            "specs" | "trace" | "wo" => Plane::open(&self.root).map(|plane| plane.ids()).unwrap_or_default(),
            _ => Vec::new(),
        }
    }

    fn names(&self, below: &str) -> Vec<String> {
        let listing = std::fs::read_dir(self.root.join(below)).into_iter().flatten().flatten();
        listing.filter_map(|entry| entry.file_name().into_string().ok()).filter(|name| !name.starts_with('.')).collect()
    }
}

/// The paths with this beginning, relative to a directory. Directories get a slash; hidden files are offered only after
/// a dot.
fn paths(below: &Path, begun: &str) -> Vec<String> {
    let (directory, name) = begun.split_at(begun.rfind('/').map_or(0, |at| at + 1));
    let listing = std::fs::read_dir(below.join(directory)).into_iter().flatten().flatten();
    let path = |entry: std::fs::DirEntry| {
        let slash = if entry.path().is_dir() { "/" } else { "" };
        let found = entry.file_name().into_string().ok()?;
        // A name with control characters is not shown.
        let is_meant = name.starts_with('.') || !found.starts_with('.');
        (is_meant && !found.contains(char::is_control)).then(|| format!("{directory}{found}{slash}"))
    };
    listing.filter_map(path).collect()
}

/// The completions at the cursor, and where the completed word begins.
pub(crate) fn candidates(line: &str, at: usize, ids: &Ids) -> (usize, Vec<String>) {
    let typed = &line[..at];
    let here = Path::new(".");
    let fitting = |mut names: Vec<String>, begun: &str| {
        names.retain(|name| name.starts_with(begun));
        names.sort_unstable();
        names.dedup();
        names
    };
    let word = typed.rsplit(char::is_whitespace).next().unwrap_or_default();
    if let Some(begun) = word.strip_prefix('@') {
        return (at - begun.len(), fitting(paths(here, begun), begun));
    }
    let Some(rest) = typed.strip_prefix([':', '/']) else { return (at, Vec::new()) };
    let Some((name, argument)) = rest.split_once(char::is_whitespace) else {
        let names = COMMANDS.iter().flat_map(Command::names).map(str::to_owned);
        // Short names are not offered.
        return (1, fitting(names.filter(|name| name.len() > 2 || rest.len() == name.len()).collect(), rest));
    };
    let Some(command) = find(name) else { return (at, Vec::new()) };
    let begun = argument.trim_start();
    let known = match command.name() {
        _ if begun.contains(char::is_whitespace) => return (at, Vec::new()),
        "path" => paths(&ids.root, begun),
        _ => ids.of(command),
    };
    (at - begun.len(), fitting(known, begun))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offered(line: &str) -> (usize, Vec<String>) {
        let root = tempfile::tempdir().unwrap();
        for below in ["installed/PKG-A", "installed/PKG-B", "specs/SPEC-X", "lib/sub"] {
            std::fs::create_dir_all(root.path().join(below)).unwrap();
        }
        std::fs::write(root.path().join("lib/x.py"), "").unwrap();
        candidates(
            line,
            line.len(),
            &Ids { root: root.path().to_owned(), agents: vec!["default".into(), "dev".into()] },
        )
    }

    #[test]
    fn completion_offers_commands_and_ids_of_tree() {
        for (line, from, words) in [
            (":he", 1, &["help"][..]),
            ("/expo", 1, &["export", "export-session"]),
            ("hello", 5, &[]),
            (":pkg PKG", 5, &["PKG-A", "PKG-B"]),
            (":agent de", 7, &["default", "dev"]),
            (":ctx i", 5, &["isolated"]),
            (":path lib/", 6, &["lib/sub/", "lib/x.py"]),
            (":spec S", 6, &["SPEC-X"]),
            (":nothing x", 10, &[]),
        ] {
            assert_eq!(offered(line), (from, words.iter().map(|word| (*word).to_owned()).collect()), "{line}");
        }
    }

    #[test]
    fn completion_offers_hidden_paths_after_dot() {
        let root = tempfile::tempdir().unwrap();
        for file in ["lib/x.py", "lib/.hidden", "lib/a b.md", "lib/\x1b[31m"] {
            std::fs::create_dir_all(root.path().join("lib")).unwrap();
            std::fs::write(root.path().join(file), "").unwrap();
        }
        let path = root.path().display().to_string();
        let named = |names: &[&str]| names.iter().map(|name| format!("{path}/{name}")).collect::<Vec<_>>();
        assert_eq!(offered(&format!("look at @{path}/l")).1, named(&["lib/"]));
        assert_eq!(offered(&format!("see @{path}/lib/.")).1, named(&["lib/.hidden"]));
        assert_eq!(offered(&format!("look at {path}/l")).1, Vec::<String>::new());
        assert_eq!(offered("me@ex").1, Vec::<String>::new());
    }
}
