//! The pieces of the machine that a view is made of, taken by descriptor before there is a view.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::mount::OpenTreeFlags;

use super::plan::{Plan, Profile};
use super::report::Failure;
use super::sys::{self, NO_SUID_NO_DEV};
use super::system;
use crate::place::Node;

/// A file or directory that comes back in the view.
pub(super) struct Piece {
    pub path: PathBuf,
    /// A detached copy of its mounts.
    pub tree: OwnedFd,
    pub node: Node,
    /// What its mount forbids.
    pub attributes: u64,
    pub directory: bool,
}

/// Where a link lies, and what it says.
pub(super) type Link = (PathBuf, PathBuf);

/// Every piece, outermost first, and the links among the system's trees and settings. A piece that lies in another with the same
/// attributes is not there twice.
pub(super) fn pieces(plan: &Plan) -> Result<(Vec<Piece>, Vec<Link>), Failure> {
    let System { paths, links } = system(plan.profile);
    let mut pieces = Vec::new();
    for (path, attributes) in wanted(plan, paths) {
        let Some((file, stat)) = plan.view.open_with_stat(&path)? else { continue };
        let directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let tree = detached(&file).map_err(|e| Failure::setup(&format!("bind {}", path.display()), e))?;
        pieces.push(Piece { path, tree, node: (stat.st_dev, stat.st_ino), attributes, directory });
    }
    Ok((pieces, links))
}

/// A detached copy of the mounts at a file or directory.
pub(super) fn detached(file: &OwnedFd) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(file, "", flags)?)
}

fn wanted(plan: &Plan, system: Vec<(PathBuf, bool)>) -> Vec<(PathBuf, u64)> {
    let view = &plan.view;
    let system = system.into_iter().map(|(path, runs)| {
        let exec = if runs { 0 } else { libc::MOUNT_ATTR_NOEXEC };
        (path, NO_SUID_NO_DEV | libc::MOUNT_ATTR_RDONLY | exec)
    });
    let mut paths: Vec<(PathBuf, u64)> = system.collect();
    let alone = [&plan.exe.path, &plan.cwd.path];
    // The strict profile executes nothing of these.
    let execute: &[PathBuf] = if plan.profile == Profile::Strict { &[] } else { &view.execute };
    let declared = view.write.iter().chain(&view.read).chain(execute).chain(alone);
    paths.extend(declared.map(|path| (path.clone(), attributes(plan, path))));
    // Where two say something of the same path, the system's piece is the wider one: what it runs is there to be run.
    paths.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.count_ones().cmp(&b.1.count_ones())));
    paths.dedup_by(|later, first| later.0 == first.0);
    let mut kept: Vec<(PathBuf, u64)> = Vec::new();
    for (path, attributes) in paths {
        let around = kept.iter().rev().find(|(outer, _)| path.starts_with(outer));
        if around.is_none_or(|(_, known)| *known != attributes) {
            kept.push((path, attributes));
        }
    }
    kept
}

/// What the mount of a declared path forbids.
fn attributes(plan: &Plan, path: &Path) -> u64 {
    let within = |roots: &[PathBuf]| roots.iter().any(|root| path.starts_with(root));
    let writable = within(&plan.view.write);
    // A writable directory with execute paths in it cannot be noexec; there Landlock alone says what may run. Without Landlock
    // each of them is a mount of its own.
    let holds = || sys::landlock_abi() > 0 && plan.view.execute.iter().any(|held| held.starts_with(path));
    let runs = within(&plan.view.execute) || plan.exe.path.starts_with(path) || holds() || runs_in_system(plan, path);
    let mut attributes = NO_SUID_NO_DEV;
    if !writable {
        attributes |= libc::MOUNT_ATTR_RDONLY;
    }
    if !runs || (writable && plan.profile == Profile::Strict) {
        attributes |= libc::MOUNT_ATTR_NOEXEC;
    }
    attributes
}

fn runs_in_system(plan: &Plan, path: &Path) -> bool {
    plan.profile == Profile::Build && system::PROGRAMS.iter().any(|tree| path.starts_with(tree))
}

/// What is there of the system's trees and settings.
#[derive(Default)]
struct System {
    /// Those that are no links, and where links lead, if that is elsewhere; and whether they hold programs.
    paths: Vec<(PathBuf, bool)>,
    /// Where each link lies, and what it says.
    links: Vec<Link>,
}

fn system(profile: Profile) -> System {
    let mut found = System::default();
    let programs = system::trees(profile).iter().map(|path| (*path, true));
    let settings = system::SETTINGS.iter().chain(&system::MACHINE).map(|path| (*path, false));
    for (path, runs) in programs.chain(settings).filter(|(path, _)| *path != "/proc") {
        match fs::read_link(path) {
            Ok(to) => {
                let elsewhere = |real: &PathBuf| !system::PROGRAMS.iter().any(|tree| real.starts_with(tree));
                found.paths.extend(fs::canonicalize(path).ok().filter(elsewhere).map(|path| (path, runs)));
                found.links.push((path.into(), to));
            }
            // It is there, and no link.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => found.paths.push((path.into(), runs)),
            Err(_) => {}
        }
    }
    // Programs are found by their links also where only libraries are trees.
    let others = system::PROGRAMS.iter().filter(|path| !system::trees(profile).contains(path));
    found.links.extend(others.filter_map(|path| Some((PathBuf::from(path), fs::read_link(path).ok()?))));
    found
}
