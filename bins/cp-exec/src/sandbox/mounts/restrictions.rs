//! Paths of the declared trees that are read-only, empty or hidden in the view.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode};

use super::devices::kernel_files;
use super::{NewRoot, put, take_system};
use crate::nofollow;
use crate::sandbox::pieces::detached;
use crate::sandbox::plan::{Operation, Plan, View};
use crate::sandbox::report::Failure;
use crate::sandbox::sys::{self, Attributes, NO_SUID_NO_DEV};

/// Entries without permissions, used to cover masked paths. A hidden file becomes a device that leads nowhere and that
/// cannot be opened in its mount: programs that read each regular file that they find leave it out.
const EMPTY_DIRECTORY: &str = "/.empty-directory";
const EMPTY_KEEP: &str = "/.empty-keep";
const HIDDEN_FILE: &str = "/.hidden-file";

/// Makes each directory above a protected or hidden path a mount point. A directory that is not a mount point could
/// be renamed, together with its protected content, and replaced.
pub(super) fn pin(plan: &Plan) -> Result<(), Failure> {
    let inside = |path: &&Path| plan.view.of(Operation::Write).any(|root| path.starts_with(root) && *path != root);
    let pinned = plan.view.places.iter().filter(|place| place.is_pinned);
    let mut way: Vec<&Path> = pinned.flat_map(|place| place.path.ancestors().skip(1).filter(inside)).collect();
    way.sort();
    way.dedup();
    way.into_iter().try_for_each(|directory| cover(directory, None, Attributes::Set(0)))
}

/// The operations that restrict paths of declared trees, each path once and after the directory that contains it. A
/// path whose operation changes nothing in a restricted directory is omitted.
fn restrictions<'a>(view: &'a View, places: &NewRoot, kernel: &'a [(PathBuf, bool)]) -> Vec<(&'a Path, Operation)> {
    let of = |hidden: bool| if hidden { Operation::Hidden } else { Operation::ReadOnly };
    let kernel = kernel.iter().map(|(path, hidden)| (path, of(*hidden)));
    let declared = view.places.iter().filter(|place| place.operation > Operation::Execute);
    let declared = declared.filter(|place| place.operation < Operation::Empty || places.shows(&place.path));
    let mut all: BTreeMap<&Path, Operation> = BTreeMap::new();
    for (path, operation) in declared.map(|place| (&place.path, place.operation)).chain(kernel) {
        let known = all.entry(path).or_insert(operation);
        *known = operation.max(*known);
    }
    // The restricted directories around the current path.
    let mut around: Vec<(&Path, Operation)> = Vec::new();
    all.retain(|path, operation| {
        while around.pop_if(|(outer, _)| !path.starts_with(outer)).is_some() {}
        let outer = around.last().map_or(Operation::Writable, |(_, outer)| *outer);
        let changes = *operation != outer && outer < Operation::Empty;
        around.extend(changes.then_some((*path, *operation)));
        changes
    });
    all.into_iter().collect()
}

/// Makes paths read-only or hides them.
pub(super) fn restrict(plan: &Plan, places: &NewRoot) -> Result<(), Failure> {
    let created = [(EMPTY_DIRECTORY, 0o000), (EMPTY_KEEP, 0o555)];
    let made = || -> io::Result<()> {
        for (path, mode) in created {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        Ok(rustix::fs::mknodat(CWD, HIDDEN_FILE, FileType::CharacterDevice, Mode::empty(), 0)?)
    };
    made().map_err(|e| Failure::setup("mask", e))?;
    let hidden = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV;
    let kernel = kernel_files().map_err(|e| Failure::setup("proc", e))?;
    for (path, operation) in restrictions(&plan.view, places, &kernel) {
        match operation {
            Operation::Writable => cover(path, None, Attributes::Clear(libc::MOUNT_ATTR_RDONLY)),
            Operation::ReadOnly => make_read_only(path),
            Operation::Empty => cover(path, Some([EMPTY_KEEP, HIDDEN_FILE]), Attributes::Set(hidden)),
            // These operations show a path.
            Operation::Read | Operation::Write | Operation::Execute => Ok(()),
            Operation::Hidden => cover(path, Some([EMPTY_DIRECTORY, HIDDEN_FILE]), Attributes::Set(hidden)),
        }?;
    }
    let removed =
        || created.iter().try_for_each(|(path, _)| fs::remove_dir(path)).and_then(|()| fs::remove_file(HIDDEN_FILE));
    removed().map_err(|e| Failure::setup("mask", e))
}

/// Makes an existing path read-only.
pub(in crate::sandbox) fn make_read_only(path: &Path) -> Result<(), Failure> {
    cover(path, None, Attributes::Set(libc::MOUNT_ATTR_RDONLY))
}

/// Covers an existing path with itself, or with one of two others: a directory and a file. The attributes apply to the
/// new mount.
pub(super) fn cover(path: &Path, with: Option<[&str; 2]>, attributes: Attributes) -> Result<(), Failure> {
    let target = nofollow::open(path).map_err(|e| Failure::changed(path, &e.to_string()))?;
    let Some(target) = target else { return Ok(()) };
    let covered = || -> io::Result<()> {
        let tree = match with {
            None => detached(&target)?,
            Some([directory, file]) => {
                let stat = rustix::fs::fstat(&target)?;
                let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
                take_system(Path::new(if is_directory { directory } else { file }))?
            }
        };
        if attributes != Attributes::Set(0) {
            sys::set_mount_attributes(tree.as_fd(), attributes, libc::AT_RECURSIVE)?;
        }
        put(&tree, &target)
    };
    covered().map_err(|e| Failure::setup(&format!("cover {}", path.display()), e))
}
