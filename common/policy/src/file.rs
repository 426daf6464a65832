//! `config/policy.toml`. Each program reads its own tables. No option and no variable extends the permissions.

use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use cp_common::home::Home;
use cp_common::home::config::explain;
use cp_common::{Error, Result};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use toml::de::{DeTable, ValueDeserializer};

/// Returns the text of a policy, and the uid of its owner; `None` without a file. Fails if other users can write it.
pub fn read_policy(file: &Path) -> Result<Option<(String, u32)>> {
    let failed =
        |e: io::Error| Error::config(format!("cannot read: {}", Error::from(e).message())).in_file(file).fatal();
    let text = match std::fs::read_to_string(file) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        text => text.map_err(failed)?,
    };
    let meta = file.metadata().map_err(failed)?;
    if others_write(&meta) {
        let hint = format!("chmod go-w {}", file.display());
        return Err(Error::config("other users can write the policy").in_file(file).hint(hint).fatal());
    }
    Ok(Some((text, meta.uid())))
}

/// True if users other than the owner can write to a file or directory.
pub fn others_write(meta: &Metadata) -> bool {
    // A group whose id is the owner's uid is the private group of the owner.
    meta.mode() & 0o002 != 0 || (meta.mode() & 0o020 != 0 && meta.gid() != 0 && meta.gid() != meta.uid())
}

/// Returns the name of a user, or the uid if the user is not listed.
pub fn name_of(uid: u32) -> String {
    user_field(uid, 0).unwrap_or_else(|| uid.to_string())
}

/// Returns the home directory of a user, or `$HOME` if the user is not listed.
pub fn home_of(uid: u32) -> PathBuf {
    let home = user_field(uid, 5).map(PathBuf::from).or_else(|| std::env::var_os("HOME").map(PathBuf::from));
    home.unwrap_or_else(|| "/".into())
}

fn user_field(uid: u32, index: usize) -> Option<String> {
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let uid = uid.to_string();
    let entry = users.lines().find(|line| line.split(':').nth(2) == Some(&uid))?;
    entry.split(':').nth(index).map(str::to_owned)
}

/// Returns a table of the policy. A missing file or table gives the default; a malformed one is an error, so that it
/// never grants permissions.
pub fn table<T: DeserializeOwned + Default>(home: &Home, name: &str) -> Result<T> {
    let file = home.policy_file();
    let Some((text, _)) = read_policy(&file)? else { return Ok(T::default()) };
    parse(&text, name).map_err(|e| e.in_file(&file).fatal())
}

fn parse<T: DeserializeOwned + Default>(text: &str, name: &str) -> Result<T> {
    let found = DeTable::parse(text).and_then(|whole| match whole.into_inner().remove(name) {
        Some(table) => T::deserialize(ValueDeserializer::from(table)),
        None => Ok(T::default()),
    });
    found.map_err(|e| explain(text, &e))
}

/// The policy for prompts. Both cp-compose and cp-llm read it, so that neither bypasses it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Llm {
    /// The system texts that may be sent: only texts that consist of registered prompts, or any text, whose hash the
    /// ledger records.
    pub governed_prompts: Demand,
    /// The redaction of secrets: `--no-redact` is forbidden, or allowed.
    pub redact: Demand,
    /// The use of the network: with a token, or without one.
    pub network: Demand,
    /// True if the ledger also records prompts and answers outside of sessions and runs.
    pub log_content: bool,
    /// The budget of one command line, in US dollars.
    pub budget_usd: Option<f64>,
}

/// What a setting of `[llm]` demands. Each setting has its own words for both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum Demand {
    /// Nothing.
    #[default]
    #[serde(rename = "log", alias = "default", alias = "allow")]
    Nothing,
    /// A registered prompt, redaction, or a token.
    #[serde(rename = "require", alias = "token")]
    Required,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_key_fails_with_line_and_other_tables_are_ignored() {
        let e = parse::<Llm>("[exec]\nanything = 1\n[llm]\nnetwrk = \"token\"\n", "llm").unwrap_err();
        assert!(e.message().contains("line 4") && e.message().contains("netwrk"), "{e}");
        assert_eq!(e.details()["nearest"], "network");
        let e = parse::<Llm>("[llm]\nnetwork = \"tokens\"\n", "llm").unwrap_err();
        assert_eq!(e.details()["nearest"], "token");
        assert_eq!(parse::<Llm>("[exec]\nanything = 1\n", "llm").unwrap().network, Demand::Nothing);
    }
}
