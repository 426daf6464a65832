//! The hash of bytes that come in pieces.

use cp_common::keys::hex;
use sha2::{Digest as _, Sha256};

/// The hash as records have it: `sha256:` and 64 hexadecimal digits.
pub(crate) fn finished(hash: Sha256) -> String {
    format!("sha256:{}", hex(&hash.finalize()))
}
