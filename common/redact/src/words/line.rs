//! Splits a command into words, as a shell or as a JSON list.

use std::ops::Range;

use crate::words::extent::{self, CONTINUED};
use crate::words::scan::{Quote, blanks, slashes};

/// Maximum number of words.
const MOST: usize = 40;
/// Maximum length of a command, in bytes.
const LONGEST: usize = 2048;

/// Returns the words from `start` to the end of the command, without quotes.
pub(crate) fn words(text: &[u8], start: usize) -> Vec<Range<usize>> {
    let text = &text[..text.len().min(start + LONGEST)];
    let before = text[..start.saturating_sub(1)].iter().rev().take(8).take_while(|byte| **byte == b'\\').count();
    let opening = start.checked_sub(1).filter(|at| text[*at] == b'"').and_then(|at| Quote::at(text, at - before));
    if let Some(quote) = opening {
        let end = quote.closing(text, start).unwrap_or(start);
        if !text[start..end].contains(&b' ') && Quote::at(text, end).is_some() {
            return listed(text, start, end, quote);
        }
    }
    let mut words = Vec::new();
    let mut at = start;
    while words.len() < MOST {
        let Some(word) = word(text, at) else { break };
        at = word.end + Quote::at(text, word.end).filter(|_| word.start > at).map_or(0, Quote::length);
        words.push(word);
        let gap = gap(text, at);
        if gap == 0 {
            break;
        }
        at += gap;
    }
    words
}

/// Returns the length of blanks and continued line ends.
fn gap(text: &[u8], at: usize) -> usize {
    let gap = blanks(text, at);
    let after = at + gap + CONTINUED.len();
    if text[at + gap..].starts_with(CONTINUED) { after + blanks(text, after) - at } else { gap }
}

/// Returns the word here; `None` at the end of the command.
fn word(text: &[u8], at: usize) -> Option<Range<usize>> {
    if let Some(quote) = Quote::at(text, at) {
        if quote.is_of_json() {
            return None;
        }
        return extent::quoted(text, at);
    }
    let ends = |byte: u8| matches!(byte, b'"' | b'\\' | b'|' | b';' | b'&' | b'<' | b'>' | b'`' | 0..=b' ');
    let mut end = at;
    while end < text.len() {
        let slashes = slashes(text, end);
        if slashes > 0 && slashes.is_multiple_of(2) && !matches!(text.get(end + slashes), Some(b'"')) {
            // A backslash of the command itself.
            end += slashes;
            continue;
        }
        if ends(text[end]) {
            break;
        }
        // `--from-literal=name='value'`
        end += 1;
        if text[end - 1] == b'='
            && let Some(quote) = Quote::at(text, end).filter(|quote| !quote.is_of_json())
        {
            let start = end + quote.length();
            return Some(at..quote.closing(text, start)?);
        }
    }
    (end > at).then_some(at..end)
}

fn listed(text: &[u8], start: usize, end: usize, quote: Quote) -> Vec<Range<usize>> {
    let mut words = Vec::from([(start, end)]);
    let mut at = end + quote.length();
    while words.len() < MOST && text.get(at) == Some(&b',') {
        at += 1;
        at += blanks(text, at);
        if Quote::at(text, at) != Some(quote) {
            break;
        }
        let start = at + quote.length();
        let Some(end) = quote.closing(text, start) else { break };
        words.push((start, end));
        at = end + quote.length();
    }
    words.into_iter().map(|(start, end)| start..end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str, start: usize) -> Vec<&str> {
        words(text.as_bytes(), start).into_iter().map(|word| &text[word]).collect()
    }

    #[test]
    fn words_end_at_line_string_or_operator() {
        assert_eq!(split(r#""a -b 'c d' e | f""#, 1), ["a", "-b", "c d", "e"]);
        assert_eq!(split(r"a b\nc", 0), ["a", "b"]);
        assert_eq!(split(r#""a \"b c\" d""#, 1), ["a", "b c", "d"]);
        assert_eq!(split(r"a \\\n b", 0), ["a", "b"]);
    }

    #[test]
    fn words_of_list_are_its_strings() {
        assert_eq!(split(r#"["a","-p","c d","e"]"#, 2), ["a", "-p", "c d", "e"]);
        assert_eq!(split(r#""[\"a\", \"b\"]""#, 4), ["a", "b"]);
    }
}
