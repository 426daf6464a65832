//! The extent of a value: with its continuations, up to the closing quote or a byte that its alphabet excludes.

use std::ops::Range;

use crate::words::name::Kind;
use crate::words::scan::{Quote, blanks, is_base64, run, white};

/// A shell continues its line after a backslash.
pub(crate) const CONTINUED: &[u8] = b"\\\\\\n";

/// Returns the value in quotes that begins here, with the literals that are joined to it: `"abc" + "def"`.
pub(crate) fn quoted(text: &[u8], at: usize) -> Option<Range<usize>> {
    let quote = Quote::at(text, at)?;
    let start = at + quote.length();
    let mut end = quote.closing(text, start)?;
    while !quote.is_of_json() {
        let after = end + quote.length();
        // In `ab\\"cd"` the first quote is a part of the value, unless the language is known.
        let escaped = text[..end].ends_with(b"\\") && text.get(after).is_some_and(u8::is_ascii_alphanumeric);
        let next = if escaped { Some(after) } else { joined(text, after, quote) };
        let Some(next) = next.and_then(|next| quote.closing(text, next)) else { break };
        end = next;
    }
    Some(start..end)
}

/// Returns the beginning of the literal that is joined to the one that ends here: by a sign, or after a line that is
/// continued.
fn joined(text: &[u8], end: usize, quote: Quote) -> Option<usize> {
    let mut at = end + blanks(text, end);
    if text.get(at..)?.starts_with(CONTINUED) {
        at += CONTINUED.len();
    } else {
        at += white(text, at);
        let sign = [&b".."[..], b"+", b".", b"&"].into_iter().find(|sign| text[at..].starts_with(sign))?;
        at += sign.len();
    }
    at += white(text, at);
    (Quote::at(text, at) == Some(quote)).then_some(at + quote.length())
}

/// Returns the word here, with or without quotes. The end of a JSON string is not a quote.
pub(crate) fn word(text: &[u8], at: usize) -> Option<Range<usize>> {
    match Quote::at(text, at) {
        Some(quote) if quote.is_of_json() => None,
        Some(_) => quoted(text, at),
        None => Some(bare(text, at, true, Kind::Password)),
    }
}

/// Returns the value without quotes that begins here. If the setting is alone on its line, the value extends to the
/// next blank.
pub(crate) fn bare(text: &[u8], at: usize, is_setting: bool, kind: Kind) -> Range<usize> {
    // A password has at most 256 bytes.
    let text = if kind == Kind::Password { &text[..text.len().min(at + 256)] } else { text };
    let is_part = |byte: u8| match byte {
        b'"' | b'\\' | b'=' | 0..=b' ' => false,
        b'\'' | b'`' | b',' | b';' | b'&' | b')' | b'}' | b']' | b'<' => is_setting,
        _ => true,
    };
    let mut end = at;
    loop {
        end += run(text, end, is_part);
        let rest = text.get(end..).unwrap_or_default();
        // In `token: type=x` the value is a list of parameters.
        let is_long = kind == Kind::Password || end - at >= 8;
        end += match rest {
            [b'=', next, ..] if is_long && is_base64(*next) && *next != b'=' => 1,
            [b'=', ..] if kind == Kind::Password => 1,
            _ if is_setting && end > at && continues(rest) => CONTINUED.len(),
            _ => break,
        };
    }
    end += run(text, end, |byte| byte == b'=').min(2);
    let full_stop = !is_setting && end - at > 1 && text[end - 1] == b'.';
    at..end - usize::from(full_stop)
}

/// True if the next line continues the word that ends here.
fn continues(rest: &[u8]) -> bool {
    rest.strip_prefix(CONTINUED).is_some_and(|next| next.first().is_some_and(|byte| is_base64(*byte) && *byte != b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<&str> {
        Some(&text[quoted(text.as_bytes(), 0)?])
    }

    #[test]
    fn quoted_value_includes_joined_literals() {
        assert_eq!(value(r#"\"ab\" + \"cd\" + x"#), Some(r#"ab\" + \"cd"#));
        assert_eq!(value(r"'ab' .\n    'cd';"), Some(r"ab' .\n    'cd"));
        assert_eq!(value(r"'ab' \\\n 'cd'"), Some(r"ab' \\\n 'cd"));
        assert_eq!(value(r"'ab', 'cd'"), Some("ab"));
        assert_eq!(value(r#""ab"+"cd""#), Some("ab"));
        assert_eq!(value(r#"\"ab\\\\\"cd12\" x"#), Some(r#"ab\\\\\"cd12"#));
    }

    #[test]
    fn bare_value_ends_at_blank_or_separator() {
        let value = |text: &'static str, is_setting, kind| &text[bare(text.as_bytes(), 0, is_setting, kind)];
        assert_eq!(value("abcd1234=efgh==:x y", false, Kind::Token), "abcd1234=efgh==");
        assert_eq!(value("ab=cd", false, Kind::Token), "ab=");
        assert_eq!(value("a,b;c d", true, Kind::Password), "a,b;c");
        assert_eq!(value("a,b;c d", false, Kind::Password), "a");
        assert_eq!(value(r"abc\\\nrest next", true, Kind::Password), r"abc\\\nrest");
        assert_eq!(value(r"abc\nrest", true, Kind::Password), "abc");
    }
}
