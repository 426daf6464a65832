//! The newest release that was found by the last check, in `state/update.json` of the home. Nothing here opens a
//! socket.

use serde::{Deserialize, Serialize};

use super::{Output, Severity};
use crate::home::{Home, write_whole};
use crate::wire::{Error, Result};

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
