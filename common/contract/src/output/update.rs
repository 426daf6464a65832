//! What is known of a newer release since it was last looked for: `state/update.json` of the home. Nothing here opens a socket.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Output, Severity};
use crate::home::{Home, write_whole};
use crate::wire::{Error, Result};

/// The newest release, as it was found.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Newest {
    /// Its version.
    pub latest_version: String,
    /// A warning for a release that repairs something about security, or is of another major version.
    pub severity: Severity,
    /// When it was looked for.
    pub checked_at: String,
    /// What installs it.
    pub recommended_command: String,
}

impl Newest {
    /// Keeps it for the notices of all programs.
    pub fn keep(&self, home: &Home) -> Result<()> {
        let text = serde_json::to_vec(self).map_err(|e| Error::validation(e.to_string()))?;
        write_whole(&home.state("update.json"), &text)
    }

    /// What was kept, where it is newer than this version.
    fn kept(file: &Path) -> Option<Self> {
        // A named pipe would be waited for.
        file.metadata().ok().filter(|found| found.is_file() && found.len() < 4096)?;
        let kept: Self = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
        (number(&kept.latest_version)? > number(env!("CARGO_PKG_VERSION"))?).then_some(kept)
    }
}

impl Output {
    /// Adds the notice of a newer release, where one is known.
    pub fn notice_of_update(&mut self, home: &Home) {
        let current = env!("CARGO_PKG_VERSION");
        if let Some(Newest { latest_version, severity, checked_at, recommended_command }) =
            Newest::kept(&home.state("update.json"))
        {
            let message = format!(
                "version {latest_version} is available, this is {current} (looked for at {checked_at}): run `{recommended_command}`, then read `cp-shell changelog --since {current}`"
            );
            self.notice("update_available", severity, message);
        }
    }
}

/// The three numbers of a version.
pub fn number(version: &str) -> Option<[u64; 3]> {
    let mut parts = version.strip_prefix('v').unwrap_or(version).split('.').map(|part| part.parse().ok());
    let number = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(number)
}
