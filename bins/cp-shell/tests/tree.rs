//! Fixtures with a home and a control plane tree.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::path::{Path, PathBuf};

use cp_testkit::{Directory, Outcome, Place, Program};
use serde_json::Value;

/// A home with a tree beside it.
pub(crate) struct Tree {
    place: Place,
    /// The path of the tree.
    pub(crate) tree: Directory,
}

impl Deref for Tree {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Tree {
    /// A home with the complete tree.
    pub(crate) fn new() -> Self {
        let place = Self::empty();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tree");
        place.program("cp").arg("-a").arg(source).arg(&place.tree).run().success();
        place
    }

    /// A home without a tree.
    pub(crate) fn empty() -> Self {
        let place = Place::of("cp-shell");
        Self { tree: place.root.at("tree"), place }
    }

    /// A home with an empty tree.
    pub(crate) fn bare() -> Self {
        let place = Self::empty();
        place.root.directory("tree");
        place
    }

    /// The program in this home.
    pub(crate) fn command(&self) -> Program {
        self.command_at(&self.home)
    }

    /// The program in another home, which an option names.
    pub(crate) fn command_at(&self, home: &Path) -> Program {
        self.subject().without_env("CP_HOME").arg("--home").arg(home)
    }

    /// Runs one of our other programs in this home.
    #[track_caller]
    pub(crate) fn other(&self, program: &str, words: &[&str]) -> Outcome {
        self.program(program).args(words).run()
    }

    /// Pipes requests into the program, with the tree as its root.
    #[track_caller]
    pub(crate) fn pipe(&self, input: impl AsRef<[u8]>) -> Outcome {
        self.command().arg("--root").arg(&self.tree).stdin(input).run()
    }

    /// The answer to one request.
    #[track_caller]
    pub(crate) fn ask(&self, request: &Value) -> Value {
        self.pipe(request.to_string()).only()
    }

    /// The result of one request, which must succeed.
    #[track_caller]
    pub(crate) fn result(&self, request: &Value) -> Value {
        let answer = self.ask(request);
        assert_eq!(answer["status"], "ok", "{answer}");
        answer["result"].clone()
    }

    /// The entries of a ledger of the only session.
    pub(crate) fn entries(&self, ledger: &str) -> Vec<Value> {
        let sessions = self.home.at("planes/ho1/sessions");
        let names = sessions.names();
        assert_eq!(names.len(), 1, "one session");
        let file = sessions.join(&names[0]).join(ledger);
        assert!(file.is_file(), "{}", file.display());
        sessions.records(file)
    }
}

/// Every file below a directory, with its bytes and modification time.
pub(crate) fn everything(directory: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(everything(&path));
        } else {
            let modified = path.metadata().unwrap().modified().unwrap();
            found.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
        }
    }
    found
}
