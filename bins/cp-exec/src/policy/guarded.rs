//! What programs read and run later without the owner naming it: guarded names. Those that are there are read-only to commands, and
//! those that a command makes are found after it has ended.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;

/// Files and directories of these names, wherever they are: start-up files of shells and programs, settings with credentials.
const NAMES: [&str; 40] = [
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
    ".claude.json",
    ".cshrc",
    ".curlrc",
    ".devcontainer.json",
    ".emacs",
    ".envrc",
    ".exrc",
    ".gdbinit",
    ".gitconfig",
    ".inputrc",
    ".irbrc",
    ".kshrc",
    ".lldbinit",
    ".login",
    ".logout",
    ".mcp.json",
    ".netrc",
    ".npmrc",
    ".pdbrc",
    ".profile",
    ".pypirc",
    ".Rprofile",
    ".ssh",
    ".tcshrc",
    ".tmux.conf",
    ".vimrc",
    ".xinitrc",
    ".xprofile",
    ".xsessionrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".zlogin",
    ".zprofile",
    ".zshenv",
    ".zshrc",
];

/// Names in a directory of this name: what editors and agents run for a workspace, and configuration below a home.
const PAIRS: [(&str, &str); 29] = [
    (".claude", "hooks"),
    (".claude", "settings.json"),
    (".claude", "settings.local.json"),
    (".codex", "config.toml"),
    (".codex", "hooks.json"),
    (".config", "fish"),
    (".config", "git"),
    (".config", "opencode"),
    (".copilot", "hooks"),
    (".copilot", "mcp-config.json"),
    (".cursor", "hooks.json"),
    (".cursor", "mcp.json"),
    (".devcontainer", "devcontainer.json"),
    (".gemini", "settings.json"),
    (".github", "hooks"),
    (".github", "mcp.json"),
    (".idea", "externalDependencies.xml"),
    (".idea", "runConfigurations"),
    (".idea", "startup.xml"),
    (".idea", "tools"),
    (".idea", "workspace.xml"),
    (".opencode", "opencode.json"),
    (".opencode", "plugin"),
    (".opencode", "plugins"),
    (".vscode", "extensions.json"),
    (".vscode", "launch.json"),
    (".vscode", "mcp.json"),
    (".vscode", "settings.json"),
    (".vscode", "tasks.json"),
];

/// What a repository lies in.
const REPOSITORY: &str = ".git";

/// What of a repository names programs, or leads git elsewhere.
const OF_REPOSITORY: [&str; 8] = [
    "commondir",
    "config",
    "config.worktree",
    "hooks",
    "info/attributes",
    "modules",
    "objects/info/alternates",
    "worktrees",
];

/// Installed packages bring settings of their authors' editors, which nobody opens there.
const PACKAGES: &str = "node_modules";
const OF_PACKAGES: [&str; 4] = [".vscode", ".idea", ".npmrc", ".yarnrc"];

/// What is guarded in some trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Repositories, in which a run has a layer of its own: directories named `.git`.
    pub repositories: Vec<PathBuf>,
}

impl Guarded {
    /// What it is made of, repositories by what is dangerous in them.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        let inside = self.repositories.iter().flat_map(|repository| parts_of_repository(repository));
        self.paths.iter().cloned().chain(inside).collect()
    }
}

/// A directory in which guarded names are looked for: what of the way to it says which those are.
#[derive(Clone, Copy)]
pub(super) struct Within {
    /// Names in a directory of this name are guarded too; none where its own name says nothing.
    above: Option<&'static str>,
    /// It lies in an installed package.
    packaged: bool,
}

impl Within {
    /// The directory that a walk begins with: its own name says nothing.
    pub(super) const fn root() -> Self {
        Self { above: None, packaged: false }
    }

    /// A directory in this one.
    fn below(self, name: &[u8]) -> Self {
        let above = PAIRS.iter().map(|(above, _)| *above).find(|above| above.as_bytes() == name);
        Self { above, packaged: self.packaged || name == PACKAGES.as_bytes() }
    }

    /// Whether an entry is guarded by its name.
    fn guards(self, name: &[u8]) -> bool {
        let exempt = |name: &[u8]| self.packaged && OF_PACKAGES.iter().any(|known| known.as_bytes() == name);
        let in_pair = |above: &str| PAIRS.iter().any(|pair| pair.0 == above && pair.1.as_bytes() == name);
        self.above.is_some_and(|above| in_pair(above) && !exempt(above.as_bytes()))
            || (is_dotted(name) && !exempt(name) && NAMES.iter().any(|known| known.as_bytes() == name))
    }

    /// Whether an entry that is not a directory could be guarded. It spares most entries a path.
    pub(super) fn may_guard(self, name: &[u8], kind: FileType) -> bool {
        // Every guarded name, or what it lies in, begins with a dot.
        self.above.is_some() || is_dotted(name) || is_device(kind)
    }
}

/// What is guarded, as a walk finds it.
pub(super) struct Guards<'a> {
    found: Guarded,
    /// Repositories that are not looked into.
    known: &'a [PathBuf],
}

impl<'a> Guards<'a> {
    pub(super) fn beside(known: &'a [PathBuf]) -> Self {
        Self { found: Guarded::default(), known }
    }

    /// Takes an entry down if it is guarded. Of a directory that is not, what to look for in it.
    pub(super) fn take(&mut self, within: Within, name: &[u8], kind: FileType, path: &Path) -> Option<Within> {
        if name == REPOSITORY.as_bytes() && kind == FileType::Directory {
            if !self.known.iter().any(|known| known == path) {
                self.found.repositories.push(path.to_owned());
            }
            return None;
        }
        if name == REPOSITORY.as_bytes() || within.guards(name) || is_device(kind) {
            self.found.paths.push(path.to_owned());
            return None;
        }
        Some(within.below(name))
    }

    /// A directory that cannot be looked into.
    pub(super) fn closed(&mut self, directory: &Path) {
        self.found.paths.push(directory.to_owned());
    }

    /// A repository without a working tree.
    pub(super) fn bare(&mut self, directory: &Path) {
        self.found.paths.extend(parts_of_repository(directory));
    }

    pub(super) fn finish(mut self) -> Guarded {
        self.found.paths.sort();
        self.found.repositories.sort();
        self.found
    }
}

fn is_dotted(name: &[u8]) -> bool {
    name.starts_with(b".")
}

fn is_device(kind: FileType) -> bool {
    matches!(kind, FileType::BlockDevice | FileType::CharacterDevice)
}

/// Whether a path has a guarded name, or lies in a guarded directory or a repository.
pub(crate) fn is_guarded(path: &Path) -> bool {
    let mut within = Within::root();
    path.iter().map(OsStr::as_encoded_bytes).any(|name| {
        let guarded = name == REPOSITORY.as_bytes() || within.guards(name);
        within = within.below(name);
        guarded
    })
}

/// What is there of a repository that names programs or leads elsewhere.
fn parts_of_repository(repository: &Path) -> impl Iterator<Item = PathBuf> {
    let parts = OF_REPOSITORY.map(|part| repository.join(part));
    parts.into_iter().filter(|path| fs::symlink_metadata(path).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_guarded_wherever_they_are_and_build_files_are_not() {
        for path in [
            "/w/.bashrc",
            "/w/a/b/.envrc",
            "/w/.vscode/tasks.json",
            "/w/.ssh/id",
            "/w/.git/config",
            "/w/a/.git/hooks/x",
        ] {
            assert!(is_guarded(Path::new(path)), "{path}");
        }
        for path in [
            "/w/Makefile",
            "/w/package.json",
            "/w/build.rs",
            "/w/conftest.py",
            "/w/.gitattributes",
            "/w/.gitmodules",
            "/w/.gitignore",
            "/w/node_modules/x/.vscode/settings.json",
        ] {
            assert!(!is_guarded(Path::new(path)), "{path}");
        }
    }

    #[test]
    fn every_guarded_name_or_what_it_lies_in_begins_with_a_dot() {
        assert!(NAMES.iter().chain(PAIRS.iter().map(|(above, _)| above)).all(|name| is_dotted(name.as_bytes())));
    }

    #[test]
    fn a_walk_finds_them_at_any_depth_and_repositories_without_a_tree() {
        let place = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = place.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        };
        ["a/b/.envrc", "a/.git/config", "bare/HEAD", "bare/objects/x", "bare/refs/x", "bare/config", "Makefile"]
            .into_iter()
            .chain(["parted/HEAD", "parted/commondir", "parted/config.worktree", "other/commondir"])
            .for_each(make);
        let trees = [place.path().to_owned(), place.path().join("a")];
        let found = Guarded::in_trees(&trees, &[], 100).unwrap();
        let below = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(place.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(below(&found.paths), ["a/b/.envrc", "bare/config", "parted/commondir", "parted/config.worktree"]);
        assert_eq!(below(&found.repositories), ["a/.git"]);
        assert!(Guarded::in_trees(&trees, &found.repositories, 100).unwrap().repositories.is_empty());
    }
}
