//! Text that is not ours, made harmless for a terminal.

use std::fmt::Write as _;

/// The text without anything that a terminal acts on: escapes and other controls are shown as what they are, marks that turn the
/// direction of writing by their number. Line feeds and tabs stay.
pub(crate) fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\n' | '\t' => out.push(letter),
            '\r' if letters.peek() == Some(&'\n') => {}
            '\0'..='\x1f' => out.extend(['^', char::from(letter as u8 + 0x40)]),
            '\x7f' => out.push_str("^?"),
            '\u{80}'..='\u{9f}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}'
            | '\u{feff}' => {
                let _ = write!(out, "<U+{:04X}>", u32::from(letter));
            }
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_acts_on_is_shown_and_not_done() {
        assert_eq!(harmless("a\x1b[31mred\x07\r\nb\tc"), "a^[[31mred^G\nb\tc");
        assert_eq!(harmless("x\u{9b}2J\u{202e}y\x7f\rz"), "x<U+009B>2J<U+202E>y^?^Mz");
        assert_eq!(harmless("grüße 日本 👍"), "grüße 日本 👍");
    }
}
