//! A release that is installed: `lib/cp-tools` has a directory for each version, and one link says which is in force.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cp_common::output::number;
use cp_common::{Code, Error, Result};
use rustix::fs::{CWD, RenameFlags, renameat, renameat_with};
use tempfile::TempDir;

/// The folders whose files have links below the prefix.
const LINKED: [&str; 7] = [
    "bin",
    "share/man/man1",
    "share/man/man5",
    "share/man/man7",
    "share/bash-completion/completions",
    "share/zsh/site-functions",
    "share/fish/vendor_completions.d",
];
/// The link to the release in force, and to the one before.
const CURRENT: &str = "current";
const PREVIOUS: &str = "previous";
/// How the names of directories begin that are of no use once an update has ended.
const STAGED: &str = ".update-";

/// `lib/cp-tools` below a prefix.
#[derive(Clone)]
pub(super) struct Install {
    root: PathBuf,
}

/// The lock on an install, had as long as this lives.
pub(super) struct Lock(#[expect(dead_code, reason = "held, not read")] File);

impl Install {
    /// The one that this program belongs to: it is `PREFIX/lib/cp-tools/VERSION/bin/cp-shell`.
    pub(super) fn of(program: &Path) -> Option<Self> {
        let tree = program.parent().filter(|bin| bin.ends_with("bin"))?.parent()?;
        let root = tree.parent().filter(|root| root.ends_with("lib/cp-tools"))?;
        number(tree.file_name()?.to_str()?)?;
        Some(Self { root: root.to_owned() })
    }

    /// The version in force.
    pub(super) fn current(&self) -> Result<String> {
        self.linked(CURRENT).ok_or_else(|| {
            let error = Error::config("no release is in force here").in_file(&self.root.join(CURRENT));
            error.hint("install one with scripts/install")
        })
    }

    /// The version before it, where one is kept.
    pub(super) fn previous(&self) -> Option<String> {
        self.linked(PREVIOUS).filter(|version| self.tree(version).is_dir())
    }

    fn linked(&self, name: &str) -> Option<String> {
        let target = self.root.join(name).read_link().ok()?;
        target.to_str().filter(|version| number(version).is_some()).map(str::to_owned)
    }

    /// The tree of a version.
    pub(super) fn tree(&self, version: &str) -> PathBuf {
        self.root.join(version)
    }

    /// Keeps other updates away.
    pub(super) fn lock(&self) -> Result<Lock> {
        let directory = File::open(&self.root).map_err(|e| Error::io("opening", e).in_file(&self.root))?;
        match directory.try_lock() {
            Ok(()) => Ok(Lock(directory)),
            Err(std::fs::TryLockError::WouldBlock) => {
                Err(Error::new(Code::Conflict, "another update is under way").hint("try again when it has ended"))
            }
            Err(std::fs::TryLockError::Error(e)) => Err(Error::io("locking", e).in_file(&self.root)),
        }
    }

    /// A directory beside the versions that goes when it is dropped.
    pub(super) fn stage(&self, _lock: &Lock) -> Result<TempDir> {
        tempfile::Builder::new().prefix(STAGED).tempdir_in(&self.root).map_err(|e| self.refused(e))
    }

    /// Puts a whole tree in force, by one rename: what ends this at any moment leaves the old one or the new one.
    pub(super) fn replace(&self, tree: &Path, version: &str, stage: &TempDir) -> Result<()> {
        let place = self.tree(version);
        let done = || -> std::io::Result<()> {
            rustix::fs::syncfs(File::open(tree)?)?;
            if place.symlink_metadata().is_ok() {
                // What was left there goes with the stage.
                renameat_with(CWD, tree, CWD, &place, RenameFlags::EXCHANGE)?;
            } else {
                renameat(CWD, tree, CWD, &place)?;
            }
            Ok(())
        };
        done().map_err(|e| self.refused(e))?;
        self.put_in_force(version, stage)
    }

    /// Makes an installed version the one in force.
    pub(super) fn put_in_force(&self, version: &str, stage: &TempDir) -> Result<()> {
        let link = |name: &str, version: &str| -> std::io::Result<()> {
            symlink(version, stage.path().join(name))?;
            std::fs::rename(stage.path().join(name), self.root.join(name))
        };
        let current = self.current()?;
        link(PREVIOUS, &current)
            .and_then(|()| link(CURRENT, version))
            .and_then(|()| File::open(&self.root)?.sync_all())
            .map_err(|e| self.refused(e))
    }

    /// Gives each file of the release in force its link below the prefix, where nothing else has that name, takes our links away that
    /// lead nowhere, the versions that are neither in force, nor the one before, nor the one that runs, and what a killed update left.
    pub(super) fn tidy(&self, running: &Path) -> Result<()> {
        let prefix = self.root.ancestors().nth(2).unwrap_or(&self.root);
        for folder in LINKED {
            let here = prefix.join(folder);
            let ours = format!("{}lib/cp-tools/{CURRENT}/{folder}/", "../".repeat(folder.split('/').count()));
            for name in names(&self.root.join(CURRENT).join(folder)) {
                let link = here.join(&name);
                if link.symlink_metadata().is_err() {
                    std::fs::create_dir_all(&here).map_err(|e| self.refused(e))?;
                    symlink(format!("{ours}{name}"), link).map_err(|e| self.refused(e))?;
                }
            }
            for link in names(&here).into_iter().map(|name| here.join(name)) {
                let is_ours = link.read_link().is_ok_and(|target| target.to_string_lossy().starts_with(&ours));
                if is_ours && !link.exists() {
                    std::fs::remove_file(link).map_err(|e| self.refused(e))?;
                }
            }
        }
        let kept = [self.linked(CURRENT), self.linked(PREVIOUS)];
        for name in names(&self.root) {
            let tree = self.tree(&name);
            let is_over = number(&name).is_some() && !kept.contains(&Some(name.clone())) && !running.starts_with(&tree);
            if is_over || name.starts_with(STAGED) {
                let _ = std::fs::remove_dir_all(tree);
            }
        }
        Ok(())
    }

    /// Whether a path lies in it.
    pub(super) fn has(&self, path: &Path) -> bool {
        path.starts_with(&self.root)
    }

    fn refused(&self, e: impl Into<std::io::Error>) -> Error {
        let e = e.into();
        if matches!(e.kind(), std::io::ErrorKind::PermissionDenied | std::io::ErrorKind::ReadOnlyFilesystem) {
            let message = format!("{} cannot be changed: {e}", self.root.display());
            return Error::new(Code::Forbidden, message).hint("run it as the user who installed the programs");
        }
        Error::io("replacing the programs", e).in_file(&self.root)
    }
}

/// The names in a directory; none where it is not there.
fn names(directory: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}
