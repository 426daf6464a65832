//! Words, quotes and lines in JSON text, whose strings may contain quoted text again: JSON in JSON, code in JSON.
//!
//! A quote there follows 0, 1, 3, 7… backslashes; a line feed is `
//! ` after any number of them.

use std::ops::Range;

/// Maximum length of a value; longer text is not a value.
const LONGEST_VALUE: usize = 16 << 10;
/// Maximum length of text without quotes that is examined.
const LONGEST_RUN: usize = 8 << 10;
/// Maximum length of names and words; longer text is data.
const LONGEST_WORD: usize = 64;

/// Counts the bytes from `at` on that satisfy `of`, up to the length of any key, because longer repetitions would be
/// examined again and again.
pub(crate) fn run(text: &[u8], at: usize, of: impl Fn(u8) -> bool) -> usize {
    text.get(at..).map_or(0, |rest| rest.iter().take(LONGEST_RUN).take_while(|byte| of(**byte)).count())
}

/// Counts the bytes before `at` that satisfy `of`, up to the length of a word.
fn run_back(text: &[u8], at: usize, of: impl Fn(u8) -> bool) -> usize {
    text[..at].iter().rev().take(LONGEST_WORD).take_while(|byte| of(**byte)).count()
}

/// True for bytes of names and of most keys.
pub(crate) const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_')
}

/// True for bytes of base64, in both alphabets.
pub(crate) const fn is_base64(byte: u8) -> bool {
    is_token(byte) || matches!(byte, b'+' | b'/' | b'=')
}

/// True if a word starts here; the letter of an escape such as `
/// ` is not part of it.
pub(crate) fn is_word_start(text: &[u8], start: usize) -> bool {
    match start.checked_sub(1).map(|before| text[before]) {
        None => true,
        Some(byte) if byte.is_ascii_alphanumeric() => start >= 2 && text[start - 2] == b'\\',
        Some(byte) => byte != b'_',
    }
}

/// Returns the word around an offset; `None` if it is too long.
pub(crate) fn word_around(text: &[u8], inside: usize) -> Option<Range<usize>> {
    let before = run_back(text, inside, is_token);
    let mut start = inside - before;
    if start > 0 && text[start - 1] == b'\\' && start < inside {
        start += 1;
    }
    let rest = &text[inside..text.len().min(inside + LONGEST_WORD)];
    let end = inside + rest.iter().take_while(|byte| is_token(**byte)).count();
    (end - start < LONGEST_WORD).then_some(start..end)
}

/// Returns the word that ends before the blanks here.
pub(crate) fn word_before(text: &[u8], at: usize) -> &[u8] {
    let end = at - run_back(text, at, |byte| byte == b' ');
    &text[end - run_back(text, end, is_token)..end]
}

/// Counts the backslashes here.
pub(crate) fn slashes(text: &[u8], at: usize) -> usize {
    run(text, at, |byte| byte == b'\\')
}

/// Returns the length of the blanks here, on one line.
pub(crate) fn blanks(text: &[u8], at: usize) -> usize {
    gap(text, at, b"t")
}

/// Returns the length of the blanks here. A line that is continued counts as blanks: after a backslash, or after a
/// blank and one of these signs, such as `^` in a command and `>-` in YAML.
pub(crate) fn joint(text: &[u8], at: usize, signs: &[u8]) -> usize {
    let before = blanks(text, at);
    let sign = at + before;
    let slashes = slashes(text, sign);
    let length = match text.get(sign) {
        // The text has one backslash, and one more begins the escape of the line feed.
        Some(b'\\') if slashes.is_multiple_of(3) => slashes / 3 * 2,
        Some(byte) if before > 0 && signs.contains(byte) => {
            1 + run(text, sign + 1, |byte| matches!(byte, b'-' | b'+' | b'0'..=b'9'))
        }
        _ => return before,
    };
    let end = sign + length;
    let line = white(text, end);
    if line > 0 && is_line_end(text, end) { end + line - at } else { before }
}

/// Returns the length of the blanks and line ends here.
pub(crate) fn white(text: &[u8], at: usize) -> usize {
    gap(text, at, b"tnr")
}

fn gap(text: &[u8], at: usize, letters: &[u8]) -> usize {
    let mut end = at;
    loop {
        let escape = slashes(text, end);
        end += match text.get(end + escape) {
            Some(b' ') if escape == 0 => 1,
            Some(letter) if escape > 0 && letters.contains(letter) => escape + 1,
            _ => return end - at,
        };
    }
}

/// True if a line, or the string that contains it, ends here.
pub(crate) fn is_line_end(text: &[u8], at: usize) -> bool {
    let at = at + blanks(text, at);
    let escape = slashes(text, at);
    match text.get(at + escape) {
        None | Some(b'"') => true,
        Some(letter) => escape > 0 && matches!(letter, b'n' | b'r'),
    }
}

/// True if only blanks precede this offset on its line, or in the string that contains it.
pub(crate) fn is_line_start(text: &[u8], at: usize) -> bool {
    let at = at - run_back(text, at, |byte| byte == b' ');
    match at.checked_sub(1).map(|before| text[before]) {
        None | Some(b'"') => true,
        Some(letter) => matches!(letter, b'n' | b'r' | b't') && at >= 2 && text[at - 2] == b'\\',
    }
}

/// Returns the text before this offset on its line, up to the length of a command line.
pub(crate) fn line_before(text: &[u8], at: usize) -> &[u8] {
    let text = &text[at.saturating_sub(512)..at];
    let line = memchr::memmem::rfind(text, b"\\n").map_or(0, |feed| feed + 2);
    &text[line..]
}

/// A quote and its nesting depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Quote {
    mark: u8,
    slashes: usize,
}

impl Quote {
    /// Returns the quote here.
    pub(crate) fn at(text: &[u8], at: usize) -> Option<Self> {
        let slashes = slashes(text, at);
        let mark = *text.get(at + slashes)?;
        let is_quote = match mark {
            b'"' => (slashes + 1).is_power_of_two(),
            b'\'' | b'`' => slashes == 0,
            _ => false,
        };
        is_quote.then_some(Self { mark, slashes })
    }

    /// Returns its length in bytes.
    pub(crate) const fn length(self) -> usize {
        self.slashes + 1
    }

    /// True if a name and its value are both JSON strings, or both text within one.
    pub(crate) fn are_of_one_level(name: Option<Self>, value: Option<Self>) -> bool {
        name.is_some_and(Self::is_of_json) == value.is_some_and(Self::is_of_json)
    }

    /// True if this is a quote of the JSON itself, not of text within a string.
    pub(crate) const fn is_of_json(self) -> bool {
        self.mark == b'"' && self.slashes == 0
    }

    /// Returns the end of the text that starts at `from`; truncated text ends with the string that contains it.
    pub(crate) fn closing(self, text: &[u8], from: usize) -> Option<usize> {
        let text = &text[..text.len().min(from + LONGEST_VALUE)];
        let mut at = from;
        loop {
            at += memchr::memchr3(self.mark, b'"', b'\\', text.get(at..)?)?;
            let slashes = slashes(text, at);
            let mark = *text.get(at + slashes)?;
            if mark == b'"' && self.mark == b'"' {
                if slashes % (2 * (self.slashes + 1)) == self.slashes {
                    return Some(at + slashes - self.slashes);
                }
                if slashes < self.slashes {
                    return Some(at);
                }
            } else if mark == self.mark && slashes % 4 != 2 {
                return Some(at + slashes);
            } else if mark == b'"' && slashes.is_multiple_of(2) {
                // An apostrophe.
                return None;
            }
            at += slashes + 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quoted(text: &str) -> Option<&str> {
        let quote = Quote::at(text.as_bytes(), 0)?;
        let end = quote.closing(text.as_bytes(), quote.length())?;
        Some(&text[quote.length()..end])
    }

    #[test]
    fn quote_is_closed_at_same_depth() {
        assert_eq!(quoted(r#""a" b"#), Some("a"));
        assert_eq!(quoted(r#""a\"b\\" c"#), Some(r#"a\"b\\"#));
        assert_eq!(quoted(r#"\"a\" b"#), Some("a"));
        assert_eq!(quoted(r#"\"a\\\"b\\\\\" c\""#), Some(r#"a\\\"b\\\\"#));
        assert_eq!(quoted(r#"\\\"a\\\" b"#), Some("a"));
        assert_eq!(quoted(r"'a\\'b' c"), Some(r"a\\'b"));
    }

    #[test]
    fn truncated_text_ends_with_string_and_apostrophe_is_not_a_quote() {
        assert_eq!(quoted(r#"\"abc","next":1"#), Some("abc"));
        assert_eq!(quoted(r#"'abc","next":'1'"#), None);
        assert_eq!(quoted(r#"'say \"a\" b'"#), Some(r#"say \"a\" b"#));
    }

    #[test]
    fn word_around_finds_word_from_inside() {
        let word = |text: &'static str, at| word_around(text.as_bytes(), at).map(|word| &text[word]);
        assert_eq!(word("a DB_PASS=x", 6), Some("DB_PASS"));
        assert_eq!(word(r"line\npassword: x", 6), Some("password"));
        assert_eq!(word_around(&[b'a'; 200], 100), None);
        assert_eq!(word_before(b"API key", 4), b"API");
    }
}
