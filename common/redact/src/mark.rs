//! Marks, which replace secrets.

use std::collections::HashSet;
use std::ops::Range;

use memchr::memmem;

use crate::Secret;
use crate::own::{MARK_START, mark_length, string_end};

/// Returns the text with a mark for each secret. In member names the marks are numbered if two names would become
/// equal.
pub(crate) fn replaced(text: &[u8], found: &[Secret]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut names = HashSet::new();
    let mut at = 0;
    let mut secrets = found.iter().peekable();
    while let Some(secret) = secrets.next() {
        clean.extend_from_slice(&text[at..secret.at.start]);
        at = secret.at.end;
        let until = secrets.peek().map_or(text.len(), |next| next.at.start);
        match name_rest(text, at, until) {
            None => mark(secret.rule, 1, &mut clean),
            Some(rest) => {
                let name = clean.iter().rposition(|byte| *byte == b'"').unwrap_or(0);
                let start = clean.len();
                for number in 1_u32.. {
                    clean.truncate(start);
                    mark(secret.rule, number, &mut clean);
                    let whole = [&clean[name..], rest].concat();
                    if memmem::find(text, &whole).is_none() && names.insert(whole) {
                        break;
                    }
                }
            }
        }
    }
    clean.extend_from_slice(&text[at..]);
    clean
}

fn mark(rule: &str, number: u32, out: &mut Vec<u8>) {
    out.extend_from_slice(MARK_START.as_bytes());
    out.extend_from_slice(rule.as_bytes());
    if number > 1 {
        out.extend_from_slice(format!("#{number}").as_bytes());
    }
    out.push(b']');
}

/// Returns the rest of the member name in which a secret ends here, with its quote and colon; `None` outside of names,
/// and if the same name contains another secret.
fn name_rest(text: &[u8], at: usize, until: usize) -> Option<&[u8]> {
    let end = string_end(&text[..until], at)?;
    (text.get(end) == Some(&b':')).then(|| &text[at..=end])
}

/// Keeps only matches within one JSON string, because no rule may change numbers or structure.
pub(crate) fn keep_within_strings(text: &[u8], found: &mut Vec<Secret>) {
    let mut string = 0..0;
    found.retain(|secret| {
        while string.end < secret.at.end {
            let Some(quote) = text.get(string.end..).and_then(|rest| memchr::memchr(b'"', rest)) else { return false };
            let start = string.end + quote + 1;
            let Some(end) = string_end(text, start) else { return false };
            if start > secret.at.start {
                // It begins between two strings; the next match may begin within this one.
                return false;
            }
            string = start..end;
        }
        string.start <= secret.at.start && secret.at.end < string.end
    });
}

/// True if a match consists of marks, or begins or ends within a mark.
pub(crate) fn is_marked(text: &[u8], at: &Range<usize>) -> bool {
    let near = at.start.saturating_sub(80)..text.len().min(at.end + 80);
    let (mut from, mut outside) = (near.start, at.len());
    while let Some(found) = text.get(from..near.end).and_then(|near| memmem::find(near, MARK_START.as_bytes())) {
        let start = from + found;
        let Some(length) = mark_length(&text[start..]) else {
            from = start + 1;
            continue;
        };
        from = start + length;
        if start >= at.end || from <= at.start {
            continue;
        }
        if start < at.start || from > at.end {
            return true;
        }
        outside -= length;
    }
    outside == 0
}
