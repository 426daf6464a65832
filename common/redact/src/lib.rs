//! Finds secrets in text and replaces them. The input is JSON text in normal form, and so is the output.
//!
//! One pass over the bytes finds three-byte anchors ([`anchor`]), and only there the rules are evaluated. No
//! regular expression is compiled, so that a process that writes one line starts fast. Each folder uses those
//! below it:
//!
//! - [`named`]: secrets after a name that announces them: assignments, options of commands, keys in a sentence
//! - [`mod@shapes`]: secrets with a recognizable form: keys of providers, tokens, private keys, URLs, headers
//! - [`words`]: recognition of names, values and random text

mod anchor;
#[cfg(test)]
mod corpus;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod kinds;
#[cfg(test)]
mod laws;
mod mark;
/// Secrets after a name that announces them.
mod named {
    pub(crate) mod assignment;
    pub(crate) mod call;
    pub(crate) mod column;
    pub(crate) mod command;
    pub(crate) mod phrase;
}
mod own;
/// Secrets with a recognizable form.
mod shapes {
    pub(crate) mod file;
    pub(crate) mod header;
    pub(crate) mod key;
    pub(crate) mod token;
    pub(crate) mod url;
}
mod view;
/// Recognition of names, values and random text.
mod words {
    pub(crate) mod extent;
    pub(crate) mod name;
    pub(crate) mod random;
    pub(crate) mod scan;
    pub(crate) mod value;

    /// Lists of words, from `tables/words.txt`.
    pub(crate) mod tables {
        include!(concat!(env!("OUT_DIR"), "/words.rs"));
    }
}

use std::ops::Range;
use std::sync::LazyLock;

use cp_json as json;

pub use self::mark::MARK_START;

use self::named::column;
use self::own::Own;
use self::shapes::token;
use self::view::View;
use self::words::name;

/// A secret in a text: its range, and the rule that matched.
pub(crate) struct Secret {
    pub(crate) at: Range<usize>,
    pub(crate) rule: &'static str,
}

/// Maximum number of passes; each pass redacts secrets that the previous pass exposed.
const ROUNDS: usize = 16;
/// How far from a mark the next pass looks for the secrets that it exposed.
const REACH: usize = 4 << 10;

/// The kept part of a text that was too long, redacted.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// The beginning, or the whole text if it is short enough after redaction.
    pub head: String,
    /// Number of omitted bytes, and the end of the text.
    pub tail: Option<(usize, String)>,
}

/// Redacts secrets of known forms, and the secrets of this process.
#[derive(Debug, Default)]
pub struct Redactor {
    own: Own,
}

impl Redactor {
    /// The redactor that also recognizes the secrets in this process's environment, as it was at the first use.
    pub fn from_environment() -> &'static Self {
        static REDACTOR: LazyLock<Redactor> = LazyLock::new(|| {
            Redactor::knowing(std::env::vars_os().filter_map(|(name, value)| {
                let (name, value) = (name.into_string().ok()?, value.into_string().ok()?);
                // `$PWD` is not a password, and a path to a secret is not a secret.
                let kind = name::kind_of(name.as_bytes())?;
                (kind < name::Kind::OwnKey && !value.starts_with('/')).then_some(value)
            }))
        });
        &REDACTOR
    }

    /// Makes a redactor that also recognizes these values.
    pub fn knowing(secrets: impl IntoIterator<Item = String>) -> Self {
        Self { own: Own::new(secrets) }
    }

    /// Replaces every secret in `text[from..]`, JSON in normal form, by `[REDACTED:rule]` and returns the number of
    /// replacements. Only the content of strings changes; structure, numbers and names are kept, except names that are
    /// secrets by their form.
    pub fn redact(&self, text: &mut Vec<u8>, from: usize) -> u32 {
        let (mut count, mut near, whole) = (0, None, 0..text.len() - from);
        for _ in 0..ROUNDS {
            let found = self.secrets(&text[from..], near.as_deref().unwrap_or(std::slice::from_ref(&whole)));
            if found.is_empty() {
                break;
            }
            count += u32::try_from(found.len()).unwrap_or(u32::MAX);
            let (clean, exposed) = mark::replaced(text, from, &found);
            (*text, near) = (clean, Some(exposed));
        }
        count
    }

    /// Returns the secrets in the strings of JSON that begin in these ranges, in order and without overlap.
    fn secrets(&self, text: &[u8], near: &[Range<usize>]) -> Vec<Secret> {
        let (mut own, mut found) = (joined(self.own.find(text)), joined(shapes(text, near)));
        mark::keep_within_strings(text, &mut own);
        mark::keep_within_strings(text, &mut found);
        joined([own, found].into_iter().flatten().collect())
    }

    /// Like [`Redactor::redact`], for text that is not JSON.
    pub fn redact_text(&self, text: &str) -> (String, u32) {
        let mut quoted = Vec::with_capacity(text.len() + 2);
        json::string(text, &mut quoted);
        match self.redact(&mut quoted, 0) {
            0 => (text.to_owned(), 0),
            count => (json::unquote(&quoted).unwrap_or_default(), count),
        }
    }

    /// Redacts a text and keeps its first `head` and last `tail` bytes; `None` if the text is short enough already, and
    /// so not redacted.
    pub fn cut(&self, text: &str, head: usize, tail: usize) -> Option<Cut> {
        if text.len() <= head + tail {
            return None;
        }
        let (mut text, _) = self.redact_text(text);
        if text.len() <= head + tail {
            return Some(Cut { head: text, tail: None });
        }
        let head = text.floor_char_boundary(head);
        let tail = text.ceil_char_boundary(text.len() - tail);
        let end = text[tail..].to_owned();
        text.truncate(head);
        Some(Cut { head: text, tail: Some((tail - head, end)) })
    }

    /// Returns the first `most` bytes of a text, redacted and followed by `…` if the text is longer.
    pub fn shortened(&self, text: &str, most: usize) -> String {
        let Some(Cut { head, tail }) = self.cut(text, most, 0) else { return text.to_owned() };
        if tail.is_some() { head + "…" } else { head }
    }
}

/// Orders secrets, and joins those that overlap.
fn joined(mut found: Vec<Secret>) -> Vec<Secret> {
    found.sort_by_key(|secret| secret.at.start);
    found.dedup_by(|next, last| {
        let overlaps = next.at.start < last.at.end;
        last.at.end = if overlaps { last.at.end.max(next.at.end) } else { last.at.end };
        overlaps
    });
    found
}

/// Returns the secrets of known forms that begin in these ranges of a text, or in its decoded view.
fn shapes(text: &[u8], near: &[Range<usize>]) -> Vec<Secret> {
    let mut found = plain_shapes(text, near);
    let Some(view) = View::of(text) else { return found };
    found.extend(plain_shapes(&view.text, std::slice::from_ref(&(0..view.text.len()))).into_iter().filter_map(
        |Secret { at, rule }| {
            let at = view.origin(&at)?;
            (!mark::is_marked(text, &at)).then_some(Secret { at, rule })
        },
    ));
    found
}

/// Returns the secrets in a text, which may overlap.
fn plain_shapes(text: &[u8], near: &[Range<usize>]) -> Vec<Secret> {
    let (mut found, mut cells): (Vec<Secret>, _) = (Vec::new(), Vec::new());
    for Range { start, end } in near {
        let mut from = *start;
        while let Some(hit) = anchor::next(&text[..*end], from) {
            from = hit.at + 1;
            let behind = found.last().map_or(0, |last| last.at.end);
            let mut secrets = hit.secrets(text);
            let is_new = |secret: &Secret| {
                secret.at.start >= behind && !secret.at.is_empty() && !mark::is_marked(text, &secret.at)
            };
            if let Some(secret) = secrets.find(is_new) {
                from = from.max(secret.at.end);
                found.push(secret);
            } else {
                cells.extend(column::cells(text, hit.at).into_iter().flatten());
            }
        }
    }
    let tokens = token::all(text).map(|at| Secret { at, rule: "token" });
    found.extend(tokens.chain(cells).filter(|secret| !mark::is_marked(text, &secret.at)));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn redacted(text: &str) -> String {
        let (clean, count) = Redactor::default().redact_text(text);
        assert_eq!(clean.matches("[REDACTED:").count() - text.matches("[REDACTED:").count(), count as usize);
        clean
    }

    #[test]
    fn assignments_keep_their_name() {
        for (text, clean) in [
            ("password=hunter22 next", "password=[REDACTED:assignment] next"),
            ("DB_PASSWORD: hunter22", "DB_PASSWORD: [REDACTED:assignment]"),
            ("api_key = 'abcd1234efgh'", "api_key = '[REDACTED:assignment]'"),
            (r#"{"client_secret":"abc\"def","x":1}"#, r#"{"client_secret":"[REDACTED:assignment]","x":1}"#),
            ("postgres://me:s3cret@db/x", "postgres://me:[REDACTED:url_password]@db/x"),
            ("Authorization: Bearer abcdef0123456789", "Authorization: Bearer [REDACTED:bearer]"),
        ] {
            assert_eq!(redacted(text), clean);
        }
        let mut json = br#"{"data":{"password":"a\"b,c","tokens":5,"token":null,"secret":["x"]}}"#.to_vec();
        assert_eq!(Redactor::default().redact(&mut json, 0), 1);
        let mut number =
            br#"{"name":"password","value":12345678,"enter password:":12345678,"a password:":{"value":12345678},"authorization":123456789012,"c":["password",{"send":1000,"password":null}]}"#.to_vec();
        assert_eq!(Redactor::default().redact(&mut number, 0), 0, "a number is not a string");
        assert_eq!(json, br#"{"data":{"password":"[REDACTED:assignment]","tokens":5,"token":null,"secret":["x"]}}"#);
    }

    #[test]
    fn private_key_is_redacted_to_its_end_line_or_last_line() {
        let key = "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\nabc=\n-----END EC PRIVATE KEY-----";
        assert_eq!(redacted(&format!("a {key} b")), "a [REDACTED:private_key] b");
        assert_eq!(redacted(&format!("a {}", &key[..45])), "a [REDACTED:private_key]\n");
    }

    fn key() -> String {
        format!("ghp_{}", "a1B2c3D4e5".repeat(4))
    }

    #[test]
    fn cut_leaves_no_part_of_a_secret() {
        let text = format!("{} password={} {}", "word ".repeat(20), key(), "more ".repeat(20));
        for head in 0..text.len() - 10 {
            let cut = Redactor::default().cut(&text, head, 9).unwrap();
            let left = format!("{}{}", cut.head, cut.tail.map_or_else(String::new, |(_, tail)| tail));
            assert!(!left.contains("a1B2") && !left.contains("ghp_"), "{head}: {left}");
        }
    }

    #[test]
    fn cut_omits_middle_at_character_boundaries() {
        let redactor = Redactor::default();
        assert_eq!(redactor.cut(&key(), 50, 0), None);
        let cut = redactor.cut(&"ä".repeat(100), 33, 11).unwrap();
        assert_eq!(cut, Cut { head: "ä".repeat(16), tail: Some((158, "ä".repeat(5))) });
        assert_eq!(redactor.cut(&key(), 30, 9), Some(Cut { head: "[REDACTED:github_token]".to_owned(), tail: None }));
        assert_eq!(redactor.shortened("äöü", 3), "ä…");
        assert_eq!(redactor.shortened("äöü", 6), "äöü");
    }
}
