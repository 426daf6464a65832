//! What programs read and run later without the owner naming it: guarded names. Those that are there are read-only to commands, and
//! those that a command makes are found after it has ended.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cp_common::Result;

use crate::refusal::{owner_decides, refuse};

/// Files and directories of these names, wherever they are: start-up files of shells and programs, settings with credentials.
const NAMES: [&str; 39] = [
    ".bash_aliases",
    ".bash_login",
    ".bash_logout",
    ".bash_profile",
    ".bashrc",
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
const PAIRS: [(&str, &str); 20] = [
    (".claude", "hooks"),
    (".claude", "settings.json"),
    (".claude", "settings.local.json"),
    (".codex", "config.toml"),
    (".config", "fish"),
    (".config", "git"),
    (".cursor", "hooks.json"),
    (".cursor", "mcp.json"),
    (".devcontainer", "devcontainer.json"),
    (".gemini", "settings.json"),
    (".idea", "externalDependencies.xml"),
    (".idea", "runConfigurations"),
    (".idea", "startup.xml"),
    (".idea", "tools"),
    (".idea", "workspace.xml"),
    (".vscode", "extensions.json"),
    (".vscode", "launch.json"),
    (".vscode", "mcp.json"),
    (".vscode", "settings.json"),
    (".vscode", "tasks.json"),
];

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

/// The most entries that are looked at.
const WALK: usize = 500_000;

/// What is guarded in some trees.
#[derive(Clone, Debug, Default)]
pub(crate) struct Guarded {
    /// Files and directories.
    pub paths: Vec<PathBuf>,
    /// Repositories, in which a run has a layer of its own: directories named `.git`.
    pub repositories: Vec<PathBuf>,
}

impl Guarded {
    /// Walks trees, and follows no links. Repositories that are known are not looked into.
    pub(crate) fn in_trees(trees: &[PathBuf], known: &[PathBuf]) -> Result<Self> {
        let mut found = Self::default();
        let mut roots = trees.to_vec();
        roots.sort();
        roots.dedup_by(|below, above| below.starts_with(above));
        let mut left: Vec<(PathBuf, &PathBuf)> = roots.iter().map(|root| (root.clone(), root)).collect();
        let mut seen = 0;
        while let Some((directory, root)) = left.pop() {
            let entries = match fs::read_dir(&directory) {
                Ok(entries) => entries,
                Err(e) if e.kind() == ErrorKind::NotFound => continue,
                // What cannot be looked into can still be gone through: git finds a repository in it.
                Err(_) => {
                    found.paths.push(directory);
                    continue;
                }
            };
            let (mut parts, within_dotted) = ([false; 4], directory.file_name().is_some_and(is_dotted));
            for entry in entries.flatten() {
                seen += 1;
                if seen > WALK {
                    return Err(too_many());
                }
                let name = entry.file_name();
                let Ok(kind) = entry.file_type() else { continue };
                for (part, known) in parts.iter_mut().zip(["HEAD", "objects", "refs", "commondir"]) {
                    *part |= name == known;
                }
                // Every guarded name, or what it lies in, begins with a dot.
                if kind.is_file() && !within_dotted && !is_dotted(&name) {
                    continue;
                }
                let path = entry.path();
                if name == ".git" && kind.is_dir() {
                    if !known.contains(&path) {
                        found.repositories.push(path);
                    }
                } else if name == ".git" || path.strip_prefix(root).is_ok_and(is_guarded) {
                    found.paths.push(path);
                } else if kind.is_dir() {
                    left.push((path, root));
                } else if kind.is_block_device() || kind.is_char_device() {
                    found.paths.push(path);
                }
            }
            // A repository without a working tree is found by git in its own directory, also one whose parts lie elsewhere.
            if let [true, true, true, _] | [true, _, _, true] = parts {
                found.paths.extend(parts_of_repository(&directory));
            }
        }
        found.paths.sort();
        found.repositories.sort();
        Ok(found)
    }

    /// What it is made of, repositories by what is dangerous in them.
    pub(crate) fn into_paths(self) -> Vec<PathBuf> {
        let inside = self.repositories.iter().flat_map(|repository| parts_of_repository(repository));
        self.paths.iter().cloned().chain(inside).collect()
    }
}

fn is_dotted(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
}

fn too_many() -> cp_common::Error {
    refuse(
        "paths.walk",
        format!("the paths that may be written hold more than {WALK} entries, too many to look through"),
    )
    .hint(format!("start in a smaller directory, or give --base DIR; {}", owner_decides("paths.write")))
}

/// Whether a path has a guarded name, or lies in a guarded directory or a repository.
pub(super) fn is_guarded(path: &Path) -> bool {
    let parts: Vec<&str> = path.iter().map(|part| part.to_str().unwrap_or_default()).collect();
    let named = |at: usize| {
        let packaged = parts[..at].contains(&PACKAGES);
        let exempt = |name: &str| packaged && OF_PACKAGES.contains(&name);
        let name = parts[at];
        let pair = at > 0 && PAIRS.contains(&(parts[at - 1], name)) && !exempt(parts[at - 1]);
        pair || (NAMES.contains(&name) && !exempt(name))
    };
    (0..parts.len()).any(named) || parts.contains(&".git")
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
        assert!(NAMES.iter().chain(PAIRS.iter().map(|(above, _)| above)).all(|name| is_dotted(OsStr::new(name))));
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
        let found = Guarded::in_trees(&trees, &[]).unwrap();
        let below = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.strip_prefix(place.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(below(&found.paths), ["a/b/.envrc", "bare/config", "parted/commondir", "parted/config.worktree"]);
        assert_eq!(below(&found.repositories), ["a/.git"]);
        assert!(Guarded::in_trees(&trees, &found.repositories).unwrap().repositories.is_empty());
    }
}
