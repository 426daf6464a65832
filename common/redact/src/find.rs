//! Locates secrets in a text without redacting them, and finds places where a text may be cut.

use std::ops::Range;

use cp_json as json;

use crate::shapes::key::{KEYS, Key};
use crate::{Redactor, Secret};

/// A secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its byte range.
    pub at: Range<usize>,
    /// The rule that matched, as in its mark.
    pub rule: &'static str,
    /// The prefix of all secrets of its kind, which may be shown; empty if there is none.
    pub prefix: &'static str,
}

impl Redactor {
    /// Returns the secrets in a text, in order and without overlap.
    pub fn find(&self, text: &str) -> Vec<Found> {
        let mut quoted = Vec::with_capacity(text.len() + text.len() / 16 + 2);
        json::string(text, &mut quoted);
        let (mut spelt, mut plain) = (1, 0);
        let mut plain_of = |offset: usize| {
            while spelt < offset {
                spelt += match (quoted[spelt], quoted[spelt + 1]) {
                    (b'\\', b'u') => 6,
                    (b'\\', _) => 2,
                    _ => 1,
                };
                plain += 1;
            }
            plain
        };
        let secrets = self.secrets(&quoted).into_iter();
        let found = secrets.map(|Secret { at, rule }| {
            let value = &quoted[at.clone()];
            let key = KEYS.iter().find(|key| key.rule == rule && value.starts_with(key.prefix().as_bytes()));
            let at = plain_of(at.start)..plain_of(at.end);
            Found { at, rule, prefix: key.map_or("", Key::prefix) }
        });
        found.collect()
    }
}

/// The kept part of a text that was too long, redacted.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// The beginning, or the whole text if it is short enough after redaction.
    pub head: String,
    /// Number of omitted bytes, and the end of the text.
    pub tail: Option<(usize, String)>,
}

impl Redactor {
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
        match self.cut(text, most, 0) {
            None => text.to_owned(),
            Some(Cut { head, tail: None }) => head,
            Some(Cut { head, tail: Some(_) }) => head + "…",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn find_returns_offsets_in_plain_text() {
        let key = format!("ghp_{}", "a1B2c3D4e5".repeat(4));
        let text = format!("\u{1}\"ü\"\t\\\n{key} and password=hunter22\nmy correct horse battery");
        let redactor = Redactor::knowing(["correct horse battery".to_owned()]);
        let found: Vec<_> =
            redactor.find(&text).into_iter().map(|f| (text[f.at].to_owned(), f.rule, f.prefix)).collect();
        let expected = [
            (key.as_str(), "github_token", "ghp_"),
            ("hunter22", "assignment", ""),
            ("correct horse battery", "own_secret", ""),
        ];
        assert_eq!(found, expected.map(|(text, rule, prefix)| (text.to_owned(), rule, prefix)));
    }
}
