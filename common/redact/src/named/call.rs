//! Function calls with a secret at a known position among their arguments.

use std::ops::Range;

use crate::Secret;
use crate::words::extent;
use crate::words::scan::{Quote, is_token, run, white};
use crate::words::value::{is_placeholder, is_prose};

include!(concat!(env!("OUT_DIR"), "/calls.rs"));

/// Returns the secret in a call that begins here.
pub(crate) fn at(text: &[u8], start: usize, index: usize) -> Option<Secret> {
    let (call, number) = CALLS[index];
    let before = start.checked_sub(1).map(|at| text[at]);
    // `HTTPBasicAuth` may follow its module, `.login` its object, and any name the letter of an escape.
    let begins = !call.starts_with(|first: char| first.is_ascii_lowercase())
        || before.is_none_or(|byte| !is_token(byte))
        || start > 1 && text[start - 2] == b'\\';
    if !text[start..].starts_with(call.as_bytes()) || !begins {
        return None;
    }
    let mut at = start + call.len();
    let mut first = 0;
    let mut level = None;
    loop {
        at += white(text, at);
        // `b"…"`, `Some("…"`, `String::from("…"`
        at += run(text, at, |byte| byte.is_ascii_alphabetic() || matches!(byte, b':' | b'&' | b'@' | b'(' | b'_'))
            .min(20);
        let Some(quote) = Quote::at(text, at) else {
            // A variable, whose value is elsewhere.
            let length = run(&text[..text.len().min(at + 120)], at, |byte| {
                is_token(byte) || matches!(byte, b'.' | b'(' | b')' | b'[' | b']' | b'$' | b'>')
            });
            at += length;
            if first == number || text.get(at) != Some(&b',') {
                return None;
            }
            (at, first) = (at + 1, first + 1);
            continue;
        };
        if quote.is_of_json() || level.is_some_and(|level| level != quote) && first > number {
            return None;
        }
        level = Some(quote);
        let Range { start: from, end } = extent::quoted(text, at)?;
        if first == number {
            let value = &text[from..end];
            let fits = value.len() >= 4 && !is_placeholder(value) && !is_prose(value) && !value.contains(&b' ');
            return fits.then_some(Secret { at: from..end, rule: "assignment" });
        }
        at = end + quote.length();
        at += run(text, at, |byte| matches!(byte, b')' | b'.' | b'(') || byte.is_ascii_alphabetic() || byte == b'_')
            .min(20);
        at += white(text, at);
        (text.get(at) == Some(&b',')).then_some(())?;
        (at, first) = (at + 1, first + 1);
    }
}
