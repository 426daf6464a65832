//! Text that is not ours, on its way to a terminal: whatever a terminal would act on is shown instead.

use std::borrow::Cow;
use std::fmt::Write as _;

/// The text without anything that a terminal acts on. Controls are shown with a caret (`^[`), those of the second set and marks
/// that turn the direction of writing by their number (`<U+202E>`). Line feeds and tabs stay, and `\r\n` is a line feed.
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

/// [`printable`] for what stands on one line: a line feed or a tab is shown too.
#[must_use]
pub fn printable_line(text: &str) -> String {
    printable(text).replace('\n', "^J").replace('\t', "^I")
}

/// Whether a terminal does something on this character but show it: ECMA-48's two sets of controls, and Unicode's marks that
/// override or isolate the direction of writing.
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
    fn what_a_terminal_acts_on_is_shown_and_not_done() {
        assert_eq!(printable("a\x1b[31mred\x07\r\nb\tc"), "a^[[31mred^G\nb\tc");
        assert_eq!(printable("x\u{9b}2J\u{202e}y\x7f\rz"), "x<U+009B>2J<U+202E>y^?^Mz");
        assert_eq!(printable("\x1b]0;title\x1b\\\u{61c}\u{2067}"), "^[]0;title^[\\<U+061C><U+2067>");
        assert_eq!(printable_line("a\n\tb"), "a^J^Ib");
    }

    #[test]
    fn what_it_only_shows_stays_and_is_not_copied() {
        assert!(matches!(printable("grüße 日本 👍\n\tשלום"), Cow::Borrowed("grüße 日本 👍\n\tשלום")));
    }

    proptest! {
        #[test]
        fn nothing_is_left_to_act_on_and_a_second_time_changes_nothing(text in any::<String>()) {
            let once = printable(&text);
            prop_assert!(!once.chars().any(acts));
            prop_assert_eq!(printable(&once), once.clone());
        }
    }
}
