//! SHA-256 as it stands on the record: `sha256:` and 64 hex digits.

use cp_common::keys::hex;
use sha2::{Digest, Sha256};

/// The hash of some bytes.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    finished(Sha256::new_with_prefix(bytes))
}

/// The hash of everything that was added.
pub(crate) fn finished(hash: Sha256) -> String {
    format!("sha256:{}", hex(&hash.finalize()))
}
