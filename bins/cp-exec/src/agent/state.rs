//! The private state of an agent: one directory for each host and project in the home of the cp programs. A new state
//! gets the settings of the user that hold no credentials and run no programs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cp_common::home::{make_directory, write_whole};
use cp_common::{Error, Result};
use cp_hosts::Host;

use crate::digest::sha256;
use crate::glob::name_matches;
use crate::hosts::facts::{AgentFacts, Seed};
use crate::policy::Policy;

/// The directory of a state.
pub(super) struct State {
    pub directory: PathBuf,
}

impl State {
    /// The state of a host for the project of a policy.
    pub(super) fn of(host: Host, policy: &Policy) -> Self {
        let project = sha256(policy.base.as_os_str().as_encoded_bytes());
        let project = project.trim_start_matches("sha256:").get(..16).unwrap_or_default();
        Self { directory: policy.cp_home.path("hosts").join(format!("{}-{project}", host.name())) }
    }

    /// Creates what is missing. Returns a message for each file that could not be copied.
    pub(super) fn create(&self, host: Host, facts: &AgentFacts, home: &Path) -> Result<Vec<String>> {
        make_directory(&self.directory)?;
        for below in facts.state.values() {
            make_directory(&self.directory.join(below))?;
        }
        let own = host.directory(None, home);
        let mut failed = Vec::new();
        for seed in &facts.seed {
            let to = self.directory.join(&seed.to);
            // A file of the state is the agent's own, and may be a link that the agent made.
            if fs::symlink_metadata(&to).is_ok() || !self.holds(&to) {
                continue;
            }
            let Some((from, text)) = read_first(&own, seed)? else { continue };
            match selected(&from, &text, &seed.members) {
                Ok(text) => write_whole(&to, text.as_bytes())?,
                Err(why) => failed.push(format!("{} was not copied to the agent's state: {why}", from.display())),
            }
        }
        Ok(failed)
    }

    /// The transcripts that the host wrote since a time.
    pub(super) fn transcripts(&self, facts: &AgentFacts, since: SystemTime) -> Vec<PathBuf> {
        let names = facts.transcripts.split('/').filter(|name| !name.is_empty());
        let mut found = if facts.transcripts.is_empty() { Vec::new() } else { vec![self.directory.clone()] };
        for name in names {
            let entries = found.iter().filter_map(|directory| fs::read_dir(directory).ok()).flatten().flatten();
            // A link of the agent could point to another directory.
            let is_own = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| !kind.is_symlink());
            let matching =
                entries.filter(|entry| name_matches(name, entry.file_name().as_encoded_bytes()) && is_own(entry));
            found = matching.map(|entry| entry.path()).collect();
        }
        found.retain(|path| path.metadata().and_then(|meta| meta.modified()).is_ok_and(|time| time >= since));
        found
    }

    /// True if the directory of a file is in the state, and is not behind a link that the agent made.
    fn holds(&self, file: &Path) -> bool {
        let directory = file.parent().unwrap_or(file);
        make_directory(directory).is_ok()
            && match (directory.canonicalize(), self.directory.canonicalize()) {
                (Ok(real), Ok(state)) => real.starts_with(state),
                _ => false,
            }
    }

    /// The variables that name the state.
    pub(super) fn variables(&self, facts: &AgentFacts) -> Result<Vec<(String, String)>> {
        let named = facts.state.iter().map(|(name, below)| {
            let path = if below == "." { self.directory.clone() } else { self.directory.join(below) };
            let text = path.to_str().ok_or_else(|| Error::validation("the path is not UTF-8").in_file(&path))?;
            Ok((name.clone(), text.to_owned()))
        });
        named.collect()
    }
}

/// The first file of a seed that exists.
fn read_first(own: &Path, seed: &Seed) -> Result<Option<(PathBuf, String)>> {
    for name in &seed.from {
        // The directory itself need not exist.
        let path = name.strip_prefix("../").map_or_else(|| own.join(name), |beside| own.with_file_name(beside));
        match fs::read_to_string(&path) {
            Ok(text) => return Ok(Some((path, text))),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(e) => return Err(Error::io("the agent's own settings", e).in_file(&path)),
        }
    }
    Ok(None)
}

/// The listed members of a JSON or TOML file; without a list the whole text.
fn selected(path: &Path, text: &str, members: &[String]) -> std::result::Result<String, String> {
    let is_listed = |name: &str| members.iter().any(|member| member == name);
    match path.extension().and_then(|extension| extension.to_str()) {
        _ if members.is_empty() => Ok(text.to_owned()),
        Some("toml") => {
            let mut document: toml_edit::DocumentMut = text.parse().map_err(|e: toml_edit::TomlError| e.to_string())?;
            document.retain(|name, _| is_listed(name));
            Ok(document.to_string())
        }
        _ => {
            let mut object: serde_json::Map<String, serde_json::Value> =
                serde_json::from_str(text).map_err(|e| e.to_string())?;
            object.retain(|name, _| is_listed(name));
            serde_json::to_string_pretty(&object).map_err(|e| e.to_string())
        }
    }
}
