//! Headers that a person gives for each request.

use cp_common::{Error, Result};
use cp_redact::Redactor;

/// A header for each request. One that HTTP does not allow, or that the connection sets itself, is refused.
pub(crate) fn header(name: &str, value: &str) -> Result<(String, String)> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let wrong = if name.is_empty() || !name.bytes().all(is_token) {
        "is not a valid name"
    } else if value.chars().any(char::is_control) {
        "has a value with control characters"
    } else if ["content-length", "transfer-encoding", "connection"].iter().any(|own| own.eq_ignore_ascii_case(name)) {
        "is set by the connection"
    } else {
        return Ok((name.to_owned(), value.to_owned()));
    };
    Err(Error::validation(format!("the header `{}` {wrong}", name.escape_debug())))
}

/// Whether a header looks like one that holds a key.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "credential"].iter().any(|word| name.contains(word))
        || Redactor::from_environment().redact_text(value).1 > 0
}
