//! SHA-256 digests in the form of the ledger, `sha256:` and 64 hex digits, and hashes under the secret key of the home.

use std::io::{self, Read};

use cp_common::keys::{Key, hex};
use cp_ledger::format::line::Hash;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Returns the digest of a byte slice.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    Hash::of(bytes).to_string()
}

/// Formats the digest of everything that was added to a hasher.
pub(crate) fn format_digest(hash: Sha256) -> String {
    Hash::from_raw(&hash.finalize().into()).to_string()
}

/// Returns the hash of everything that a reader yields.
pub(crate) fn hash_of(mut reader: impl Read) -> io::Result<Hash> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(Hash::from_raw(&hash.finalize().into())),
            length => hash.update(&buffer[..length]),
        }
    }
}

/// Maps each name to the hash of its value under the token key of the home. Without a key there are no hashes.
pub(crate) fn tag_all(key: Option<&Key>, pairs: &[(String, String)]) -> Map<String, Value> {
    let tag = |name: &str, value: &str| {
        let tag = key?.tag(&[b"environment\0", name.as_bytes(), b"\0", value.as_bytes()]);
        Some(format!("hmac-sha256:{}", hex(&tag)))
    };
    pairs.iter().map(|(name, value)| (name.clone(), tag(name, value).into())).collect()
}
