//! SHA-256 digests in the form of the ledger, `sha256:` and 64 hex digits, and hashes under the secret key of
//! the home. Also the one identity of a file: which file it is, and whether its content is the same as before.

use std::fs::Metadata;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt as _;

use cp_common::home::Home;
use cp_common::keys::{Key, hex};
use cp_ledger::format::canonical;
use cp_ledger::format::line::Hash;
use rustix::fs::Stat;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::nofollow::Node;

/// Returns the digest of a byte slice.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Hash::of(bytes).to_string()
}

/// Formats the digest of everything that was added to a hasher.
pub(crate) fn format_digest(hash: Sha256) -> String {
    Hash::from_raw(&hash.finalize().into()).to_string()
}

/// Copies what a reader yields. Returns its hash.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<Hash> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(Hash::from_raw(&hash.finalize().into())),
            length => {
                hash.update(&buffer[..length]);
                to.write_all(&buffer[..length])?;
            }
        }
    }
}

/// Returns the hash of everything that a reader yields.
pub(crate) fn hash_of(mut reader: impl Read) -> io::Result<Hash> {
    copy(&mut reader, &mut io::sink())
}

/// Hashes values under the key of the home's tokens.
pub(crate) struct KeyedHasher(Option<Key>);

impl KeyedHasher {
    /// Uses the token key of a home, which is created at first use. If the home is not writable there is no key, and
    /// entries have no hashes.
    pub(crate) fn of_home(home: &Home) -> Self {
        Self(Key::of_home(home).ok())
    }

    /// Maps each name to the keyed hash of its value.
    pub(crate) fn tag_all(&self, pairs: &[(String, String)]) -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), self.of(name, value))).collect()
    }

    /// Returns the tag of a command in normal form.
    pub(crate) fn of_command(&self, value: &[u8]) -> Option<String> {
        self.0.as_ref().map(|key| canonical::tag_of_command(value, key))
    }

    fn of(&self, name: &str, value: &str) -> Value {
        let Some(key) = &self.0 else { return Value::Null };
        let tag = key.tag(&[b"environment\0", name.as_bytes(), b"\0", value.as_bytes()]);
        format!("hmac-sha256:{}", hex(&tag)).into()
    }
}

/// A file whose time stamps are newer than this, in nanoseconds, could change again without other time stamps, because
/// some file systems have a resolution of 2 s.
const SETTLED: i64 = 2_000_000_000;

/// Device, inode, size, modification and change time, in nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Deserialize, Serialize)]
pub(crate) struct FileId {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime: i64,
    pub ctime: i64,
}

impl FileId {
    fn new([dev, ino, size]: [u64; 3], times: [(i64, i64); 2]) -> Self {
        let nanoseconds = |(seconds, rest): (i64, i64)| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        let [mtime, ctime] = times.map(nanoseconds);
        Self { dev, ino, size, mtime, ctime }
    }

    pub(crate) fn node(&self) -> Node {
        (self.dev, self.ino)
    }

    /// True if a change after this time is certain to give the file another identity.
    pub(crate) fn is_settled(&self, now: i64) -> bool {
        self.mtime.max(self.ctime) < now.saturating_sub(SETTLED)
    }

    /// The identity without what another name or other permissions change.
    pub(crate) fn without_change_time(self) -> Self {
        Self { ctime: 0, ..self }
    }
}

impl From<&Stat> for FileId {
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds of a second")]
    fn from(stat: &Stat) -> Self {
        let times = [(stat.st_mtime, stat.st_mtime_nsec as i64), (stat.st_ctime, stat.st_ctime_nsec as i64)];
        Self::new([stat.st_dev, stat.st_ino, stat.st_size.cast_unsigned()], times)
    }
}

impl From<&Metadata> for FileId {
    fn from(meta: &Metadata) -> Self {
        let times = [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())];
        Self::new([meta.dev(), meta.ino(), meta.len()], times)
    }
}
