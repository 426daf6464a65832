//! Function calls with a secret at a known position among their arguments.

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
    for argument in 0..=number {
        at += white(text, at);
        // `b"…"`, `Some("…"`, `String::from("…"`
        at += run(text, at, |byte| byte.is_ascii_alphabetic() || b":&@(_".contains(&byte)).min(20);
        let quote = Quote::at(text, at);
        let value = match quote {
            Some(quote) if quote.is_of_json() || text[at] == b'`' => return None,
            Some(_) => extent::quoted(text, at)?,
            // A variable, whose value is elsewhere.
            None => at..at + run(text, at, |byte| is_token(byte) || b".()[]$>".contains(&byte)),
        };
        if argument == number {
            let secret = &text[value.clone()];
            let fits = secret.len() >= 4 && !is_placeholder(secret) && !is_prose(secret) && !secret.contains(&b' ');
            return (quote.is_some() && fits).then_some(Secret { at: value, rule: "assignment" });
        }
        at = value.end + quote.map_or(0, Quote::length);
        at += run(text, at, |byte| byte.is_ascii_alphabetic() || b").(_".contains(&byte)).min(20);
        at += white(text, at);
        (text.get(at) == Some(&b',')).then_some(())?;
        at += 1;
    }
    None
}
