//! Headers that a person gives for each request.

use cp_common::{Error, Result};
use cp_redact::Redactor;

/// Headers that belong to the connection.
const CONNECTION: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];

/// A header for each request, its name in small letters. No error repeats a value.
pub(crate) fn header(name: &str, value: &str) -> Result<(String, String)> {
    let name = name.trim().to_ascii_lowercase();
    let shown = name.escape_debug();
    if !is_name(&name) {
        return Err(Error::validation(format!("`{shown}` is not the name of a header")));
    }
    if !is_value(value) {
        return Err(Error::validation(format!(
            "the value of the header {shown} has characters that HTTP does not allow"
        ))
        .hint("give visible ASCII characters, spaces and tabs"));
    }
    if CONNECTION.contains(&name.as_str()) {
        return Err(Error::validation(format!("the header {shown} belongs to the connection")).hint("remove it"));
    }
    Ok((name, value.trim().to_owned()))
}

/// Whether it can be the name of a header: a token of RFC 9110, 5.6.2.
fn is_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Whether it can be the value of a header: visible ASCII characters, spaces and tabs.
fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| byte == b'\t' || (b' '..=b'~').contains(&byte))
}

/// Whether a header looks like one that holds a key.
pub(super) fn is_secret(name: &str, value: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["auth", "key", "token", "secret", "cookie", "password", "credential"].iter().any(|word| name.contains(word))
        || Redactor::from_environment().redact_text(value).1 > 0
}
