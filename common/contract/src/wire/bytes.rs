//! Names that need not be UTF-8: JSON carries a readable form, and the exact bytes if that form is lossy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the base64 of a name that is not UTF-8, for a member `…_bytes` beside the readable one; `None` for UTF-8.
pub fn bytes_of(name: impl AsRef<OsStr>) -> Option<String> {
    let name = name.as_ref();
    name.to_str().is_none().then(|| STANDARD.encode(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_utf8_returns_none() {
        assert_eq!(bytes_of("grün.jsonl"), None);
        assert_eq!(bytes_of(OsStr::from_bytes(b"\xe9.jsonl")).as_deref(), Some("6S5qc29ubA=="));
    }
}
