//! Paths that a policy hides from every command, paths that it keeps read-only inside writable trees, the rules for
//! files that a tool reads or writes by name, and what `cp-exec allow` may grant.

use std::path::{Path, PathBuf};

use cp_common::{Error, Result};
use cp_ledger::blob;

use super::Policy;
use super::file::built_in;
use super::modules::{Governed, Module};
use super::patterns::{Access, Pattern, check_links, covering};
use crate::names::{is_guarded, is_guarded_by_link};
use crate::nofollow::{self, Node, follow};
use crate::refusal::{TO_ALLOW, allow_line, denied, refuse_link};

impl Policy {
    /// All paths that are hidden from every command, including those that do not exist. Names that are hidden at any
    /// depth are found by [`Policy::scan_trees`].
    pub(crate) fn masks(&self) -> Vec<PathBuf> {
        let mut masks: Vec<PathBuf> = built_in().system_secrets.iter().map(PathBuf::from).collect();
        masks.extend(self.loaded.homes().flat_map(|home| built_in().secrets.iter().map(move |name| home.join(name))));
        masks.extend(self.cp_home.private());
        masks.extend([self.ledger.clone(), blob::directory(&self.ledger)]);
        masks.extend(self.bounds.forbidden.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned)));
        // The directories of tools stay visible. Everything else in the list is hidden wherever it lies.
        masks.retain(|mask| !self.tools.iter().any(|tools| tools.starts_with(mask)));
        masks.sort();
        masks.dedup();
        masks
    }

    /// Resolves links that no command can create. A path through any other link is refused.
    pub(crate) fn followed(&self, paths: Vec<PathBuf>) -> Result<Vec<PathBuf>> {
        let writable = self.bounds.written();
        let followed = paths.into_iter().map(|path| {
            let (real, links) = follow(&path);
            check_links(&path.display().to_string(), &links, &writable).map(|()| real)
        });
        followed.collect()
    }

    /// True if other programs execute something from a path later, so that it must not be written.
    pub(crate) fn is_guarded(&self, path: &Path) -> bool {
        let within = self.bounds.written().into_iter().filter(|root| path != root && path.starts_with(root));
        within
            .max_by_key(|root| root.as_os_str().len())
            .is_some_and(|root| is_guarded(path.strip_prefix(&root).unwrap_or(path)) || is_guarded_by_link(&root, path))
    }

    /// Paths to keep read-only inside writable trees, in addition to guarded paths.
    pub(crate) fn protected(&self) -> Result<Vec<PathBuf>> {
        let mut paths: Vec<PathBuf> = self.declared_pristine().chain(self.tools.iter().cloned()).collect();
        // Missing parts of the cp home cannot be hidden, so commands must not create them in a writable tree around
        // the home.
        let writable = self.bounds.trees(Access::Write);
        let places =
            self.cp_home.places().into_iter().filter(|place| writable.iter().any(|root| place.starts_with(root)));
        paths.extend(places.map(Path::to_owned));
        paths.extend(self.governed.iter().flat_map(Governed::protected));
        let mut there = Vec::new();
        for path in paths {
            if node_of(&path)?.is_some() {
                there.push(path);
            }
        }
        Ok(there)
    }

    /// Pristine paths that do not exist. They cannot be made read-only, so a command could create them.
    pub(crate) fn pristine_and_absent(&self) -> Vec<PathBuf> {
        // This program may create its own ledger while the command runs.
        let governed = self.governed.iter().flat_map(Governed::protected).filter(|path| !self.ledger.starts_with(path));
        self.declared_pristine().chain(governed).filter(|path| path.symlink_metadata().is_err()).collect()
    }

    fn declared_pristine(&self) -> impl Iterator<Item = PathBuf> {
        self.pristine.iter().filter_map(|pattern| pattern.tree().map(Path::to_owned))
    }

    /// True if a path is hidden by its directory or by its name.
    pub(super) fn hides(&self, path: &Path) -> bool {
        let by_name = |above: &Path| above.file_name().is_some_and(|name| is_environment_file(name.as_encoded_bytes()));
        !self.is_tool(path)
            && (self.masks().iter().any(|mask| path.starts_with(follow(mask).0)) || path.ancestors().any(by_name))
    }
}

/// The device and inode of a path; `None` if it does not exist. A link on the path is refused.
pub(crate) fn node_of(path: &Path) -> Result<Option<Node>> {
    let failed = |e: std::io::Error| match nofollow::first_link(path) {
        Some(link) => refuse_link(&path.display().to_string(), &link, "which was created after the policy was read"),
        None => Error::io("cannot read the attributes", e).in_file(path),
    };
    nofollow::open(path).and_then(|file| file.map(|file| nofollow::node(&file)).transpose()).map_err(failed)
}

/// True for a file with secrets of an environment, such as `.env`, but not for an example of one.
pub(super) fn is_environment_file(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(b".env") else { return false };
    let example = [".example", ".sample", ".template", ".dist"].iter().any(|end| rest.ends_with(end.as_bytes()));
    (rest.is_empty() || rest.starts_with(b".")) && !example
}

/// Checks that a path may be read.
pub(crate) fn readable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, path, Access::Read)
}

fn visible(policy: &Policy, path: &Path, access: Access) -> Result<()> {
    policy.modules_at(&[&policy.base])?.into_iter().try_for_each(|module| module.check(access, path))?;
    policy.check_tree(access, path, &[])?;
    policy.check_forbidden(access, path, &policy.modules_that_forbid(&[&policy.base])?)?;
    if policy.hides(path) {
        return Err(denied(access.name(), path)
            .with("rule", "secret")
            .hint("secrets are hidden from commands and tools"));
    }
    if policy.is_tool(path) || policy.bounds.lists(Access::Read, path) {
        return Ok(());
    }
    let error = denied(access.name(), path).with("rule", format!("paths.{}", access.name()));
    let is_private = ["/tmp", "/var/tmp"].iter().any(|private| path.starts_with(private));
    let hint = "a command's /tmp is its own; use a directory of the project";
    Err(policy.with_grant(if is_private { error.hint(hint) } else { error }, access, path))
}

/// Checks that a path may be written: it must be listed, and neither pristine nor forbidden nor guarded. `asked` is
/// the same path before links were resolved.
pub(crate) fn writable(policy: &Policy, path: &Path, asked: &Path) -> Result<()> {
    visible(policy, path, Access::Write)?;
    policy.check_pattern(Access::Write, path, "pristine", covering(&policy.pristine, path))?;
    if let Some(governed) = &policy.governed {
        governed.check_writable(path)?;
    }
    if policy.is_guarded(path)
        || policy.is_guarded(asked)
        || policy.protected()?.iter().any(|protected| path.starts_with(protected))
    {
        return Err(denied("write", path)
            .with("rule", "protected")
            .with("guard", "before")
            .hint("other programs run commands from this file; only its owner can change it"));
    }
    if !policy.bounds.lists(Access::Write, path) {
        let error = denied("write", path).with("rule", "paths.write");
        return Err(policy.with_grant(error, Access::Write, path));
    }
    Ok(())
}

/// Directories below which nothing is granted, because they are of the system or commands have their own.
const PRIVATE: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/etc", "/boot"];
/// Directories of the system, below which nothing is granted for writing.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/var/lib", "/opt"];

impl Policy {
    /// Refuses a path that the policy or one of these modules forbids.
    pub(crate) fn check_forbidden(&self, access: Access, path: &Path, modules: &[&Module]) -> Result<()> {
        self.check_pattern(access, path, "forbidden", self.bounds.forbidding(path))?;
        modules.iter().try_for_each(|module| module.check_not_forbidden(access, path))
    }

    /// Refuses a path that a pattern of a list excludes.
    fn check_pattern(&self, access: Access, path: &Path, list: &str, pattern: Option<&Pattern>) -> Result<()> {
        let Some(pattern) = pattern else { return Ok(()) };
        let error = denied(access.name(), path).with("rule", list).with("pattern", pattern.text.as_str());
        Err(error.hint(self.setting_hint(&format!("paths.{list}"))))
    }

    /// The reason why an access to a path without links is never granted.
    pub(crate) fn never_granted(&self, access: Access, path: &Path) -> Option<&'static str> {
        let mut homes = self.loaded.homes();
        let is_in_home = path.starts_with(&self.loaded.home);
        let is_within = |places: &[&str]| places.iter().any(|place| path.starts_with(place)) && !is_in_home;
        // A command has a `/tmp` of its own, and directories in it that are declared.
        let is_temporary = ["/tmp", "/var/tmp"]
            .iter()
            .any(|place| path == Path::new(place) || path.parent() == Some(Path::new(place)));
        let writes = access == Access::Write;
        let is_kept = || self.protected().is_ok_and(|kept| kept.iter().any(|kept| path.starts_with(kept)));
        if homes.any(|home| home.starts_with(path)) || self.cp_home.is_below(path) {
            Some("it contains a home directory")
        } else if is_within(&PRIVATE) || is_temporary || writes && is_within(&SYSTEM) {
            Some("it belongs to the system, or to each run alone")
        } else if self.cp_home.contains(path) || self.hides(path) || self.bounds.forbidding(path).is_some() {
            Some("it is hidden from commands")
        } else if writes && (self.is_guarded(path) || is_kept()) {
            Some("other programs run commands from it")
        } else {
            None
        }
    }

    /// The path that `cp-exec allow` is asked for an access to a path without links: of a file that is to be created,
    /// its directory. Also the reason why that is never granted.
    pub(crate) fn grantable<'p>(&self, access: Access, path: &'p Path) -> (&'p Path, Option<&'static str>) {
        let there = path.ancestors().find(|path| path.exists()).unwrap_or(path);
        let unknown = self.loaded.file.is_none().then_some("there is no policy file that could allow it");
        (there, unknown.or_else(|| [path, there].iter().find_map(|path| self.never_granted(access, path))))
    }

    /// Adds the line that grants an access to a path to a refusal, or else who can, unless it has a hint already.
    pub(crate) fn with_grant(&self, error: Error, access: Access, path: &Path) -> Error {
        let (asked, never) = self.grantable(access, path);
        match asked.to_str().filter(|_| never.is_none()) {
            Some(text) if access == Access::Execute => allowable(error, "program", text),
            Some(text) => allowable(error, access.name(), text),
            None if error.hint_text().is_some() => error,
            None => error.hint(self.setting_hint(&format!("paths.{}", access.name()))),
        }
    }
}

/// Adds the line that allows a value to a refusal: as the hint, after the one that it has, and as the member `allow`.
pub(crate) fn allowable(error: Error, kind: &str, value: &str) -> Error {
    let line = allow_line(kind, value);
    let before = error.hint_text().map(|hint| format!("{hint}; ")).unwrap_or_default();
    error.with("allow", line.as_str()).hint(format!("{before}{TO_ALLOW}{line}"))
}
