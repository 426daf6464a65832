//! Function calls with a secret at a known position among their arguments.

use crate::Secret;
use crate::words::scan::{Quote, is_token, run, white};
use crate::words::value::{is_placeholder, is_prose};

/// The text before the arguments, and the index of the secret argument.
pub(crate) type Call = (&'static str, usize);

/// The calls.
pub(crate) static CALLS: [Call; 20] = [
    ("auth=(", 1),
    ("auth = (", 1),
    ("auth=aiohttp.BasicAuth(", 1),
    ("HTTPBasicAuth(", 1),
    ("HTTPDigestAuth(", 1),
    ("basic_auth(", 1),
    ("BasicAuth(", 1),
    ("setBasicAuth(", 1),
    ("basicAuth(", 1),
    ("NetworkCredential(", 1),
    ("PasswordCredentials(", 1),
    ("PasswordAuthentication(", 1),
    ("PasswordAuthenticationToken(", 1),
    ("getConnection(", 2),
    ("mysqli_connect(", 2),
    ("mysqli(", 2),
    ("PDO(", 2),
    (".login(", 1),
    ("Credentials::new(", 1),
    ("pika.PlainCredentials(", 1),
];

/// Returns the secret in a call that begins here.
pub(crate) fn at(text: &[u8], start: usize, (call, number): Call) -> Option<Secret> {
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
        let from = at + quote.length();
        let end = quote.closing(text, from)?;
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
