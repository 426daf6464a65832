//! Checks that this version is new enough for the installed skill: `minimum-version` in its front matter.

use std::path::{Path, PathBuf};

use crate::context::Context;
use crate::output::number;
use crate::program::identity::{Check, Status, VERSION};
use crate::wire::record::SCHEMA_VERSION;

/// The skill of this build.
const OWN: &str = include_str!("../../../../../skills/cp-tools/SKILL.md");
/// Directories of skills, below a project and below the user's home directory.
const PLACES: [&str; 3] = ["skills", ".claude/skills", ".agents/skills"];

/// Makes the check of the version.
pub(super) fn version_check(context: &Context) -> Check {
    let current = format!("version {VERSION}, envelope {SCHEMA_VERSION}");
    let installed = installed(context).into_iter().filter_map(|file| {
        let minimum = minimum_of(&std::fs::read_to_string(&file).ok()?)?;
        Some((minimum, file.display().to_string()))
    });
    let own = minimum_of(OWN).map(|minimum| (minimum, "the skill of this version".to_owned()));
    let Some((minimum, who)) = installed.chain(own).max_by_key(|(minimum, _)| number(minimum)) else {
        return Check::pass("version", current);
    };
    if number(VERSION) >= number(&minimum) {
        return Check::pass("version", format!("{current}; the minimum is {minimum} ({who})"));
    }
    Check::not_fine(
        "version",
        Status::Fail,
        format!("{current}, but {who} needs at least {minimum}"),
        "run cp-shell update, or install the skill that belongs to this version",
    )
}

fn installed(context: &Context) -> Vec<PathBuf> {
    let person = std::env::var_os("HOME").map(PathBuf::from);
    let project = std::env::current_dir().ok();
    let roots = [Some(context.home.root().to_owned()), project, person].into_iter().flatten();
    let files = roots.flat_map(|root| PLACES.map(|place| root.join(place).join("cp-tools/SKILL.md")));
    files.filter(|file| is_plain(file)).collect()
}

/// Excludes named pipes, because reading one would block.
fn is_plain(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// Returns the minimum version in the front matter of a skill.
fn minimum_of(skill: &str) -> Option<String> {
    let front = skill.strip_prefix("---\n")?.split("\n---").next()?;
    let value = front.lines().find_map(|line| line.trim_start().strip_prefix("minimum-version:"))?;
    let version = value.trim().trim_matches(['"', '\'']);
    number(version).map(|_| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_version_is_read_from_front_matter() {
        assert!(minimum_of(OWN).is_some_and(|minimum| number(&minimum) <= number(VERSION)));
        assert_eq!(minimum_of("---\nmetadata:\n  minimum-version: '1.2.3'\n---\n").as_deref(), Some("1.2.3"));
        assert_eq!(minimum_of("---\nname: x\n---\nminimum-version: 1.2.3\n"), None);
    }
}
