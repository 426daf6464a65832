//! Signed releases, and the directory or server that has them. Nothing about a release is trusted unless its note says
//! so.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::output::{Progress, Severity};
use cp_common::program::describe::number;
use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Timeouts, code_of};
use cp_ledger::proof::note::{Note, Verifier};

/// The key that signs releases.
const BUILT_IN: &str = include_str!("../../release.vkey");
/// The largest archive, and the largest note or version file, in bytes.
pub(super) const LARGEST: u64 = 256 << 20;
const LONGEST_TEXT: u64 = 1 << 20;
/// The time limits for a silent server, and for a whole file.
const TIMEOUTS: Timeouts = Timeouts { total: Duration::from_mins(30), idle: Some(Duration::from_secs(30)) };

/// The error for content that does not match its signature.
pub(super) fn broken(message: impl Into<String>) -> Error {
    Error::new(Code::Integrity, message)
}

/// The verification key: the built-in one, or the given key or key file.
pub(super) fn key(given: Option<&str>) -> Result<Verifier> {
    let key = Verifier::from_text(given.unwrap_or(BUILT_IN));
    key.map_or_else(|| Verifier::load(Path::new(given.unwrap_or_default())), Ok)
}

/// Validates a version, which must be usable as the name of a directory.
pub(super) fn version(text: &str) -> Result<&str> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let is_one = number(text).is_some() && text.bytes().all(|c| c.is_ascii_digit() || c == b'.');
    let wrong = || Error::validation(format!("`{text}` is not a version")).hint("write it as in 0.2.0");
    is_one.then_some(text).ok_or_else(wrong)
}

/// A release with a verified signature.
pub(super) struct Release {
    /// A warning if the release fixes a security problem or has another major version.
    pub(super) severity: Severity,
    /// The archive for this machine, below the source, and its hash.
    pub(super) archive: String,
    pub(super) sha256: String,
}

impl Release {
    /// Reads the note of a release, which must be signed by the key for this version.
    pub(super) fn signed(source: &Source, version: &str, key: &Verifier, current: &str) -> Result<Self> {
        let Some(note) = source.text(&format!("v{version}/SHA256SUMS.note"))? else {
            let is_newest = || source.latest().is_ok_and(|newest| newest == version);
            return Err(match source.text(&format!("v{version}/SHA256SUMS"))? {
                None if !is_newest() => Error::not_found(format!("there is no release {version}")),
                _ => broken(format!("the release {version} has no signature")),
            });
        };
        let note = Note::parse(&note).ok_or_else(|| broken(format!("the note of the release {version} is damaged")))?;
        if note.is_signed_by(key) != Some(true) {
            return Err(broken(format!("the release {version} is not signed by {}", key.to_text())));
        }
        let said = note.text.strip_prefix(&format!("cp-tools/release\n{version}\n"));
        let (grade, list) = said
            .and_then(|rest| rest.split_once('\n'))
            .ok_or_else(|| broken(format!("the note is signed, but not for the release {version}")))?;
        let major = |version: &str| number(version).map(|[major, ..]| major);
        let is_more = matches!(grade, "security" | "major") || major(version) > major(current);
        let library = if cfg!(target_env = "musl") { "musl" } else { "gnu" };
        let found = [library, "musl"].into_iter().find_map(|library| {
            let name = format!("cp-tools-{version}-{}-unknown-linux-{library}.tar.gz", std::env::consts::ARCH);
            let mut rows = list.lines().filter_map(|row| row.split_once("  "));
            rows.find(|(_, listed)| listed.trim_start_matches("./") == name).map(|(hash, _)| (name, hash.to_owned()))
        });
        let (archive, sha256) =
            found.ok_or_else(|| Error::not_found(format!("the release {version} has no archive for this machine")))?;
        let severity = if is_more { Severity::Warning } else { Severity::Info };
        Ok(Self { severity, archive: format!("v{version}/{archive}"), sha256 })
    }
}

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

    /// The newest version according to the source, which its note has to confirm.
    pub(super) fn latest(&self) -> Result<String> {
        let found = self.text("latest")?.ok_or_else(|| {
            let error = Error::not_found("no releases found: `latest` is missing");
            error.hint("name the location of releases with --from")
        })?;
        version(found.trim_end()).map(str::to_owned)
    }

    /// The text of a small file; `None` if it does not exist.
    fn text(&self, name: &str) -> Result<Option<String>> {
        let text = self.file(name, LONGEST_TEXT, None)?.map(String::from_utf8);
        text.transpose().map_err(|_| broken(format!("{name} of the release is not text")))
    }

    /// The content of a file of at most `limit` bytes; `None` if it does not exist.
    pub(super) fn file(&self, name: &str, limit: u64, mut progress: Option<Progress>) -> Result<Option<Vec<u8>>> {
        let mut bytes = Vec::new();
        match self {
            Self::Directory(directory) => {
                let file = directory.join(name);
                // Opening a named pipe would block.
                if !file.is_file() {
                    return Ok(None);
                }
                let read = File::open(&file).and_then(|open| open.take(limit + 1).read_to_end(&mut bytes));
                read.map_err(|e| Error::io("reading", e).in_file(&file))?;
            }
            Self::Server(client, base) => {
                let mut reply = client.get(&format!("{base}/{name}"), &[], limit + 1)?;
                match reply.status {
                    200 => {}
                    404 | 410 => return Ok(None),
                    status => return Err(refused(name, status)),
                }
                let mut buffer = vec![0; 64 << 10];
                loop {
                    match reply.read(&mut buffer)? {
                        [] => break,
                        read => bytes.extend_from_slice(read),
                    }
                    if let Some(progress) = &mut progress {
                        progress.report(|| format!("{name}: {} MB", bytes.len() >> 20));
                    }
                }
            }
        }
        if bytes.len() as u64 > limit {
            return Err(broken(format!("{name} of the release is larger than {limit} bytes")));
        }
        Ok(Some(bytes))
    }
}

/// The error for a status other than 200.
fn refused(name: &str, status: u16) -> Error {
    let error = Error::new(code_of(status), format!("{name}: the server of the releases answered {status}"));
    match error.code() {
        Code::Config => error.hint("redirects are not followed: use the final URL with --from"),
        Code::Auth | Code::Forbidden => error.hint("use a server with public releases"),
        _ => error,
    }
}

#[cfg(test)]
mod tests {

    #[test]
    fn built_in_key_is_valid() {
        super::key(None).unwrap();
    }
}
