//! Marks, which replace secrets.

use std::ops::Range;

use memchr::{memchr, memchr2, memmem};

use crate::{REACH, Secret};

/// The rule of the secrets of this process.
pub(crate) const OWN: &str = "own_secret";
/// The beginning of every mark.
pub const MARK_START: &str = "[REDACTED:";
/// The length of most marks at most.
const LONGEST: usize = 32;

/// Returns the whole with a mark for each secret of `whole[from..]`. The marks in member names are numbered, because no
/// two names may become equal. Also returns the ranges of the text in which a mark may expose another secret.
pub(crate) fn replaced(whole: &[u8], from: usize, found: &[Secret]) -> (Vec<u8>, Vec<Range<usize>>) {
    let mut clean = Vec::with_capacity(whole.len() + found.len() * LONGEST);
    clean.extend_from_slice(&whole[..from]);
    // The end of the string that has the secret.
    let (text, mut at, mut end, mut names) = (&whole[from..], 0, 0, 1_u32..);
    let mut near: Vec<Range<usize>> = Vec::new();
    for Secret { at: secret, rule } in found {
        clean.extend_from_slice(&text[at..secret.start]);
        at = secret.end;
        if at >= end {
            end = string_end(text, at).unwrap_or(text.len());
        }
        let is_name = text.get(end) == Some(&b':');
        let numbered = |number| if number == 1 { marked(rule) } else { marked(&format!("{rule}#{number}")) };
        let is_new = |mark: &String| memmem::find(text, mark.as_bytes()).is_none();
        let mark = if is_name { names.by_ref().map(numbered).find(is_new) } else { None };
        clean.extend_from_slice(mark.unwrap_or_else(|| marked(rule)).as_bytes());
        let behind = clean.len() - from;
        match near.last_mut().filter(|last| last.end + REACH >= behind) {
            Some(last) => last.end = behind + REACH,
            None => near.push(behind.saturating_sub(REACH)..behind + REACH),
        }
    }
    clean.extend_from_slice(&text[at..]);
    let length = clean.len() - from;
    if let Some(last) = near.last_mut() {
        last.end = last.end.min(length);
    }
    (clean, near)
}

fn marked(rule: &str) -> String {
    format!("{MARK_START}{rule}]")
}

/// Keeps only matches within one JSON string, because no rule may change numbers or structure. A secret of this process
/// may be the name of a member, or a member that the ledger itself writes may contain it.
pub(crate) fn keep_within_strings(text: &[u8], found: &mut Vec<Secret>) {
    let members = usize::from(text.first() == Some(&b'{'));
    let mut strings = Strings { text, at: 0, depth: 0, members, is_reserved: false };
    let (mut string, mut is_value) = (0..0, false);
    found.retain(|secret| {
        while string.end < secret.at.end {
            let Some(next) = strings.next() else { return false };
            (string, is_value) = next;
        }
        string.start <= secret.at.start && (is_value || secret.rule != OWN)
    });
}

/// Members of a line that the ledger, not its user, writes: names, times and hashes.
const RESERVED: [&[u8]; 9] = [b"event", b"ts", b"agent", b"session", b"run", b"role", b"prev", b"hash", b"seq"];

/// Iterates over the contents of JSON strings, and tells those that are values, except of reserved members.
struct Strings<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The depth of a line's members: 0 if the text is members without braces.
    members: usize,
    /// The last string was the name of a reserved member.
    is_reserved: bool,
}

impl Iterator for Strings<'_> {
    type Item = (Range<usize>, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let start = self.at + memchr(b'"', self.text.get(self.at..)?)?;
        for byte in &self.text[self.at..start] {
            match byte {
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                // The value was not a string.
                b',' => self.is_reserved = false,
                _ => {}
            }
        }
        self.at = string_end(self.text, start + 1)?;
        let string = start + 1..self.at - 1;
        let (is_name, is_member) = (self.text.get(self.at) == Some(&b':'), self.depth == self.members);
        let is_value = !(is_name || self.is_reserved && is_member);
        self.is_reserved = is_name && is_member && RESERVED.contains(&&self.text[string.clone()]);
        Some((string, is_value))
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

/// Returns the length of the mark that begins here.
fn mark_length(text: &[u8]) -> Option<usize> {
    let name = text.strip_prefix(MARK_START.as_bytes())?;
    let name = &name[..name.len().min(64)];
    let length = name.iter().position(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'#'))?;
    (length > 0 && name[length] == b']').then_some(MARK_START.len() + length + 1)
}
