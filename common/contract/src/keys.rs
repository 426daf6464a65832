//! Random bytes, hashes, message authentication codes, and key files that are created at first use.

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::io::retry_on_intr;
use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest as _, Sha256};

use crate::home::{Home, create_whole, resolved};
use crate::wire::{Code, Error, Result};

/// A secret of 32 bytes.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Reads a key file. A missing file is created with random bytes; if several processes create it, the first one
    /// wins.
    pub fn of_file(path: &Path) -> Result<Self> {
        if let Some(key) = read(path)? {
            return Ok(key);
        }
        create_whole(path, &random::<32>()?)?;
        read(path)?.ok_or_else(|| Error::new(Code::Io, "the key cannot be created").in_file(path))
    }

    /// Reads the home's key for confirm tokens.
    pub fn of_home(home: &Home) -> Result<Self> {
        Self::of_file(&home.keys().join("confirm.key"))
    }

    /// Derives the key for what is valid only while the home is at this path, because a copy of the home has the same
    /// key file.
    pub fn of_place(home: &Home) -> Result<Self> {
        let place = resolved(home.root());
        Ok(Self(Self::of_home(home)?.tag(&[b"place\0", place.as_os_str().as_bytes()])))
    }

    /// Returns the HMAC-SHA-256 (RFC 2104) of the concatenated `parts`.
    pub fn tag(&self, parts: &[&[u8]]) -> [u8; 32] {
        self.mac(parts).finalize().into_bytes().into()
    }

    /// True if `tag` is a prefix of the tag of `parts`; compared in constant time.
    pub fn is_tag(&self, parts: &[&[u8]], tag: &[u8]) -> bool {
        self.mac(parts).verify_truncated_left(tag).is_ok()
    }

    fn mac(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // RFC 2104 pads a short key with zeros to the block size.
        let mut block = [0; 64];
        block[..self.0.len()].copy_from_slice(&self.0);
        let mut mac = Hmac::<Sha256>::new(&block.into());
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

fn read(path: &Path) -> Result<Option<Key>> {
    match std::fs::read(path) {
        Ok(bytes) => match bytes.try_into() {
            Ok(key) => Ok(Some(Key(key))),
            Err(_) => Err(Error::new(Code::Integrity, "the key is damaged: it does not have 32 bytes")
                .in_file(path)
                .hint("remove it: a new key is created, and everything signed with the old key becomes invalid")),
        },
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the key", e).in_file(path)),
    }
}

/// Returns random bytes from the kernel, suitable for secrets.
pub fn random<const N: usize>() -> Result<[u8; N]> {
    let mut bytes = [0; N];
    // The kernel fills a short buffer as a whole.
    const { assert!(N <= 256) };
    let filled = retry_on_intr(|| getrandom(&mut bytes[..], GetRandomFlags::empty()));
    filled.map_err(|e| Error::io("reading random bytes", e))?;
    Ok(bytes)
}

/// Formats the SHA-256 of `bytes` as in records: `sha256:` and 64 hexadecimal digits.
pub fn hash(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_file_created_once_and_damaged_file_fails() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("keys/machine.key");
        let tag = Key::of_file(&path).unwrap().tag(&[b"a", b"b"]);
        let again = Key::of_file(&path).unwrap();
        assert!(again.is_tag(&[b"ab"], &tag[..16]));
        assert!(!again.is_tag(&[b"ac"], &tag[..16]));
        std::fs::write(&path, b"short").unwrap();
        assert_eq!(Key::of_file(&path).err().unwrap().code(), Code::Integrity);
    }
}
