//! Anchors: three adjacent bytes that a rule requires. One pass over a text finds the places where rules must be
//! evaluated.
//!
//! Each byte is reduced to its low five bits, so that upper and lower case are equal and three bytes form a number
//! below 2^15. The build script makes the tables.

use crate::Secret;
use crate::named::{assignment, call, command, phrase};
use crate::shapes::key::KEYS;
use crate::shapes::{file, header, url};

/// A rule that is evaluated at an anchor: an index of a table.
#[derive(Clone, Copy)]
enum Rule {
    /// A form of a key or token.
    Key(u16),
    /// A call.
    Call(u16),
    /// A word for a password.
    Phrase(u16),
    /// Any other rule.
    Form(u16),
}

/// A rule in Rust; it gets the text and the offset of its match.
type Form = fn(&[u8], usize) -> Option<Secret>;

/// An anchor: its code, its offset in the match, its rule, and the next node of its list.
struct Node {
    code: u16,
    next: u16,
    back: u8,
    rule: Rule,
}

include!(concat!(env!("OUT_DIR"), "/anchors.rs"));

/// A place at which rules must be evaluated.
pub(crate) struct Hit {
    /// The offset of the anchor.
    pub(crate) at: usize,
    code: u16,
}

/// Returns the next anchor at or after `from`.
pub(crate) fn next(text: &[u8], from: usize) -> Option<Hit> {
    let rest = text.get(from..)?;
    let [first, second, ..] = *rest else { return None };
    let mut code = u16::from(first & 31) << 5 | u16::from(second & 31);
    rest[2..].iter().enumerate().find_map(|(at, byte)| {
        code = (code << 5 | u16::from(byte & 31)) & 0x7fff;
        let is_known = KNOWN[usize::from(code >> 3)] >> (code & 7) & 1 == 1;
        is_known.then_some(Hit { at: from + at, code })
    })
}

impl Hit {
    /// Evaluates the rules of this anchor, and returns the secrets that they find.
    pub(crate) fn secrets<'a>(&self, text: &'a [u8]) -> impl Iterator<Item = Secret> + use<'a> {
        let (at, code) = (self.at, self.code);
        let node = |index: u16| (index != 0).then(|| &NODES[usize::from(index)]);
        let nodes = std::iter::successors(node(FIRST[usize::from(code & 0x3ff)]), move |before| node(before.next));
        nodes.filter(move |node| node.code == code).filter_map(move |node| {
            let start = at.checked_sub(usize::from(node.back))?;
            match node.rule {
                Rule::Key(index) => KEYS[usize::from(index)].around(text, start),
                Rule::Call(index) => call::at(text, start, usize::from(index)),
                Rule::Phrase(index) => phrase::at(text, start, usize::from(index)),
                Rule::Form(index) => FORMS[usize::from(index)](text, start),
            }
        })
    }
}
