//! Names of bytes by their hash, as the ledger has them: `sha256:` and 64 hexadecimal digits.

use cp_common::keys::hex;
use sha2::{Digest as _, Sha256};

/// The hash of bytes.
pub(crate) fn of(bytes: &[u8]) -> String {
    finished(Sha256::new_with_prefix(bytes))
}

/// The hash of bytes that came in pieces.
pub(crate) fn finished(hash: Sha256) -> String {
    format!("sha256:{}", hex(&hash.finalize()))
}
