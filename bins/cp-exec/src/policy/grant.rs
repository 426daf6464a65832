//! What `cp-exec allow` may grant, and the line that refusals name for it.

use std::path::Path;

use cp_common::Error;

use super::Policy;
use super::bounds::Access;
use crate::refusal::{TO_ALLOW, allow_line};

/// Directories below which nothing is granted, because they are of the system or commands have their own.
const PRIVATE: [&str; 6] = ["/proc", "/sys", "/dev", "/run", "/etc", "/boot"];
/// Directories of the system, below which nothing is granted for writing.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/var/lib", "/opt"];

impl Policy {
    /// The reason why an access to a path without links is never granted.
    pub(crate) fn never_granted(&self, access: Access, path: &Path) -> Option<&'static str> {
        let home = &self.loaded.home;
        let is_within = |places: &[&str]| places.iter().any(|place| path.starts_with(place)) && !path.starts_with(home);
        // A command has a `/tmp` of its own, and directories in it that are declared.
        let is_temporary = ["/tmp", "/var/tmp"]
            .iter()
            .any(|place| path == Path::new(place) || path.parent() == Some(Path::new(place)));
        let writes = access == Access::Write;
        let is_kept = || self.protected().is_ok_and(|kept| kept.iter().any(|kept| path.starts_with(kept)));
        if home.starts_with(path) || self.cp_home.is_below(path) {
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

    /// Adds the line that grants an access to a path to a refusal, or else who can, unless it has a hint already.
    pub(crate) fn with_grant(&self, error: Error, access: Access, path: &Path) -> Error {
        match path.to_str().filter(|_| self.loaded.file.is_some() && self.never_granted(access, path).is_none()) {
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
