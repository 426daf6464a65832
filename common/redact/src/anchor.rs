//! Anchors: three adjacent bytes that a rule requires. One pass over a text finds the places where rules must be
//! evaluated.
//!
//! Each byte is reduced to its low five bits, so that upper and lower case are equal and three bytes form a number
//! below 2^15.

use std::sync::LazyLock;

use crate::Secret;
use crate::named::call::{self, CALLS, Call};
use crate::named::tool::{self, TOOLS, Tool};
use crate::named::{assignment, command, phrase};
use crate::shapes::key::{self, KEYS, Key};
use crate::shapes::{file, hash, header, token, url};
use crate::words::tables;

/// A rule that is evaluated at an anchor.
#[derive(Clone, Copy)]
pub(crate) enum Rule {
    /// A key of a provider.
    Key(&'static Key),
    /// A program that takes a secret.
    Tool(&'static Tool),
    /// A call.
    Call(&'static Call),
    /// A word for a password.
    Phrase(&'static str),
    /// Any other rule; it gets the text and the offset of its match.
    Form(fn(&[u8], usize) -> Option<Secret>),
}

impl Rule {
    pub(crate) fn secret(self, text: &[u8], start: usize) -> Option<Secret> {
        match self {
            // If two prefixes begin alike, the anchor of the shorter one may come first.
            Self::Key(key) => key::at(text, start, key).and_then(|_| key::any_at(text, start)),
            Self::Tool(tool) => tool::at(text, start, tool),
            Self::Call(call) => call::at(text, start, *call),
            Self::Phrase(word) => phrase::at(text, start, word),
            Self::Form(form) => form(text, start),
        }
    }
}

/// Patterns of three bytes, their offset in the rule's match, and the rule.
type Form = (&'static [&'static str], usize, fn(&[u8], usize) -> Option<Secret>);

/// The anchors of rules without a fixed prefix: the rarest three bytes of each. `[…]` is one of several bytes, and `?`
/// any byte.
const FORMS: [Form; 39] = [
    (
        &["pas", "pwd", "psw", "psk", "_pw", "tpw", "pw=", "pw:", "ecr", "tok", "key", "uth", "ede", "gjs", "jwt"],
        0,
        assignment::at,
    ),
    (&["---"], 0, file::block),
    (&["-li"], 7, file::putty),
    (&["eyj"], 0, token::jwt),
    (&["://"], 0, url::password),
    (&[":54", "*:*"], 0, url::pgpass),
    (&["rer"], 3, header::bearer),
    (&["sic"], 2, header::basic),
    (&["riz"], 5, header::authorization),
    (&["kie"], 0, header::cookie),
    (&[":aa"], 0, token::telegram),
    (&["m[dtjz][aeimquycgk]", "n[dtjz][aeimquycgk]", "o[dt][aeimquycgk]"], 0, token::discord),
    (&["pa9"], 2, token::firebase),
    (&["sk[0123456789abcdef]"], 0, token::twilio),
    (&["[0123456789]q~"], 0, |text, digit| token::azure(text, digit + 1)),
    (&["-us"], 0, token::mailchimp),
    (&[".at"], 0, token::terraform),
    (&["ig=", "re="], 0, token::signature),
    (&[" -u", "-us"], 0, command::user),
    (&[" -p", " -[awkx]"], 0, command::letter),
    (&[" by"], 0, command::identified),
    (&["do ", "ypt"], 2, tool::piped_secret),
    (&["gpg"], 0, tool::piped_secret),
    (&["mbp"], 1, tool::piped_secret),
    (&["$[1567y]$", "$2[abxy]", "$a[pr]", "$gy", "$s[ch]", "$pb", "$bc"], 0, hash::crypt),
    (&["pbk"], 0, hash::framework),
    (&["ypt"], 3, hash::framework),
    (&["{s[shm]", "{md"], 0, hash::directory),
    (&[":::"], 0, hash::windows),
    (&["\"[dpqk][\"\\]", "\"d[pq]", "\"qi"], 0, file::web_key),
    (&["y][,;:|/ \"\\]"], 0, file::aws_table),
    (&["ls0"], 0, file::encoded_block),
    (&["5[HJK]?", "K[wxyz]?", "L[12345]?"], 0, file::wallet),
    (&["cle"], 3, url::oracle),
    (&["/1[0123456789]"], 0, token::asana),
    (&["nem"], 1, file::mnemonic),
    (&["see", "wal"], 0, file::mnemonic),
    (&["ove"], 3, file::mnemonic),
    (&[" -c"], 2, tool::piped_secret),
];

/// A byte for each five-bit code.
const ANY: &[u8] = b"@abcdefghijklmnopqrstuvwxyz[\\]^_";

/// Returns the possible bytes at each position of a pattern.
fn classes(pattern: &str) -> [&[u8]; 3] {
    let mut rest = pattern.as_bytes();
    [(); 3].map(|()| {
        let (class, length) = match rest {
            [b'[', after @ ..] => {
                let class = after.split(|byte| *byte == b']').next().unwrap_or_default();
                (class, class.len() + 2)
            }
            [b'?', ..] => (ANY, 1),
            _ => (&rest[..1], 1),
        };
        rest = &rest[length..];
        class
    })
}

/// Appends a byte to a code, which keeps the last three bytes.
fn with_byte(code: u16, byte: u8) -> u16 {
    (code << 5 | u16::from(byte & 31)) & 0x7fff
}

fn code_of(bytes: [u8; 3]) -> u16 {
    bytes.into_iter().fold(0, with_byte)
}

/// An anchor: its code, its offset in the match, its rule, and the next node of its list.
struct Node {
    code: u16,
    back: u8,
    rule: Rule,
    next: u16,
}

/// Lists of nodes with the same lowest ten bits of their codes, each in the order of evaluation. The tables are small,
/// because a process that writes one line touches all of them.
struct Anchors {
    nodes: Vec<Node>,
    /// The first node of each list; 0 is none.
    first: [u16; 1 << 10],
    /// A bitmap of the codes that have a node.
    known: [u64; 1 << 9],
}

impl Anchors {
    /// Inserts a node at the beginning of its list.
    fn insert(&mut self, code: u16, back: usize, rule: Rule) {
        let (index, back) = (u16::try_from(self.nodes.len()), u8::try_from(back));
        let next = std::mem::replace(&mut self.first[usize::from(code & 0x3ff)], index.unwrap_or_default());
        self.nodes.push(Node { code, back: back.unwrap_or_default(), rule, next });
        self.known[usize::from(code >> 6)] |= 1 << (code & 63);
    }
}

static ANCHORS: LazyLock<Anchors> = LazyLock::new(|| {
    // No list contains the first node.
    let none = Node { code: 0, back: 0, rule: Rule::Phrase(""), next: 0 };
    let mut nodes = Vec::with_capacity(1024);
    nodes.push(none);
    let mut anchors = Anchors { nodes, first: [0; 1 << 10], known: [0; 1 << 9] };
    // The last rule first, because each node is inserted before the others.
    for (patterns, back, form) in FORMS.iter().rev() {
        for [first, second, third] in patterns.iter().rev().map(|pattern| classes(pattern)) {
            for (one, two) in first.iter().flat_map(|one| second.iter().map(move |two| (one, two))) {
                for three in third {
                    anchors.insert(code_of([*one, *two, *three]), *back, Rule::Form(*form));
                }
            }
        }
    }
    let keys = KEYS.iter().map(|key| (key.prefix, Rule::Key(key)));
    let tools = TOOLS.iter().map(|tool| (tool.name(), Rule::Tool(tool)));
    let calls = CALLS.iter().map(|call| (call.0, Rule::Call(call)));
    let phrases = tables::PASSWORD_WORDS.iter().map(|word| (*word, Rule::Phrase(word)));
    for (prefix, rule) in keys.chain(tools).chain(calls).chain(phrases).rev() {
        let back = key::rarest_of(prefix.as_bytes());
        let rarest = &prefix.as_bytes()[back..];
        anchors.insert(code_of([rarest[0], rarest[1], rarest[2]]), back, rule);
    }
    anchors
});

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
    let known = &ANCHORS.known;
    let mut code = code_of([0, first, second]);
    rest[2..].iter().enumerate().find_map(|(at, byte)| {
        code = with_byte(code, *byte);
        let is_known = known[usize::from(code >> 6)] >> (code & 63) & 1 == 1;
        is_known.then_some(Hit { at: from + at, code })
    })
}

impl Hit {
    /// Returns the rules to evaluate, each with the offset of its match.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (Rule, usize)> + use<> {
        let (at, code, anchors) = (self.at, self.code, &*ANCHORS);
        let node = |index: u16| (index != 0).then(|| &anchors.nodes[usize::from(index)]);
        let first = node(anchors.first[usize::from(code & 0x3ff)]);
        let nodes = std::iter::successors(first, move |before| node(before.next)).filter(move |node| node.code == code);
        nodes.filter_map(move |node| Some((node.rule, at.checked_sub(usize::from(node.back))?)))
    }
}
