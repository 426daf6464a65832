//! Rules for files that a tool reads or writes by name.

use std::path::Path;

use cp_common::Result;

use super::bounds::Access;
use super::hidden::Hidden;
use super::patterns::covering;
use super::resolved::Policy;
use crate::refusal::{denied, denied_by};

/// Checks that a path may be read.
pub(crate) fn readable(policy: &Policy, path: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Read)
}

/// Checks one of many paths. `hidden` is resolved once by the caller.
pub(crate) fn visible(policy: &Policy, hidden: &Hidden, path: &Path, access: Access) -> Result<()> {
    for module in policy.modules_at(&[&policy.base]) {
        module.check(access, path)?;
    }
    let is_private = ["/tmp", "/var/tmp"].iter().any(|private| path.starts_with(private));
    let hint = if is_private {
        "a command's /tmp is its own; use a directory of the project".to_owned()
    } else {
        policy.setting_hint("[paths] lists what may be read")
    };
    if let Some(pattern) = policy.bounds.forbidding(path) {
        return Err(denied_by(access.name(), path, "forbidden", pattern.text()).hint(hint));
    }
    if hidden.hides(path) {
        return Err(denied(access.name(), path)
            .with("rule", "secret")
            .hint("secrets are hidden from commands and tools"));
    }
    if !policy.is_tool(path) && !policy.bounds.lists(Access::Read, path) {
        return Err(denied(access.name(), path).with("rule", "paths.read").hint(hint));
    }
    Ok(())
}

/// Checks that a path may be written: it must be listed, and neither pristine nor forbidden nor guarded. `asked` is
/// the same path before links were resolved.
pub(crate) fn writable(policy: &Policy, path: &Path, asked: &Path) -> Result<()> {
    visible(policy, &policy.hidden(), path, Access::Write)?;
    let hint = policy.setting_hint("[paths] lists what may be written");
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
