//! The paths of the machine from which a view is built. Paths are checked to be unchanged since the decision.
//!
//! The paths of the machine that every command sees are listed here, for the mount view and for Landlock.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::{fs, io};

use cp_common::glob::name_matches;
use rustix::fs::Stat;
use rustix::mount::OpenTreeFlags;

use super::plan::{Operation, Place, Plan, Profile, lies_in};
use super::report::Failure;
use super::sys::{self, NO_SUID_NO_DEV};
use crate::nofollow::{self, Link, Node};

/// A detached clone of the mounts at a file or directory.
pub(super) fn detached(file: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(file, "", flags)?)
}

/// True if a file without links in its path is in the view of a plan.
pub(crate) fn sees(plan: &Plan, file: &Path) -> bool {
    let view = &plan.view;
    !view.is_within(Operation::Hidden, file)
        && wanted(plan, system(plan.profile, &[]).0).iter().any(|(tree, _)| lies_in(file, tree))
}

/// Every path that is mounted, outermost first, with the restrictions of its mount. A path inside another one with the
/// same restrictions is omitted.
pub(super) fn wanted(plan: &Plan, system: Vec<(PathBuf, bool)>) -> Vec<(PathBuf, u64)> {
    let system = system.into_iter().map(|(path, runs)| {
        let exec = if runs { 0 } else { libc::MOUNT_ATTR_NOEXEC };
        (path, NO_SUID_NO_DEV | libc::MOUNT_ATTR_RDONLY | exec)
    });
    let mut paths: Vec<(PathBuf, u64)> = system.collect();
    let alone = [&plan.exe.path, &plan.cwd.path].into_iter().chain(&plan.programs);
    // The strict profile executes none of its paths.
    let of_profile = |place: &&Place| match place.operation {
        Operation::Read | Operation::Write => true,
        operation => operation == Operation::Execute && plan.profile == Profile::Build,
    };
    let declared = plan.view.places.iter().filter(of_profile).map(|place| &place.path);
    paths.extend(declared.chain(alone).map(|path| (path.clone(), attributes(plan, path))));
    // If a path occurs twice, the system's piece is used, because its attributes are less strict: its programs must
    // be executable.
    paths.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.count_ones().cmp(&b.1.count_ones())));
    paths.dedup_by(|later, first| later.0 == first.0);
    let mut kept: Vec<(PathBuf, u64)> = Vec::new();
    for (path, attributes) in paths {
        let around = kept.iter().rev().find(|(outer, _)| lies_in(&path, outer));
        if around.is_none_or(|(_, known)| *known != attributes) {
            kept.push((path, attributes));
        }
    }
    kept
}

/// The restrictions of the mount of a declared path.
fn attributes(plan: &Plan, path: &Path) -> u64 {
    let view = &plan.view;
    let writes = view.is_within(Operation::Write, path);
    let executes = view.is_within(Operation::Execute, path) || lies_in(&plan.exe.path, path);
    // A writable directory that contains execute paths cannot be noexec. There only Landlock restricts execution;
    // without Landlock each execute path is a separate mount.
    let holds = || sys::landlock_abi() > 0 && view.of(Operation::Execute).any(|held| lies_in(held, path));
    let in_system = || PROGRAMS.iter().any(|tree| lies_in(path, Path::new(tree)));
    // Under the strict profile a program in a writable directory becomes a separate read-only mount. Other files beside
    // it are not executable.
    let is_strict = plan.profile == Profile::Strict;
    let runs =
        if is_strict { plan.is_program(path) || executes && !writes } else { executes || holds() || in_system() };
    let exec = if runs { 0 } else { libc::MOUNT_ATTR_NOEXEC };
    let read_only = if writes && !(is_strict && runs) { 0 } else { libc::MOUNT_ATTR_RDONLY };
    NO_SUID_NO_DEV | exec | read_only
}

/// The system's trees and settings that exist: the paths that are not links and the targets of links that lie
/// elsewhere, with true if they contain programs; and the path and the target of each link. The settings in `replaced`
/// are left out.
pub(super) fn system(profile: Profile, replaced: &[&str]) -> (Vec<(PathBuf, bool)>, Vec<Link>) {
    let (mut paths, mut links) = (Vec::new(), Vec::new());
    let programs = trees(profile).iter().map(|path| (PathBuf::from(path), true));
    let is_shown =
        |path: &PathBuf| !path.starts_with("/proc") && !replaced.iter().any(|other| path == Path::new(other));
    let settings = settings().into_iter().filter(is_shown).map(|path| (path, false));
    for (path, runs) in programs.chain(settings) {
        match fs::read_link(&path) {
            Ok(to) => {
                let shown =
                    |real: &Path| PROGRAMS.iter().any(|tree| real.starts_with(tree)) || real.starts_with("/proc");
                paths.extend(fs::canonicalize(&path).ok().filter(|real| !shown(real)).map(|real| (real, runs)));
                links.push(Link { at: path, to });
            }
            // The path exists and is not a link.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => paths.push((path, runs)),
            Err(_) => {}
        }
    }
    // Programs can be found through their links even if only libraries are in the view.
    let others = PROGRAMS.iter().filter(|path| !trees(profile).contains(path));
    links.extend(others.filter_map(|path| Some(Link { at: path.into(), to: fs::read_link(path).ok()? })));
    (paths, links)
}

/// Opens a path without following links, with the attributes of the file; `None` if nothing exists there. Fails if it is
/// not the known file.
pub(super) fn open_known(path: &Path, known: Option<Node>) -> Result<Option<(OwnedFd, Stat)>, Failure> {
    open_in(Path::new("/"), path, known)
}

/// The same for a path below another root.
pub(super) fn open_in(root: &Path, path: &Path, known: Option<Node>) -> Result<Option<(OwnedFd, Stat)>, Failure> {
    let opened = nofollow::open(&root.join(path.strip_prefix("/").unwrap_or(path))).and_then(|file| match file {
        Some(file) => Ok(Some(rustix::fs::fstat(&file).map(|stat| (file, stat))?)),
        None => Ok(None),
    });
    let opened = opened.map_err(|e| Failure::changed(path, e))?;
    let found = opened.as_ref().map(|(_, stat)| (stat.st_dev, stat.st_ino));
    if known.is_some() && found != known {
        return Err(Failure::changed(path, "it is not what was there when it was checked"));
    }
    Ok(opened)
}

/// The same for a path that must exist.
pub(super) fn open_there(path: &Path, known: Option<Node>) -> Result<(OwnedFd, Stat), Failure> {
    open_known(path, known)?.ok_or_else(|| Failure::changed(path, "it no longer exists"))
}

/// Libraries, and files that programs need to run.
pub(super) const LIBRARIES: [&str; 12] = [
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/libexec",
    "/usr/share",
    "/usr/include",
    "/usr/local/lib",
    "/usr/local/share",
    "/usr/local/include",
];

/// Configuration that every command may read, one path a line.
const SETTINGS: &str = include_str!("settings.txt");

/// The directory of the names that end in `*`.
const ETC: &str = "/etc";

fn listed() -> impl Iterator<Item = &'static str> {
    SETTINGS.lines().filter(|line| !line.starts_with('#'))
}

/// The settings and the kernel's descriptions that may be read. They need not exist.
pub(super) fn settings() -> Vec<PathBuf> {
    let found: Vec<PathBuf> = fs::read_dir(ETC).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let is_meant = |pattern: &str, path: &PathBuf| name_matches(pattern, path.as_os_str().as_encoded_bytes());
    let all = |pattern: &str| found.iter().filter(|path| is_meant(pattern, path)).cloned().collect();
    listed().flat_map(|pattern| if pattern.contains('*') { all(pattern) } else { vec![pattern.into()] }).collect()
}

/// Programs, in the build profile.
pub(super) const PROGRAMS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/opt", "/nix/store"];

/// The strict profile reads libraries but not programs.
pub(crate) fn trees(profile: Profile) -> &'static [&'static str] {
    match profile {
        Profile::Strict => &LIBRARIES,
        Profile::Build => &PROGRAMS,
    }
}

/// The dynamic loaders of the machines, of which one or two exist.
pub(super) const LOADERS: [&str; 4] = [
    "/lib64/ld-linux-x86-64.so.2",
    "/lib/ld-linux-aarch64.so.1",
    "/lib/ld-musl-x86_64.so.1",
    "/lib/ld-musl-aarch64.so.1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_lie_in_listed_directories() {
        assert!(listed().count() > 50);
        assert!(listed().map(Path::new).all(|path| [ETC, "/proc", "/sys"].iter().any(|above| path.starts_with(above))));
        let mut begun = listed().filter(|path| path.contains('*'));
        assert!(begun.all(|path| Path::new(path).parent() == Some(Path::new(ETC))));
    }
}
