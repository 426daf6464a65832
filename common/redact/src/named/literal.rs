//! The value after a name: in quotes, or bare.

use std::ops::Range;

use crate::shapes::header::is_name_and_password;
use crate::words::name::{Kind, Name};
use crate::words::scan::{Quote, run};
use crate::words::value::is_quoted_secret;

/// Returns the value in quotes that begins here, if it is the announced secret. If the name is a JSON string, so is the
/// value; a value within a string ends with the string.
pub(crate) fn in_quotes(text: &[u8], at: usize, name: &Name) -> Option<Range<usize>> {
    let kind = name.kind;
    let quote = Quote::at(text, at)?;
    if !Quote::are_of_one_level(Quote::at(text, name.at.end), Some(quote)) {
        return None;
    }
    let start = at + quote.length();
    let value = start..quote.closing(text, start)?;
    let secret = &text[value.clone()];
    (is_quoted_secret(secret, kind) || kind == Kind::Basic && is_name_and_password(secret)).then_some(value)
}

/// Returns the value without quotes that begins here. If the setting is alone on its line, the value extends to the
/// next blank.
pub(crate) fn bare(text: &[u8], at: usize, is_setting: bool, kind: Kind) -> Range<usize> {
    // A password has at most 256 bytes; other secrets end at an equals sign.
    let text = if kind == Kind::Password { &text[..text.len().min(at + 256)] } else { text };
    let mut length = run(text, at, |byte| match byte {
        b'"' | b'\\' | 0..=b' ' => false,
        b'\'' | b'`' | b',' | b';' | b'&' | b')' | b'}' | b']' | b'<' => is_setting,
        b'=' => kind == Kind::Password,
        _ => true,
    });
    length += run(text, at + length, |byte| byte == b'=').min(2);
    let full_stop = !is_setting && length > 1 && text[at + length - 1] == b'.';
    at..at + length - usize::from(full_stop)
}
