//! Releases: the directory or server that has them, and their signed notes. Nothing about a release is trusted unless its note says so.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::output::{Severity, number};
use cp_common::{Code, Error, Result, signals};
use cp_http::client::{Client, Reply, Timeouts};
use cp_ledger::proof::note::{Note, Verifier};

use super::Verification;

/// The key that signs releases.
const BUILT_IN: &str = include_str!("../../release.vkey");

/// A release with a verified signature.
pub(super) struct Release {
    pub(super) version: String,
    /// A warning if the release fixes a security problem or has another major version.
    pub(super) severity: Severity,
    /// The archive for this machine, and the key that signed it.
    pub(super) verified: Verification,
}

/// The error for content that does not match its signature.
pub(super) fn broken(message: impl Into<String>) -> Error {
    Error::new(Code::Integrity, message)
}

/// The verification key: the built-in one, or the given key or key file.
pub(super) fn key(given: Option<&str>) -> Result<Verifier> {
    let Some(given) = given else {
        let key = Verifier::from_text(BUILT_IN);
        return key.ok_or_else(|| Error::new(Code::Unknown, "the built-in key of releases is damaged"));
    };
    Verifier::from_text(given).map_or_else(|| Verifier::load(Path::new(given)), Ok)
}

/// The newest version according to the source. It is verified by its note later.
pub(super) fn latest(source: &Source) -> Result<String> {
    let found = source.text("latest")?.ok_or_else(|| {
        Error::not_found("no releases found: `latest` is missing").hint("name the location of releases with --from")
    })?;
    Ok(version(found.trim_end())?.to_owned())
}

/// Validates a version, which must be usable as the name of a directory.
pub(super) fn version(text: &str) -> Result<&str> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let is_one = number(text).is_some() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    if is_one {
        Ok(text)
    } else {
        Err(Error::validation(format!("`{text}` is not a version")).hint("write it as in 0.2.0"))
    }
}

/// The list of files of a release, before verification.
pub(super) fn listed(source: &Source, version: &str) -> Result<String> {
    source
        .text(&format!("v{version}/SHA256SUMS"))?
        .ok_or_else(|| Error::not_found(format!("there is no release {version}")))
}

impl Release {
    /// Verifies that the note of a release is signed by the key and contains this list of files.
    pub(super) fn verified(source: &Source, version: &str, list: &str, key: &Verifier, current: &str) -> Result<Self> {
        let note = source.text(&format!("v{version}/SHA256SUMS.note"))?;
        let note = note.ok_or_else(|| broken(format!("the release {version} is not signed: its note is missing")))?;
        let note = Note::parse(&note).ok_or_else(|| broken(format!("the note of the release {version} is damaged")))?;
        match note.is_signed_by(key) {
            Some(true) => {}
            Some(false) => {
                return Err(broken(format!("the signature of {} on the release {version} is wrong", key.name())));
            }
            None => {
                let by = note.others(&[]).join(", ");
                return Err(broken(format!("the release {version} is not signed by {} but by {by}", key.to_text())));
            }
        }
        let said =
            note.text.strip_prefix(&format!("cp-tools/release\n{version}\n")).and_then(|rest| rest.split_once('\n'));
        let (grade, _) = said
            .filter(|(_, sums)| *sums == list)
            .ok_or_else(|| broken(format!("the note is signed, but not for these files of the release {version}")))?;
        let major = |version: &str| number(version).map(|[major, ..]| major);
        let is_more = matches!(grade, "security" | "major") || major(version) > major(current);
        let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let mut sums = sums(list)?;
        let found = [library, "musl"].into_iter().find_map(|library| {
            let name = format!("cp-tools-{version}-{}-unknown-linux-{library}.tar.gz", std::env::consts::ARCH);
            sums.remove(&name).map(|sum| (name, sum))
        });
        let (archive, sha256) =
            found.ok_or_else(|| Error::not_found(format!("the release {version} has no archive for this machine")))?;
        Ok(Self {
            version: version.to_owned(),
            severity: if is_more { Severity::Warning } else { Severity::Info },
            verified: Verification { key: key.to_text(), archive, sha256 },
        })
    }
}

/// Parses SHA256SUMS into hashes by name.
pub(super) fn sums(list: &str) -> Result<BTreeMap<String, String>> {
    let row = |line: &str| {
        let (hash, name) = line.split_at_checked(64)?;
        let name = name.strip_prefix("  ").or_else(|| name.strip_prefix(" *"))?;
        let is_hash = hash.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'));
        is_hash.then(|| (name.strip_prefix("./").unwrap_or(name).to_owned(), hash.to_owned()))
    };
    list.lines().map(|line| row(line).ok_or_else(|| broken("SHA256SUMS: malformed line"))).collect()
}

/// The time limits for a silent server, and for a whole file.
const TIMEOUTS: Timeouts = Timeouts { total: Duration::from_mins(30), idle: Some(Duration::from_secs(30)) };
/// The largest list, signature or version file, in bytes.
const LONGEST_TEXT: u64 = 1 << 20;

/// The location of releases.
pub(super) enum Source {
    Directory(PathBuf),
    Server(Client, String),
}

impl Source {
    /// Parses the value of `--from`.
    pub(super) fn of(from: &str) -> Result<Self> {
        if !from.contains("://") {
            return Ok(Self::Directory(std::path::absolute(from)?));
        }
        let client = Client::new("cp-shell", from, TIMEOUTS, 1, |name| std::env::var(name).ok())?;
        Ok(Self::Server(client, from.trim_end_matches('/').to_owned()))
    }

    /// The text of a small file; `None` if it does not exist.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        if !self.copy(name, LONGEST_TEXT, &mut bytes)? {
            return Ok(None);
        }
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Error::new(Code::Integrity, format!("{name} of the release is not text")))
    }

    /// Copies a file of at most `limit` bytes; false if it does not exist.
    pub(super) fn copy(&self, name: &str, limit: u64, into: &mut dyn Write) -> Result<bool> {
        let mut left = limit;
        let mut take = |bytes: &[u8]| {
            left = left.checked_sub(bytes.len() as u64).ok_or_else(|| {
                Error::new(Code::Integrity, format!("{name} of the release is larger than {limit} bytes"))
            })?;
            into.write_all(bytes).map_err(|e| Error::io(format!("keeping {name}"), e))
        };
        let mut buffer = vec![0; 64 << 10];
        match self {
            Self::Directory(directory) => {
                let file = directory.join(name);
                // Opening a named pipe would block.
                if !file.is_file() {
                    return Ok(false);
                }
                let mut open = File::open(&file).map_err(|e| Error::io("opening", e).in_file(&file))?;
                loop {
                    signals::check()?;
                    match open.read(&mut buffer).map_err(|e| Error::io("reading", e).in_file(&file))? {
                        0 => return Ok(true),
                        length => take(&buffer[..length])?,
                    }
                }
            }
            Self::Server(client, base) => {
                let mut reply = client.get(&format!("{base}/{name}"), &[], limit + 1)?;
                if reply.status != 200 {
                    return refused(&reply, name);
                }
                loop {
                    match reply.read(&mut buffer)? {
                        [] => return Ok(true),
                        bytes => take(bytes)?,
                    }
                }
            }
        }
    }
}

/// The result for a status other than 200.
fn refused(reply: &Reply<'_>, name: &str) -> Result<bool> {
    let error = |code| Error::new(code, format!("{name}: the server of the releases answered {}", reply.status));
    match reply.status {
        404 | 410 => Ok(false),
        401 | 403 => Err(error(Code::Forbidden).hint("use a server with public releases")),
        429 => Err(error(Code::RateLimited)),
        500.. => Err(error(Code::Server)),
        _ => {
            let elsewhere = reply.header("location").unwrap_or_default();
            Err(error(Code::Config)
                .with("location", elsewhere)
                .hint("redirects are not followed: use the final URL with --from"))
        }
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn built_in_key_is_valid() {
        super::key(None).unwrap();
    }
}
