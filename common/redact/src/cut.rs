//! Cuts a long text where no secret is.

use crate::Redactor;

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
}
