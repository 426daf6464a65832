//! Headers that a person gives for each request.

use cp_common::{Error, Result};
use cp_redact::Redactor;

/// A header for each request. One that HTTP does not allow, or that the connection sets itself, is refused.
pub(crate) fn header(name: &str, value: &str) -> Result<(String, String)> {
    let wrong = if !is_name(name) {
        "is not a valid name"
    } else if value.chars().any(char::is_control) {
        "has a value with control characters"
    } else if !is_value(value) {
        "has a value with characters that HTTP does not allow"
    } else if ["content-length", "transfer-encoding", "connection"].iter().any(|own| own.eq_ignore_ascii_case(name)) {
        "is set by the connection"
    } else {
        return Ok((name.to_owned(), value.to_owned()));
    };
    Err(Error::validation(format!("the header `{}` {wrong}", name.escape_debug())))
}

/// Whether it can be the name of a header: a token of RFC 9110, 5.6.2.
pub(crate) fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Whether it can be the value of a header: visible ASCII characters, spaces and tabs.
pub(crate) fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

/// Whether a header looks like one that holds a key.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "credential"].iter().any(|word| name.contains(word))
        || Redactor::from_environment().redact_text(value).1 > 0
}
