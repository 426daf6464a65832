//! Secrets that are recognized by their form, from `tables/keys.txt`: keys of providers, tokens, password hashes.

use crate::Secret;
use crate::words::random::is_random;
use crate::words::scan::{is_base64, is_word_start, run};

include!("class.rs");

/// A part of a form.
pub(crate) enum Part {
    /// A literal.
    Text(&'static str),
    /// A run of bytes: their class, and the least and greatest length.
    Run(u8, usize, usize),
}

/// A condition of a form.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Condition {
    None,
    /// At least one digit, for prefixes that also begin words.
    Digit,
    /// Random, for prefixes that also begin names.
    Random,
    /// Random, and not a part of base64.
    Alone,
}

/// A form of secrets.
pub(crate) struct Key {
    pub(crate) rule: &'static str,
    pub(crate) parts: &'static [Part],
    /// The index of the part with which the secret begins.
    pub(crate) secret: usize,
    /// The index of the literal with the anchor.
    anchor: usize,
    pub(crate) condition: Condition,
}

include!(concat!(env!("OUT_DIR"), "/keys.rs"));

impl Key {
    /// Returns the secret of this form whose literal with the anchor begins here.
    pub(crate) fn around(&self, text: &[u8], anchor: usize) -> Option<Secret> {
        let start = self.parts[..self.anchor].iter().rev().try_fold(anchor, |end, part| part.before(text, end))?;
        self.at(text, start)?;
        // If two forms begin alike, the anchor of the shorter one may come first.
        any_at(text, start)
    }

    /// Returns the secret of this form that begins here.
    fn at(&self, text: &[u8], start: usize) -> Option<Secret> {
        if text.get(start).is_none_or(u8::is_ascii_alphanumeric) && !is_word_start(text, start) {
            return None;
        }
        let (mut from, mut end, mut longest) = (start, start, start..start);
        for (index, part) in self.parts.iter().enumerate() {
            from = if index == self.secret { end } else { from };
            let next = part.after(text, end)?;
            longest = if matches!(part, Part::Run(..)) && next - end > longest.len() { end..next } else { longest };
            end = next;
        }
        if matches!(self.parts.last(), Some(Part::Run(..))) {
            // A full stop ends the sentence, not the key.
            end -= usize::from(text[from..end].ends_with(b"."));
            let next = text.get(end);
            if next.is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_') {
                return None;
            }
        }
        // Base64 text contains every such prefix somewhere.
        let joins = |byte: Option<&u8>| matches!(byte, Some(b'+' | b'/'));
        let before = start.checked_sub(1).and_then(|before| text.get(before));
        if joins(before) && text[start..longest.start].iter().all(u8::is_ascii_alphanumeric) {
            return None;
        }
        let value = &text[longest];
        // `ghp_xxxx…` illustrates the form of a key, and `AKIAIOSFODNN7EXAMPLE` is from a manual.
        let illustrates =
            value.iter().all(|byte| *byte == value[0]) || memchr::memmem::find(value, b"EXAMPLE").is_some();
        let fits = match self.condition {
            Condition::None => true,
            Condition::Digit => value.iter().any(u8::is_ascii_digit),
            Condition::Random => is_random(value),
            Condition::Alone => {
                let apart = |byte: Option<&u8>| !byte.is_some_and(|byte| is_base64(*byte) || *byte == b'.');
                is_random(value) && apart(before) && apart(text.get(end))
            }
        };
        (fits && !illustrates).then_some(Secret { at: from..end, rule: self.rule })
    }
}

impl Part {
    /// Returns the offset after this part, which begins here.
    fn after(&self, text: &[u8], start: usize) -> Option<usize> {
        match *self {
            Self::Text(literal) => text.get(start..)?.starts_with(literal.as_bytes()).then_some(start + literal.len()),
            Self::Run(class, least, most) => {
                let length = run(&text[..text.len().min(start + most)], start, |byte| is_in(class, byte));
                (length >= least).then_some(start + length)
            }
        }
    }

    /// Returns the offset of this part, which ends here.
    fn before(&self, text: &[u8], end: usize) -> Option<usize> {
        match *self {
            Self::Text(literal) => text[..end].ends_with(literal.as_bytes()).then(|| end - literal.len()),
            Self::Run(class, least, most) => {
                let length = text[..end].iter().rev().take(most).take_while(|byte| is_in(class, **byte)).count();
                (length >= least).then(|| end - length)
            }
        }
    }
}

/// Returns the secret of any form that begins here.
pub(crate) fn any_at(text: &[u8], start: usize) -> Option<Secret> {
    KEYS.iter().find_map(|key| key.at(text, start))
}
