//! `changelog`: the changes, from the CHANGELOG.md of the build. And the newest release that was found by the last check
//! of `cp-shell update`, in `state/update.json` of the home; nothing here opens a socket.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::home::{Home, write_whole};
use crate::output::{Output, Severity};
use crate::program::identity::VERSION;
use crate::wire::{Built, Error, Result};

const SOURCE: &str = include_str!("../../../../../CHANGELOG.md");

/// The date of the release whose build this is.
const RELEASED: Option<&str> = option_env!("CP_RELEASED");

/// One version.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Release {
    /// Its number, or `Unreleased`.
    version: String,
    /// The release date.
    date: Option<String>,
    /// Changes by category: added, changed, fixed, deprecated, removed, security.
    changes: BTreeMap<String, Vec<String>>,
}

/// Returns the changes that name this program, and those that name no program.
pub(super) fn changelog(program: &str, since: Option<&str>) -> Result<Built> {
    let mut entries = parse(SOURCE, program, RELEASED);
    if let Some(text) = since {
        let since = number(text)
            .ok_or_else(|| Error::usage(format!("`{text}` is not a version")).hint("write it as in `--since 0.1.0`"))?;
        // Unreleased changes are newer than the running version, but not newer than a later version.
        let has_unreleased = number(VERSION).is_some_and(|current| since <= current);
        entries.retain(|release| number(&release.version).map_or(has_unreleased, |version| version > since));
    }
    let mut lines = Vec::new();
    for Release { version, date, changes } in &entries {
        lines.push(format!("{version} {}", date.as_deref().unwrap_or_default()).trim_end().to_owned());
        let changes = changes.iter().flat_map(|(category, all)| all.iter().map(move |change| (category, change)));
        lines.extend(changes.map(|(category, change)| format!("  {category}: {change}")));
    }
    let data = json!({"current_version": VERSION, "since": since, "entries": entries});
    Ok(Built { data, text: lines.join("\n") })
}

/// The changes of a source. In a release of the date `build_date` the unreleased changes are those of its version.
fn parse(source: &str, program: &str, build_date: Option<&str>) -> Vec<Release> {
    let is_wanted = |change: &String| {
        let owner = change.split_once(": ").map(|(owner, _)| owner).filter(|owner| owner.starts_with("cp-"));
        owner.is_none_or(|owner| owner == program || owner == "cp-common")
    };
    let section = |text: &str| {
        let words = |change: &str| change.split_whitespace().collect::<Vec<_>>().join(" ");
        let changes: Vec<String> = text.split("\n- ").skip(1).map(words).filter(is_wanted).collect();
        (text.lines().next().unwrap_or_default().to_lowercase(), changes)
    };
    let release = |text: &str| {
        let title = text.lines().next().unwrap_or_default();
        let (version, date) = title.split_once(" - ").map_or((title, None), |(version, date)| (version, Some(date)));
        let (version, date) = match (version.trim_matches(['[', ']']), build_date) {
            ("Unreleased", Some(build_date)) => (VERSION, Some(build_date)),
            (version, _) => (version, date),
        };
        let sections = text.split("\n### ").skip(1).map(section).filter(|(_, changes)| !changes.is_empty());
        Release { version: version.to_owned(), date: date.map(str::to_owned), changes: sections.collect() }
    };
    format!("\n{source}").split("\n## ").skip(1).map(release).collect()
}

/// The newest known release.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Newest {
    /// The version.
    pub latest_version: String,
    /// `warning` for a release that fixes a security problem or has another major version.
    pub severity: Severity,
    /// Time of the check.
    pub checked_at: String,
    /// The command that installs it.
    pub recommended_command: String,
}

impl Newest {
    /// Stores it for the notices of all programs.
    pub fn keep(&self, home: &Home) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::validation(e.to_string()))?;
        write_whole(&home.state("update.json"), &text)
    }
}

impl Output {
    /// Adds the notice of a newer release, if one is known.
    pub fn notice_of_update(&mut self, home: &Home) {
        let (file, current) = (home.state("update.json"), env!("CARGO_PKG_VERSION"));
        // Excludes a named pipe, because reading one would block.
        let is_readable = file.metadata().is_ok_and(|found| found.is_file() && found.len() < 4096);
        let kept = is_readable.then(|| std::fs::read(file).ok()).flatten();
        let Some(newest) = kept.and_then(|text| serde_json::from_slice::<Newest>(&text).ok()) else { return };
        if number(&newest.latest_version) > number(current) {
            let Newest { latest_version, severity, checked_at, recommended_command } = newest;
            let message = format!(
                "version {latest_version} is available, this is {current} (looked for at {checked_at}): \
                 run `{recommended_command}`, then read `cp-shell changelog --since {current}`"
            );
            self.notice("update_available", severity, message);
        }
    }
}

/// Parses the three numbers of a version.
pub fn number(version: &str) -> Option<[u64; 3]> {
    let parts = version.strip_prefix('v').unwrap_or(version).split('.').map(|part| part.parse().ok());
    parts.collect::<Option<Vec<u64>>>()?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# Changelog\n\n## [0.2.0] - 2026-02-01\n\n### Added\n- cp-log: query\n  with filters\n- cp-llm: models\n- all: colour\n\n## [0.1.0] - 2026-01-01\n\n### Fixed\n- cp-log: tip\n";

    #[test]
    fn changelog_lists_own_and_general_changes() {
        let releases = parse(TEXT, "cp-log", Some("2026-03-01"));
        assert_eq!(releases[0].version, "0.2.0");
        assert_eq!(releases[0].date.as_deref(), Some("2026-02-01"));
        assert_eq!(releases[0].changes["added"], ["cp-log: query with filters", "all: colour"]);
        assert_eq!(releases[1].changes["fixed"], ["cp-log: tip"]);
    }

    #[test]
    fn unreleased_changes_of_release_have_its_version_and_date() {
        let text = format!("## [Unreleased]\n### Added\n- all: more\n{TEXT}");
        let newest = |build_date| parse(&text, "cp-log", build_date).swap_remove(0);
        assert_eq!((newest(None).version.as_str(), newest(None).date), ("Unreleased", None));
        let release = newest(Some("2026-03-01"));
        assert_eq!((release.version.as_str(), release.date.as_deref()), (VERSION, Some("2026-03-01")));
        assert_eq!(release.changes, newest(None).changes);
    }

    #[test]
    fn since_without_valid_version_fails() {
        assert!(changelog("cp-log", Some("yesterday")).is_err());
        for (since, is_empty) in [("999.0.0", true), ("0.0.1", false)] {
            let answer = changelog("cp-log", Some(since)).unwrap().data;
            assert_eq!(answer["entries"].as_array().unwrap().is_empty(), is_empty, "{since}");
        }
    }
}
