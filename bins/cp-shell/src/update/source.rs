//! Where releases are: a directory, or a server that has the same files.

use std::fs::File;
use std::io::{Read as _, Write};
use std::path::PathBuf;
use std::time::Duration;

use cp_common::{Code, Error, Result, signals};
use cp_http::client::{Client, Reply, Timeouts};

/// A server that is silent for so long is given up, and so is one that takes so long for all of a file.
const TIMEOUTS: Timeouts = Timeouts { total: Duration::from_mins(30), idle: Some(Duration::from_secs(30)) };
/// The longest list, signature or name of a version, in bytes.
const LONGEST_TEXT: u64 = 1 << 20;

/// Where releases are.
pub(super) enum Source {
    Directory(PathBuf),
    Server(Client, String),
}

impl Source {
    /// What `--from` means.
    pub(super) fn of(from: &str) -> Result<Self> {
        if !from.contains("://") {
            return Ok(Self::Directory(std::path::absolute(from)?));
        }
        let client = Client::new("cp-shell", from, TIMEOUTS, 1, |name| std::env::var(name).ok(), None)?;
        Ok(Self::Server(client, from.trim_end_matches('/').to_owned()))
    }

    /// The text of a small file; `None` where there is no such file.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>> {
        let mut bytes = Vec::new();
        if !self.copy(name, LONGEST_TEXT, &mut bytes)? {
            return Ok(None);
        }
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| Error::new(Code::Integrity, format!("{name} of the release is not text")))
    }

    /// Copies a file of at most so many bytes; false where there is no such file.
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
                // A named pipe would be waited for.
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

/// What another status than 200 means.
fn refused(reply: &Reply<'_>, name: &str) -> Result<bool> {
    let error = |code| Error::new(code, format!("{name}: the server of the releases answered {}", reply.status));
    match reply.status {
        404 | 410 => Ok(false),
        401 | 403 => Err(error(Code::Forbidden).hint("name a server that gives its releases to everybody")),
        429 => Err(error(Code::RateLimited)),
        500.. => Err(error(Code::Server)),
        _ => {
            let elsewhere = reply.header("location").unwrap_or_default();
            Err(error(Code::Config)
                .with("location", elsewhere)
                .hint("redirects are not followed: give --from the URL itself"))
        }
    }
}
