//! Where secrets are in a text, without taking them out.

use std::ops::Range;

use cp_json as json;

use crate::shapes::key;
use crate::{Redactor, shapes};

/// A secret in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where, in bytes.
    pub at: Range<usize>,
    /// The rule that found it, as its mark names it.
    pub rule: &'static str,
    /// How it begins, if all of its kind do; this much may be shown.
    pub prefix: &'static str,
}

impl Redactor {
    /// The secrets in a text, in their order; none lies in another.
    pub fn find(&self, text: &str) -> Vec<Found> {
        let mut quoted = Vec::with_capacity(text.len() + text.len() / 16 + 2);
        json::string(text, &mut quoted);
        let mut found = self.own.find(text);
        let mut place = Place { quoted: &quoted, at: 1, plain: 0 };
        for secret in shapes(&quoted) {
            let start = place.plain_of(secret.at.start);
            let at = start..place.plain_of(secret.at.end);
            if found.iter().any(|own| own.at.start < at.end && at.start < own.at.end) {
                continue;
            }
            let value = &quoted[secret.at];
            let key = key::KEYS
                .iter()
                .find(|(rule, prefix, ..)| *rule == secret.rule && value.starts_with(prefix.as_bytes()));
            found.push(Found { at, rule: secret.rule, prefix: key.map_or("", |(_, prefix, ..)| prefix) });
        }
        found.sort_by_key(|found| found.at.start);
        found
    }
}

/// A place in a text and in its spelling as a string of JSON. It only goes on.
struct Place<'a> {
    quoted: &'a [u8],
    at: usize,
    plain: usize,
}

impl Place<'_> {
    /// Where in the text that is which in its spelling is here.
    fn plain_of(&mut self, spelt: usize) -> usize {
        while self.at < spelt.min(self.quoted.len() - 1) {
            self.at += match (self.quoted[self.at], self.quoted[self.at + 1]) {
                (b'\\', b'u') => 6,
                (b'\\', _) => 2,
                _ => 1,
            };
            self.plain += 1;
        }
        self.plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_those_in_the_text_whatever_its_spelling() {
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
