//! SHA-256 digests in the form of the ledger: `sha256:` and 64 hex digits.

use std::io::{self, Read};

use cp_common::keys::hex;
use sha2::{Digest, Sha256};

/// Returns the digest of a byte slice.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    format_digest(Sha256::new_with_prefix(bytes))
}

/// Formats the digest of everything that was added to a hasher.
pub(crate) fn format_digest(hash: Sha256) -> String {
    format!("sha256:{}", hex(&hash.finalize()))
}

/// Returns the digest of everything that a reader yields.
pub(crate) fn sha256_of(mut reader: impl Read) -> io::Result<String> {
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 64 * 1024]);
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(format_digest(hash)),
            length => hash.update(&buffer[..length]),
        }
    }
}
