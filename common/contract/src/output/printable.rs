//! Escapes untrusted text for a terminal.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Escapes everything that controls a terminal. C0 controls are shown with a caret (`^[`), C1 controls and
/// bidirectional marks by their number (`<U+202E>`). Line feeds and tabs are kept, and `\r
/// ` becomes a line feed.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(acts) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' if letters.peek() == Some(&'\n') => {}
            '\x7f' => shown.push_str("^?"),
            '\0'..='\x1f' if acts(letter) => shown.extend(['^', char::from(letter as u8 + 0x40)]),
            letter if acts(letter) => drop(write!(shown, "<U+{:04X}>", u32::from(letter))),
            letter => shown.push(letter),
        }
    }
    Cow::Owned(shown)
}

/// Like [`printable`] for a single line: line feeds and tabs are escaped too.
#[must_use]
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "^J").replace('\t', "^I")
}

/// True if a terminal does not just display this character: the C0 and C1 controls of ECMA-48, and Unicode's
/// bidirectional marks.
fn acts(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}' => true,
        _ => letter.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn printable_escapes_terminal_controls() {
        assert_eq!(printable("a\x1b[31mred\x07\r\nb\tc"), "a^[[31mred^G\nb\tc");
        assert_eq!(printable("x\u{9b}2J\u{202e}y\x7f\rz"), "x<U+009B>2J<U+202E>y^?^Mz");
        assert_eq!(printable("\x1b]0;title\x1b\\\u{61c}\u{2067}"), "^[]0;title^[\\<U+061C><U+2067>");
        assert_eq!(printable_line("a\n\tb"), "a^J^Ib");
    }

    #[test]
    fn printable_borrows_plain_text() {
        assert!(matches!(printable("grüße 日本 👍\n\tשלום"), Cow::Borrowed("grüße 日本 👍\n\tשלום")));
    }

    proptest! {
        #[test]
        fn printable_is_idempotent_and_leaves_no_controls(text in any::<String>()) {
            let once = printable(&text);
            prop_assert!(!once.chars().any(acts));
            prop_assert_eq!(printable(&once), once.clone());
        }
    }
}
