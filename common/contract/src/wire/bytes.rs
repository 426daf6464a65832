//! Names that need not be text: JSON has the readable form of them, and the bytes where that is not all.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The bytes in base64 of what is not UTF-8: what goes into a member `…_bytes` beside the readable one. None for text.
pub fn bytes_of(name: impl AsRef<OsStr>) -> Option<String> {
    let name = name.as_ref();
    name.to_str().is_none().then(|| STANDARD.encode(name.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_text_needs_its_bytes() {
        assert_eq!(bytes_of("grün.jsonl"), None);
        assert_eq!(bytes_of(OsStr::from_bytes(b"\xe9.jsonl")).as_deref(), Some("6S5qc29ubA=="));
    }
}
