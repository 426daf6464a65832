//! Paths of the declared trees that are read-only, empty or hidden in the view.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode};

use super::{NewRoot, attach, clone_of, kernel_files};
use crate::sandbox::pieces::{detached, open_known};
use crate::sandbox::plan::{Operation, Plan, View};
use crate::sandbox::report::{At, Failure};
use crate::sandbox::sys::{Attributes, NO_SUID_NO_DEV};

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
fn restrictions<'v>(view: &'v View, shown: &NewRoot) -> BTreeMap<&'v Path, Operation> {
    let declared = view.places.iter().filter(|place| place.operation > Operation::Execute);
    let mut all: BTreeMap<&Path, Operation> = BTreeMap::new();
    for place in declared.filter(|place| place.operation < Operation::Empty || shown.shows(&place.path)) {
        let known = all.entry(&place.path).or_insert(place.operation);
        *known = place.operation.max(*known);
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
    all
}

/// Makes paths read-only or hides them.
pub(super) fn restrict(plan: &Plan, shown: &NewRoot) -> Result<(), Failure> {
    let made = || -> io::Result<_> {
        for (path, mode) in [(EMPTY_DIRECTORY, 0o000), (EMPTY_KEEP, 0o555)] {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
        }
        rustix::fs::mknodat(CWD, HIDDEN_FILE, FileType::CharacterDevice, Mode::empty(), 0)?;
        kernel_files()
    };
    let mut view = plan.view.clone();
    for (path, operation) in made().at("mask")? {
        view.add(operation, false, [path]);
    }
    let hidden = Attributes::Set(libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOEXEC | NO_SUID_NO_DEV);
    for (path, operation) in restrictions(&view, shown) {
        match operation {
            // The first three show a path.
            Operation::Read | Operation::Write | Operation::Execute => {}
            Operation::Writable => cover(path, None, Attributes::Clear(libc::MOUNT_ATTR_RDONLY))?,
            Operation::ReadOnly => make_read_only(path)?,
            Operation::Empty => cover(path, Some(EMPTY_KEEP), hidden)?,
            Operation::Hidden => cover(path, Some(EMPTY_DIRECTORY), hidden)?,
        }
    }
    let removed = fs::remove_dir(EMPTY_DIRECTORY).and_then(|()| fs::remove_dir(EMPTY_KEEP));
    removed.and_then(|()| fs::remove_file(HIDDEN_FILE)).at("mask")
}

/// Makes an existing path read-only.
pub(in crate::sandbox) fn make_read_only(path: &Path) -> Result<(), Failure> {
    cover(path, None, Attributes::Set(libc::MOUNT_ATTR_RDONLY))
}

/// Covers an existing path with itself, or with a directory where it is one and [`HIDDEN_FILE`] where not. The
/// attributes apply to the new mount.
pub(super) fn cover(path: &Path, with: Option<&str>, attributes: Attributes) -> Result<(), Failure> {
    let Some((target, stat)) = open_known(path, None)? else { return Ok(()) };
    let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
    let tree = match with {
        None => detached(&target),
        Some(directory) => clone_of(Path::new(if is_directory { directory } else { HIDDEN_FILE })),
    };
    tree.and_then(|tree| attach(&tree, attributes, &target)).at(&format!("cover {}", path.display()))
}
