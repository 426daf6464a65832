//! Lock files that the processes of a run left when they were killed. Git refuses to work beside them.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use rustix::fs::AtFlags;

use super::{Repository, binds, node_of};
use crate::nofollow::{self, Node};
use crate::sandbox::processes;

/// The time in which a program that has closed a lock file renames it.
const RENAMING: Duration = Duration::from_millis(50);

/// Removes new lock files that no process holds. The processes of the run have ended.
pub(super) fn remove(repository: &Repository, new: Vec<PathBuf>) {
    let new: Vec<(PathBuf, Node)> =
        new.into_iter().filter_map(|path| node_of(&path).map(|node| (path, node))).collect();
    if new.is_empty() {
        return;
    }
    sleep(RENAMING);
    // While `git commit` waits for its editor, it keeps the file of the lock but not the descriptor.
    let Some(open) = open_files(&repository.path) else { return };
    for (path, _) in new.into_iter().filter(|(path, node)| !open.contains(node) && node_of(path) == Some(*node)) {
        // What cannot be removed is for the owner, whom git tells about it.
        let _ = nofollow::open_parent(&path)
            .and_then(|(directory, name)| rustix::fs::unlinkat(directory, name, AtFlags::empty()));
    }
}

/// The files that processes of this user have open. `None` if git works in a working tree of the repository.
fn open_files(repository: &Path) -> Option<BTreeSet<Node>> {
    let mut open = BTreeSet::new();
    for (pid, _) in processes() {
        let process = PathBuf::from(format!("/proc/{pid}"));
        let is_git = fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("git"));
        if is_git && fs::read_link(process.join("cwd")).is_ok_and(|cwd| is_in(&cwd, repository)) {
            return None;
        }
        let descriptors = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
        let files = descriptors.filter_map(|descriptor| fs::metadata(descriptor.path()).ok());
        open.extend(files.map(|meta| (meta.dev(), meta.ino())));
    }
    Some(open)
}

/// True if a directory lies in a repository or one of its working trees.
fn is_in(directory: &Path, repository: &Path) -> bool {
    directory.ancestors().any(|above| {
        let git = above.join(".git");
        above == repository
            || git == repository
            || binds::common_directory(&git).is_some_and(|common| common.starts_with(repository))
    })
}
