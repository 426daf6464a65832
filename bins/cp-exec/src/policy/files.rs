//! The rules about a file that is read or written by name, for a tool or for a redirection.

use std::path::Path;

use cp_common::Result;
use cp_common::home::resolved;

use super::bounds::Access;
use super::hidden::Hidden;
use super::patterns::covering;
use super::resolved::Policy;
use crate::refusal::{denied, denied_by, owner_decides};
use crate::sandbox::system_trees;

/// A path that may be read.
pub(crate) fn readable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Read)
}

/// The same for each of many paths, with what is hidden resolved once.
pub(crate) fn visible(policy: &Policy, hidden: &Hidden, path: &Path, access: Access) -> Result<()> {
    for module in policy.modules_at(&[&policy.base]) {
        module.check(access, path)?;
    }
    let hint = owner_decides("[paths] lists what may be read");
    if let Some(pattern) = policy.bounds.forbidding(path) {
        return Err(denied_by(access.name(), path, "forbidden", pattern.text()).hint(hint));
    }
    if hidden.hides(path) {
        return Err(denied(access.name(), path)
            .with("rule", "secret")
            .hint("secrets are hidden from commands and tools"));
    }
    if !policy.is_tool(path) && !policy.bounds.lists(Access::Read, path) {
        let private =
            "commands have a private /tmp, which file operations do not see; choose a path inside the project";
        let hint = if path.starts_with("/tmp") { private.to_owned() } else { hint };
        return Err(denied(access.name(), path).with("rule", "paths.read").hint(hint));
    }
    Ok(())
}

/// A path that may be written: declared, and neither pristine nor forbidden nor something that runs later. `asked` is the same path
/// before links were followed.
pub(crate) fn writable(policy: &Policy, path: &Path, asked: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Write)?;
    let hint = owner_decides("[paths] lists what may be written");
    if let Some(pattern) = covering(&policy.pristine, path) {
        return Err(denied_by("write", path, "pristine", pattern.text()).hint(hint));
    }
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
        return Err(denied("write", path).with("rule", "paths.write").hint(hint));
    }
    Ok(())
}

/// What commands see of the file system.
pub(crate) struct Seen<'a> {
    policy: &'a Policy,
    hidden: Hidden,
}

impl Policy {
    /// What commands see, to be asked about many paths.
    pub(crate) fn seen(&self) -> Seen<'_> {
        Seen { policy: self, hidden: self.hidden() }
    }
}

impl Seen<'_> {
    /// Whether a path exists for commands, where it exists at all.
    pub(crate) fn shows(&self, path: &Path) -> bool {
        let Policy { bounds, .. } = self.policy;
        let real = resolved(path);
        let listed = [Access::Read, Access::Write, Access::Execute].iter().any(|access| bounds.lists(*access, &real));
        let leads = || bounds.trees(Access::Read).iter().any(|root| root.starts_with(&real));
        let of_machine = || system_trees(self.policy.exec().profile).iter().any(|tree| real.starts_with(tree));
        bounds.forbidding(&real).is_none()
            && !self.hidden.hides(&real)
            && !self.hidden.hides(path)
            && (listed || self.policy.is_tool(&real) || leads() || of_machine())
    }
}
