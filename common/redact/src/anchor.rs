//! Anchors: three adjacent bytes that a rule requires. One pass over a text finds the places where rules must be
//! evaluated.
//!
//! Each byte is reduced to its low five bits, so that upper and lower case are equal and three bytes form a number
//! below 2^15. The tables are computed at compile time, so that a process that writes one line has no startup cost.

use crate::named::call::CALLS;
use crate::named::phrase;
use crate::named::tool::TOOLS;
use crate::rule::Rule;
use crate::shapes::key;

/// The possible bytes at three adjacent positions, their offset in the rule's match, and the rule.
struct Anchor([&'static [u8]; 3], usize, Rule);

const DIGITS: &[u8] = b"0123456789abcdef";

/// The anchors of rules without a fixed prefix: the rarest three bytes of each.
const ANCHORS: [Anchor; 72] = [
    Anchor([b"p", b"a", b"s"], 0, Rule::Name),
    Anchor([b"p", b"w", b"d"], 0, Rule::Name),
    Anchor([b"p", b"s", b"w"], 0, Rule::Name),
    Anchor([b"p", b"s", b"k"], 0, Rule::Name),
    Anchor([b"_", b"p", b"w"], 0, Rule::Name),
    Anchor([b"t", b"p", b"w"], 0, Rule::Name),
    Anchor([b"p", b"w", b"="], 0, Rule::Name),
    Anchor([b"p", b"w", b":"], 0, Rule::Name),
    Anchor([b"e", b"c", b"r"], 0, Rule::Name),
    Anchor([b"t", b"o", b"k"], 0, Rule::Name),
    Anchor([b"k", b"e", b"y"], 0, Rule::Name),
    Anchor([b"u", b"t", b"h"], 0, Rule::Name),
    Anchor([b"e", b"d", b"e"], 0, Rule::Name),
    Anchor([b"g", b"j", b"s"], 0, Rule::Name),
    Anchor([b"j", b"w", b"t"], 0, Rule::Name),
    Anchor([b"-", b"-", b"-"], 0, Rule::PrivateKey),
    Anchor([b"-", b"l", b"i"], 7, Rule::Putty),
    Anchor([b"e", b"y", b"j"], 0, Rule::Jwt),
    Anchor([b":", b"/", b"/"], 0, Rule::Url),
    Anchor([b":", b"5", b"4"], 0, Rule::Pgpass),
    Anchor([b"*", b":", b"*"], 0, Rule::Pgpass),
    Anchor([b"r", b"e", b"r"], 3, Rule::Bearer),
    Anchor([b"s", b"i", b"c"], 2, Rule::Basic),
    Anchor([b"r", b"i", b"z"], 5, Rule::Authorization),
    Anchor([b"k", b"i", b"e"], 0, Rule::Cookie),
    Anchor([b":", b"a", b"a"], 0, Rule::Telegram),
    Anchor([b"m", b"dtjz", b"aeimquycgk"], 0, Rule::Discord),
    Anchor([b"n", b"dtjz", b"aeimquycgk"], 0, Rule::Discord),
    Anchor([b"o", b"dt", b"aeimquycgk"], 0, Rule::Discord),
    Anchor([b"p", b"a", b"9"], 2, Rule::Firebase),
    Anchor([b"s", b"k", DIGITS], 0, Rule::Twilio),
    Anchor([b"0123456789", b"q", b"~"], 0, Rule::Azure),
    Anchor([b"-", b"u", b"s"], 0, Rule::Mailchimp),
    Anchor([b".", b"a", b"t"], 0, Rule::Terraform),
    Anchor([b"i", b"g", b"="], 0, Rule::Signature),
    Anchor([b"r", b"e", b"="], 0, Rule::Signature),
    Anchor([b" ", b"-", b"u"], 0, Rule::User),
    Anchor([b"-", b"u", b"s"], 0, Rule::User),
    Anchor([b" ", b"-", b"p"], 0, Rule::Letter),
    Anchor([b" ", b"-", b"awkx"], 0, Rule::Letter),
    Anchor([b" ", b"b", b"y"], 0, Rule::Identified),
    Anchor([b"d", b"o", b" "], 2, Rule::Stdin),
    Anchor([b"y", b"p", b"t"], 2, Rule::Stdin),
    Anchor([b"g", b"p", b"g"], 0, Rule::Stdin),
    Anchor([b"m", b"b", b"p"], 1, Rule::Stdin),
    Anchor([b"$", b"1567y", b"$"], 0, Rule::Crypt),
    Anchor([b"$", b"2", b"abxy"], 0, Rule::Crypt),
    Anchor([b"$", b"a", b"pr"], 0, Rule::Crypt),
    Anchor([b"$", b"g", b"y"], 0, Rule::Crypt),
    Anchor([b"$", b"s", b"ch"], 0, Rule::Crypt),
    Anchor([b"$", b"p", b"b"], 0, Rule::Crypt),
    Anchor([b"$", b"b", b"c"], 0, Rule::Crypt),
    Anchor([b"p", b"b", b"k"], 0, Rule::FrameworkHash),
    Anchor([b"y", b"p", b"t"], 3, Rule::FrameworkHash),
    Anchor([b"{", b"s", b"shm"], 0, Rule::DirectoryHash),
    Anchor([b"{", b"m", b"d"], 0, Rule::DirectoryHash),
    Anchor([b":", b":", b":"], 0, Rule::WindowsHash),
    Anchor([b"\"", b"dpqk", b"\"\\"], 0, Rule::WebKey),
    Anchor([b"\"", b"d", b"pq"], 0, Rule::WebKey),
    Anchor([b"\"", b"q", b"i"], 0, Rule::WebKey),
    Anchor([b"y", b"]", b",;:|/ \"\\"], 0, Rule::AwsTable),
    Anchor([b"l", b"s", b"0"], 0, Rule::EncodedBlock),
    Anchor([b"5", b"HJK", ANY], 0, Rule::Wallet),
    Anchor([b"K", b"wxyz", ANY], 0, Rule::Wallet),
    Anchor([b"L", b"12345", ANY], 0, Rule::Wallet),
    Anchor([b"c", b"l", b"e"], 3, Rule::Oracle),
    Anchor([b"/", b"1", b"0123456789"], 0, Rule::Asana),
    Anchor([b"n", b"e", b"m"], 1, Rule::Mnemonic),
    Anchor([b"s", b"e", b"e"], 0, Rule::Mnemonic),
    Anchor([b"w", b"a", b"l"], 0, Rule::Mnemonic),
    Anchor([b"o", b"v", b"e"], 3, Rule::Mnemonic),
    Anchor([b" ", b"-", b"c"], 2, Rule::Stdin),
];

/// All five-bit codes.
const ANY: &[u8] = b"@abcdefghijklmnopqrstuvwxyz[\\]^_";

/// The three-byte code of an anchor, its offset in the match, and its rule.
#[derive(Clone, Copy)]
struct Node {
    code: u16,
    back: u8,
    rule: Rule,
}

const fn code(first: u8, second: u8, third: u8) -> u16 {
    ((first & 31) as u16) << 10 | ((second & 31) as u16) << 5 | (third & 31) as u16
}

/// Number of rules with a fixed prefix.
const WORDS: usize = key::KEYS.len() + TOOLS.len() + CALLS.len() + phrase::WORDS.len();

/// Returns the fixed prefix of a rule.
#[expect(clippy::cast_possible_truncation, reason = "no table has 256 rows")]
const fn word(at: usize) -> (&'static [u8], Rule) {
    if at < key::KEYS.len() {
        return (key::KEYS[at].1.as_bytes(), Rule::Key(at as u8));
    }
    let at = at - key::KEYS.len();
    if at < TOOLS.len() {
        return (TOOLS[at].name().as_bytes(), Rule::Tool(at as u8));
    }
    let at = at - TOOLS.len();
    if at < CALLS.len() {
        return (CALLS[at].0.as_bytes(), Rule::Call(at as u8));
    }
    let at = at - CALLS.len();
    (phrase::WORDS[at].as_bytes(), Rule::Phrase(at as u8))
}

const COUNT: usize = count();

const fn count() -> usize {
    let (mut count, mut at) = (WORDS, 0);
    while at < ANCHORS.len() {
        let Anchor([first, second, third], _, _) = ANCHORS[at];
        count += first.len() * second.len() * third.len();
        at += 1;
    }
    count
}

/// The nodes, sorted by code; nodes with the same code are in the order of evaluation.
static NODES: [Node; COUNT] = nodes();

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 keys, and prefixes are shorter")]
const fn nodes() -> [Node; COUNT] {
    let mut nodes = [Node { code: 0, back: 0, rule: Rule::Name }; COUNT];
    let mut length = 0;
    let mut at = 0;
    while at < WORDS {
        let (word, rule) = word(at);
        let rarest = key::rarest_of(word);
        let code = code(word[rarest], word[rarest + 1], word[rarest + 2]);
        insert(&mut nodes, length, Node { code, back: rarest as u8, rule });
        (length, at) = (length + 1, at + 1);
    }
    at = 0;
    while at < ANCHORS.len() {
        let Anchor([first, second, third], back, rule) = ANCHORS[at];
        let mut place = 0;
        while place < first.len() * second.len() * third.len() {
            let code = code(
                first[place / (second.len() * third.len())],
                second[place / third.len() % second.len()],
                third[place % third.len()],
            );
            insert(&mut nodes, length, Node { code, back: back as u8, rule });
            (length, place) = (length + 1, place + 1);
        }
        at += 1;
    }
    nodes
}

/// Inserts a node after those with the same or a smaller code.
const fn insert(nodes: &mut [Node; COUNT], length: usize, node: Node) {
    let mut at = length;
    while at > 0 && nodes[at - 1].code > node.code {
        nodes[at] = nodes[at - 1];
        at -= 1;
    }
    nodes[at] = node;
}

/// A bitmap of the codes that have a node, and the number of such codes in all preceding words.
static KNOWN: [(u64, u16); 1 << 9] = known();

const fn known() -> [(u64, u16); 1 << 9] {
    let mut known = [(0_u64, 0_u16); 1 << 9];
    let mut at = 0;
    while at < COUNT {
        let code = NODES_FOR_TABLES[at].code;
        known[(code >> 6) as usize].0 |= 1 << (code & 63);
        at += 1;
    }
    at = 1;
    while at < known.len() {
        #[expect(clippy::cast_possible_truncation, reason = "a word has 64 bits")]
        let ones = known[at - 1].0.count_ones() as u16;
        known[at].1 = known[at - 1].1 + ones;
        at += 1;
    }
    known
}

/// The index of the first node of each code, in the order of the codes, then the number of nodes.
static FIRST: [u16; COUNT + 1] = first();

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 65536 nodes")]
const fn first() -> [u16; COUNT + 1] {
    let mut first = [COUNT as u16; COUNT + 1];
    let (mut codes, mut at) = (0, 0);
    while at < COUNT {
        if at == 0 || NODES_FOR_TABLES[at].code != NODES_FOR_TABLES[at - 1].code {
            first[codes] = at as u16;
            codes += 1;
        }
        at += 1;
    }
    first
}

const NODES_FOR_TABLES: [Node; COUNT] = nodes();

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
    let mut window = code(0, first, second);
    rest[2..].iter().enumerate().find_map(|(at, byte)| {
        window = (window << 5 | u16::from(byte & 31)) & 0x7fff;
        let known = KNOWN[usize::from(window >> 6)].0 >> (window & 63) & 1 == 1;
        known.then_some(Hit { at: from + at, code: window })
    })
}

impl Hit {
    /// Returns the rules to evaluate, each with the offset of its match.
    pub(crate) fn rules(&self) -> impl Iterator<Item = (Rule, usize)> + use<> {
        let (at, code) = (self.at, self.code);
        let (bits, below) = KNOWN[usize::from(code >> 6)];
        let rank = usize::from(below) + (bits & ((1 << (code & 63)) - 1)).count_ones() as usize;
        let nodes = &NODES[usize::from(FIRST[rank])..usize::from(FIRST[rank + 1])];
        nodes.iter().filter_map(move |node| Some((node.rule, at.checked_sub(usize::from(node.back))?)))
    }
}
