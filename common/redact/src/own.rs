//! The secrets of this process. They are searched for in each decoded JSON string. Member names, numbers, and members
//! that the ledger itself writes are excluded.

use crate::find::Found;
use cp_json as json;
use memchr::{memchr, memchr2, memmem::Finder};

/// Minimum length of a secret, because shorter values would redact ordinary words.
const SHORTEST: usize = 12;
const MARK: &str = "[REDACTED:own_secret]";
/// Members of a line that the ledger, not its user, writes: names, times and hashes.
const RESERVED: [&[u8]; 9] = [b"event", b"ts", b"agent", b"session", b"run", b"role", b"prev", b"hash", b"seq"];

/// The beginning of every mark.
pub const MARK_START: &str = "[REDACTED:";

#[derive(Debug, Default)]
pub(crate) struct Own {
    needles: Vec<Needle>,
}

/// A secret, or its encoding in JSON that is itself the content of a string.
#[derive(Debug)]
struct Needle {
    plain: String,
    /// Its encoding as a JSON string; text without it does not contain the secret.
    spelt: Finder<'static>,
}

impl Own {
    pub(crate) fn new(secrets: impl IntoIterator<Item = String>) -> Self {
        let mut plain: Vec<String> = Vec::new();
        for secret in secrets.into_iter().filter(|secret| secret.len() >= SHORTEST) {
            let nested = spelt(&secret);
            plain.extend([secret, nested]);
        }
        // The longest first, so that no part of a secret is left if it contains another.
        plain.sort_by(|one, other| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
        plain.dedup();
        let needle = |plain: String| Needle { spelt: Finder::new(&spelt(&plain)).into_owned(), plain };
        Self { needles: plain.into_iter().map(needle).collect() }
    }

    /// Redacts the secrets in the strings of `text[from..]`: JSON in normal form, or members of an object without the
    /// braces.
    pub(crate) fn redact(&self, text: &mut Vec<u8>, from: usize) -> u32 {
        if !self.needles.iter().any(|needle| needle.spelt.find(&text[from..]).is_some()) {
            return 0;
        }
        let old = text.split_off(from);
        let mut count = 0;
        let mut done = 0;
        let mut strings = Strings::of(&old);
        while let Some(string) = strings.next_value() {
            let Some(said) = json::unquote(&old[string.clone()]) else { continue };
            let (clean, found) = self.redact_string(said);
            if found > 0 {
                text.extend_from_slice(&old[done..string.start]);
                json::string(&clean, text);
                done = string.end;
                count += found;
            }
        }
        text.extend_from_slice(&old[done..]);
        count
    }

    /// Returns the ranges of the secrets in a text.
    pub(crate) fn find(&self, text: &str) -> Vec<Found> {
        let mut found: Vec<Found> = Vec::new();
        for needle in &self.needles {
            for (start, _) in text.match_indices(&needle.plain) {
                let at = start..start + needle.plain.len();
                if !found.iter().any(|other| other.at.start < at.end && at.start < other.at.end) {
                    found.push(Found { at, rule: "own_secret", prefix: "" });
                }
            }
        }
        found
    }

    fn redact_string(&self, mut text: String) -> (String, u32) {
        let mut count = 0;
        for needle in &self.needles {
            let mut clean = String::new();
            let mut found = 0;
            for piece in Pieces(&text) {
                match piece {
                    Piece::Mark(mark) => clean.push_str(mark),
                    Piece::Text(piece) => {
                        let mut parts = piece.split(&needle.plain);
                        clean.push_str(parts.next().unwrap_or_default());
                        for part in parts {
                            clean.push_str(MARK);
                            clean.push_str(part);
                            found += 1;
                        }
                    }
                }
            }
            if found > 0 {
                text = clean;
                count += found;
            }
        }
        (text, count)
    }
}

fn spelt(text: &str) -> String {
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json::string(text, &mut quoted);
    String::from_utf8_lossy(&quoted[1..quoted.len() - 1]).into_owned()
}

/// Splits a text into marks and the pieces between them. Secrets are not searched for in a mark or across one, so that
/// redaction is idempotent.
struct Pieces<'a>(&'a str);

enum Piece<'a> {
    Text(&'a str),
    Mark(&'a str),
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let text = self.0;
        let mut from = 0;
        while let Some(found) = text[from..].find(MARK_START) {
            let start = from + found;
            let Some(length) = mark_length(&text.as_bytes()[start..]) else {
                from = start + 1;
                continue;
            };
            if start > 0 {
                self.0 = &text[start..];
                return Some(Piece::Text(&text[..start]));
            }
            self.0 = &text[length..];
            return Some(Piece::Mark(&text[..length]));
        }
        self.0 = "";
        (!text.is_empty()).then_some(Piece::Text(text))
    }
}

/// Returns the length of the mark that begins here.
pub(crate) fn mark_length(text: &[u8]) -> Option<usize> {
    let name = text.strip_prefix(MARK_START.as_bytes())?;
    let name = &name[..name.len().min(64)];
    let length = name.iter().position(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'#'))?;
    (length > 0 && name[length] == b']').then_some(MARK_START.len() + length + 1)
}

/// Iterates over the JSON strings that are values, except those of the ledger's own members.
struct Strings<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The depth of a line's members: 0 if the text is members without braces.
    members: usize,
}

impl<'a> Strings<'a> {
    fn of(text: &'a [u8]) -> Self {
        Self { text, at: 0, depth: 0, members: usize::from(text.first() == Some(&b'{')) }
    }

    fn next_value(&mut self) -> Option<std::ops::Range<usize>> {
        let mut is_reserved = false;
        loop {
            let start = self.at + memchr(b'"', self.text.get(self.at..)?)?;
            for byte in &self.text[self.at..start] {
                match byte {
                    b'{' | b'[' => self.depth += 1,
                    b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                    // The value was not a string.
                    b',' => is_reserved = false,
                    _ => {}
                }
            }
            self.at = string_end(self.text, start + 1)?;
            let string = start..self.at;
            if self.text.get(self.at) == Some(&b':') {
                let name = &self.text[start + 1..self.at - 1];
                is_reserved = self.depth == self.members && RESERVED.contains(&name);
            } else if !(std::mem::take(&mut is_reserved) && self.depth == self.members) {
                return Some(string);
            }
        }
    }
}

/// Returns the offset after the closing quote of the string whose content starts at `from`.
pub(crate) fn string_end(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    loop {
        at += memchr2(b'"', b'\\', text.get(at..)?)?;
        if text[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}
