//! The lists of the modules of a governed tree as restrictions of every command. A path of the tree may be accessed if
//! a module lists it for this access; an access that no module lists is restricted by the policy alone.

use std::fs;
use std::path::{Path, PathBuf};

use cp_common::Result;

use super::Policy;
use super::bounds::{Access, Governed, Module};
use super::patterns::Pattern;
use crate::refusal::denied;
use crate::sandbox::plan::{Operation, Place, View};

impl Policy {
    /// The named tree, and its modules that list paths for an access. `None` if the access is not restricted.
    fn listing(&self, access: Access) -> Option<(&Governed, Vec<&Module>)> {
        let modules: Vec<&Module> = self.modules.iter().filter(|module| module.restricts(access)).collect();
        self.governed.as_ref().filter(|_| !modules.is_empty()).map(|governed| (governed, modules))
    }

    /// Refuses an access to a path of the named tree that no module lists. A directory may be read if a listed path can
    /// lie in it.
    pub(crate) fn check_tree(&self, access: Access, path: &Path) -> Result<()> {
        self.check_declared(access, path, &|module| {
            let leads = access == Access::Read && path.is_dir();
            module.patterns(access).any(|pattern| pattern.covers(path) || leads && pattern.may_match_below(path))
        })
    }

    /// Refuses to execute a program or script of the named tree with arguments that no module declares.
    pub(crate) fn check_tree_script(&self, path: &Path, arguments: &[String]) -> Result<()> {
        self.check_declared(Access::Execute, path, &|module| module.check_execute(path, arguments).is_ok())
    }

    fn check_declared(&self, access: Access, path: &Path, is_declared: &dyn Fn(&Module) -> bool) -> Result<()> {
        let Some((governed, modules)) = self.listing(access) else { return Ok(()) };
        if !path.starts_with(&governed.root) || self.is_tool(path) || modules.into_iter().any(is_declared) {
            return Ok(());
        }
        let hint = format!("no module of {} lists it in capabilities.{}", governed.root.display(), access.name());
        Err(denied(access.name(), path).with("rule", "capabilities").hint(hint))
    }

    /// The restrictions of the named tree for the sandbox: hidden paths, which no module lists as readable, read-only
    /// paths, and in them the paths that stay writable.
    pub(crate) fn tree_limits(&self) -> Vec<Place> {
        let listed = |access| -> Option<(&Path, Vec<&Pattern>)> {
            let (governed, modules) = self.listing(access)?;
            Some((&governed.root, modules.into_iter().flat_map(|module| module.patterns(access)).collect()))
        };
        let (mut hidden, mut read_only, mut writable) = (Vec::new(), Vec::new(), Vec::new());
        if let Some((root, listed)) = listed(Access::Read) {
            self.add_unlisted(root, &listed, true, &mut hidden);
        }
        if let Some((root, listed)) = listed(Access::Write) {
            read_only.push(root.to_owned());
            writable.extend(listed.iter().flat_map(|pattern| pattern.present()));
            for directory in listed.iter().flat_map(|pattern| pattern.directories()) {
                // A new entry of the directory can match, so its other entries are read-only.
                if directory.starts_with(root) && !listed.iter().any(|pattern| pattern.covers(&directory)) {
                    self.add_unlisted(&directory, &listed, false, &mut read_only);
                    writable.push(directory);
                }
            }
        }
        let mut limits = View::default();
        limits.add(Operation::Hidden, true, hidden);
        limits.add(Operation::ReadOnly, true, read_only);
        limits.add(Operation::Writable, false, writable);
        limits.places
    }

    /// Adds the entries of a directory that no pattern matches. The target of a link is restricted at its own path.
    fn add_unlisted(&self, directory: &Path, listed: &[&Pattern], is_deep: bool, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, kind) = (entry.path(), entry.file_type());
            if listed.iter().any(|pattern| pattern.covers(&path)) || kind.as_ref().is_ok_and(fs::FileType::is_symlink) {
                continue;
            }
            let leads = listed.iter().any(|pattern| pattern.may_match_below(&path))
                || self.tools.iter().any(|tools| tools.starts_with(&path) || path.starts_with(tools));
            if !leads || !kind.is_ok_and(|kind| kind.is_dir()) {
                found.push(path);
            } else if is_deep {
                self.add_unlisted(&path, listed, true, found);
            }
        }
    }
}
