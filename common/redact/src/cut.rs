//! Texts that are cut. What is cut before its secrets are taken out ends in a part of one, which no rule knows; so whoever cuts a
//! text that others see does it here.

use crate::Redactor;

/// The kept part of a text that was too long, without secrets.
#[derive(Debug, PartialEq, Eq)]
pub struct Cut {
    /// Its beginning; all of it, where without its secrets it is short enough.
    pub head: String,
    /// How many bytes are left out, and the end behind them.
    pub tail: Option<(usize, String)>,
}

impl Redactor {
    /// The first `head` and the last `tail` bytes of a text, without secrets; `None` where it is not longer, and so not cut.
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

    /// The first bytes of a text, without secrets if it had to be cut, and `…` for the rest.
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
    fn no_part_of_a_secret_is_left_wherever_the_cut_is() {
        let text = format!("{} password={} {}", "word ".repeat(20), key(), "more ".repeat(20));
        for head in 0..text.len() - 10 {
            let cut = Redactor::default().cut(&text, head, 9).unwrap();
            let left = format!("{}{}", cut.head, cut.tail.map_or_else(String::new, |(_, tail)| tail));
            assert!(!left.contains("a1B2") && !left.contains("ghp_"), "{head}: {left}");
        }
    }

    #[test]
    fn the_middle_is_left_out_between_characters_and_what_is_short_stays() {
        let redactor = Redactor::default();
        assert_eq!(redactor.cut(&key(), 50, 0), None);
        let cut = redactor.cut(&"ä".repeat(100), 33, 11).unwrap();
        assert_eq!(cut, Cut { head: "ä".repeat(16), tail: Some((158, "ä".repeat(5))) });
        assert_eq!(redactor.cut(&key(), 30, 9), Some(Cut { head: "[REDACTED:github_token]".to_owned(), tail: None }));
        assert_eq!(redactor.shortened("äöü", 3), "ä…");
        assert_eq!(redactor.shortened("äöü", 6), "äöü");
    }
}
