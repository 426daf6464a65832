//! What the Tab key offers: the names of commands, and the ids that each of them takes.

use std::path::{Path, PathBuf};

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};

use crate::interactive::syntax::parse;
use crate::interactive::syntax::table::{self, Act, COMMANDS, Command};
use crate::plane::Plane;

/// The editor's helper: completion, and whether a line goes on.
pub(crate) struct Helper {
    /// Where ids are looked up.
    pub(crate) ids: Ids,
}

/// Where the ids are that commands take. They are read when Tab is pressed, and never before.
#[derive(Clone, Debug)]
pub(crate) struct Ids {
    pub(crate) root: PathBuf,
    pub(crate) agents: Vec<String>,
}

impl Ids {
    /// What a command can be given.
    fn of(&self, command: &Command) -> Vec<String> {
        let fixed = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        match command.act {
            Act::Plane => self.of_tree(command.name()),
            Act::Help => COMMANDS.iter().map(|command| command.name().to_owned()).collect(),
            Act::Agent => self.agents.clone(),
            Act::Mode => fixed(&["persistent", "isolated"]),
            Act::Hub => fixed(&["log"]),
            Act::Inbox => fixed(&["read"]),
            _ => Vec::new(),
        }
    }

    /// What a question about the tree can be about.
    fn of_tree(&self, name: &str) -> Vec<String> {
        match name {
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

    /// The paths below the tree that begin so, directories with a slash.
    fn paths(&self, begun: &str) -> Vec<String> {
        let directory = begun.rfind('/').map_or("", |at| &begun[..=at]);
        let listing = std::fs::read_dir(self.root.join(Path::new(directory))).into_iter().flatten().flatten();
        let name = |entry: std::fs::DirEntry| {
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(format!("{directory}{}{slash}", entry.file_name().to_str()?))
        };
        listing.filter_map(name).collect()
    }
}

/// What can stand at the cursor, and where it begins.
pub(crate) fn candidates(line: &str, at: usize, ids: &Ids) -> (usize, Vec<String>) {
    let typed = &line[..at];
    let Some(rest) = typed.strip_prefix([':', '/']) else { return (at, Vec::new()) };
    let fitting = |mut names: Vec<String>, begun: &str| {
        names.retain(|name| name.starts_with(begun));
        names.sort_unstable();
        names.dedup();
        names
    };
    let Some((name, argument)) = rest.split_once(char::is_whitespace) else {
        let names = COMMANDS.iter().flat_map(|command| command.names.iter().map(|name| (*name).to_owned()));
        // The short names are for those who know them.
        return (1, fitting(names.filter(|name| name.len() > 2 || rest.len() == name.len()).collect(), rest));
    };
    let Some(command) = table::find(name) else { return (at, Vec::new()) };
    let begun = argument.trim_start();
    if begun.contains(char::is_whitespace) {
        return (at, Vec::new());
    }
    let known = if command.name() == "path" { ids.paths(begun) } else { ids.of(command) };
    (at - begun.len(), fitting(known, begun))
}

impl Completer for Helper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok(candidates(line, at, &self.ids))
    }
}

impl Validator for Helper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if parse::goes_on(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}

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
    fn commands_are_offered_by_their_beginning() {
        assert_eq!(offered(":he"), (1, vec!["help".to_owned()]));
        assert_eq!(offered("/expo"), (1, vec!["export".to_owned(), "export-session".to_owned()]));
        assert_eq!(offered("hello"), (5, vec![]));
    }

    #[test]
    fn ids_are_those_of_the_tree() {
        assert_eq!(offered(":pkg PKG"), (5, vec!["PKG-A".to_owned(), "PKG-B".to_owned()]));
        assert_eq!(offered(":agent de"), (7, vec!["default".to_owned(), "dev".to_owned()]));
        assert_eq!(offered(":ctx i"), (5, vec!["isolated".to_owned()]));
        assert_eq!(offered(":path lib/"), (6, vec!["lib/sub/".to_owned(), "lib/x.py".to_owned()]));
        assert_eq!(offered(":spec S"), (6, vec!["SPEC-X".to_owned()]));
        assert_eq!(offered(":nothing x"), (10, vec![]));
    }
}
