//! Turns the tables in `tables/` into static arrays, so that a process that writes one line has no startup cost.

use std::error::Error;
use std::fmt::Write as _;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    println!("cargo::rerun-if-changed=tables");
    let mut anchors = Anchors::default();
    let (words, lists) = words(&table("words")?)?;
    let forms = anchors.forms(&table("anchors")?)?;
    let keys = anchors.keys(&table("keys")?)?;
    let calls = anchors.calls(&table("calls")?)?;
    let password_words = lists.iter().find(|(name, _)| name == "PASSWORD_WORDS").ok_or("no words for a password")?;
    for (index, word) in password_words.1.iter().enumerate() {
        anchors.insert_rarest(word.as_bytes(), "Phrase", index);
    }
    for (file, source) in [("words", words), ("keys", keys), ("calls", calls), ("anchors", forms + &anchors.source()?)]
    {
        std::fs::write(Path::new(&std::env::var("OUT_DIR")?).join(file).with_extension("rs"), source)?;
    }
    Ok(())
}

fn table(name: &str) -> Result<String> {
    Ok(std::fs::read_to_string(Path::new("tables").join(name).with_extension("txt"))?)
}

/// Returns the rows of a table, with their fields.
fn rows(table: &str) -> impl Iterator<Item = Vec<String>> {
    let rows = table.lines().filter(|row| !row.starts_with('#'));
    rows.map(|row| row.split(' ').map(|field| field.replace('␣', " ")).collect())
}

/// Three bytes that a rule requires: their code, their offset in the match, and the rule.
struct Node {
    code: u16,
    back: usize,
    rule: String,
}

#[derive(Default)]
struct Anchors(Vec<Node>);

/// Returns the code of three bytes: the low five bits of each, so that upper and lower case are equal.
fn code_of(bytes: [u8; 3]) -> u16 {
    bytes.into_iter().fold(0, |code, byte| (code << 5 | u16::from(byte & 31)) & 0x7fff)
}

impl Anchors {
    fn insert(&mut self, code: u16, back: usize, rule: &str, index: usize) {
        self.0.push(Node { code, back, rule: format!("Rule::{rule}({index})") });
    }

    fn insert_rarest(&mut self, text: &[u8], rule: &str, index: usize) {
        assert!(text.len() > 2, "a name of less than three bytes: {}", text.escape_ascii());
        let back = rarest_of(text);
        self.insert(code_of([text[back], text[back + 1], text[back + 2]]), back, rule, index);
    }

    fn forms(&mut self, table: &str) -> Result<String> {
        let mut source = String::from("static FORMS: &[Form] = &[");
        for (index, row) in rows(table).enumerate() {
            let [function, back, patterns @ ..] = &row[..] else { return Err("not a row of anchors".into()) };
            write!(source, "{function},")?;
            for pattern in patterns {
                for code in codes(pattern.as_bytes()) {
                    self.insert(code, back.parse()?, "Form", index);
                }
            }
        }
        Ok(source + "];\n")
    }

    fn keys(&mut self, table: &str) -> Result<String> {
        let mut source = String::from("/// The forms.\npub(crate) static KEYS: &[Key] = &[\n");
        for (index, row) in rows(table).enumerate() {
            let [rule, form, condition @ ..] = &row[..] else { return Err("not a row of keys".into()) };
            let condition = match condition {
                [] => "None",
                [one] if one == "digit" => "Digit",
                [one] if one == "random" => "Random",
                [one] if one == "alone" => "Alone",
                _ => return Err(format!("unknown condition: {row:?}").into()),
            };
            let (before, secret) = form.split_once('|').unwrap_or(("", form));
            let mut parts = parts(before)?;
            let from = parts.len();
            parts.extend(self::parts(secret)?);
            // The anchor is in the literal with the rarest bytes.
            let anchor = (0..parts.len()).max_by_key(|at| parts[*at].rarity()).ok_or("a form without parts")?;
            let Part::Text(text) = &parts[anchor] else { return Err(format!("no literal: {form}").into()) };
            match (text.len(), parts.get(anchor + 1)) {
                (3.., _) => self.insert_rarest(text.as_bytes(), "Key", index),
                (2, Some(Part::Run(class, ..))) => {
                    let bytes = (b'!'..=b'~').filter(|byte| is_in(*class, *byte));
                    let mut codes: Vec<u16> =
                        bytes.map(|byte| code_of([text.as_bytes()[0], text.as_bytes()[1], byte])).collect();
                    codes.sort_unstable();
                    codes.dedup();
                    for code in codes {
                        self.insert(code, 0, "Key", index);
                    }
                }
                _ => return Err(format!("the longest literal is too short: {form}").into()),
            }
            let parts: Vec<String> = parts.iter().map(Part::source).collect();
            writeln!(
                source,
                "Key {{ rule: {rule:?}, parts: &[{}], secret: {from}, anchor: {anchor}, condition: Condition::{condition} }},",
                parts.join(", ")
            )?;
        }
        Ok(source + "];\n")
    }

    fn calls(&mut self, table: &str) -> Result<String> {
        let mut source = String::from("static CALLS: &[(&str, usize)] = &[\n");
        for (index, row) in rows(table).enumerate() {
            let [call, number] = &row[..] else { return Err("not a row of calls".into()) };
            self.insert_rarest(call.as_bytes(), "Call", index);
            writeln!(source, "({call:?}, {number}),")?;
        }
        Ok(source + "];\n")
    }

    /// Returns lists of the nodes with the same lowest ten bits of their codes, each in the order of evaluation.
    fn source(&self) -> Result<String> {
        // No list contains the first node.
        let mut source =
            String::from("static NODES: &[Node] = &[Node { code: 0, back: 0, next: 0, rule: Rule::Form(0) },\n");
        let (mut first, mut known) = ([0; 1 << 10], [0_u8; 1 << 12]);
        for (index, Node { code, back, rule }) in self.0.iter().rev().enumerate() {
            let next = std::mem::replace(&mut first[usize::from(code & 0x3ff)], index + 1);
            known[usize::from(code >> 3)] |= 1 << (code & 7);
            writeln!(source, "Node {{ code: {code}, back: {back}, next: {next}, rule: {rule} }},")?;
        }
        write!(source, "];\nstatic FIRST: [u16; 1 << 10] = {first:?};\nstatic KNOWN: [u8; 1 << 12] = {known:?};\n")?;
        Ok(source)
    }
}

/// Returns the codes of a pattern of three bytes.
fn codes(pattern: &[u8]) -> Vec<u16> {
    /// A byte for each five-bit code.
    const ANY: &[u8] = b"@abcdefghijklmnopqrstuvwxyz[\\]^_";
    let mut rest = pattern;
    let [first, second, third] = [(); 3].map(|()| {
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
    });
    let pairs = first.iter().flat_map(|one| second.iter().map(move |two| (*one, *two)));
    pairs.flat_map(|(one, two)| third.iter().map(move |three| code_of([one, two, *three]))).collect()
}

/// Returns the offset of the rarest three bytes of a text: signs and digits are rarer than letters, and some letters
/// than others.
fn rarest_of(text: &[u8]) -> usize {
    // The first of several that are equally rare.
    (0..text.len() - 2).rev().max_by_key(|at| rarity(&text[*at..at + 3])).unwrap_or(0)
}

fn rarity(text: &[u8]) -> u32 {
    let weight = |byte: &u8| match byte.to_ascii_lowercase() {
        b'e' | b't' | b'a' | b'o' | b'i' | b'n' | b's' | b'r' => 1,
        b'j' | b'q' | b'x' | b'z' | b'k' | b'v' | b'w' | b'g' | b'b' | b'-' | b'.' | b'/' | b'~' => 3,
        b'0'..=b'9' | b'_' => 4,
        _ => 2,
    };
    text.iter().map(weight).sum()
}

/// A literal, or a run of bytes of a class.
enum Part {
    Text(String),
    Run(u8, usize, usize),
}

impl Part {
    fn rarity(&self) -> u32 {
        match self {
            Self::Text(text) if text.len() > 2 => rarity(&text.as_bytes()[rarest_of(text.as_bytes())..][..3]),
            Self::Text(text) => u32::try_from(text.len()).unwrap_or(0),
            Self::Run(..) => 0,
        }
    }

    fn source(&self) -> String {
        match self {
            Self::Text(text) => format!("Part::Text({text:?})"),
            Self::Run(class, least, most) => format!("Part::Run({class}, {least}, {most})"),
        }
    }
}

/// Splits `ghp_«A30+»` into its parts.
fn parts(form: &str) -> Result<Vec<Part>> {
    let mut parts = Vec::new();
    for piece in form.split('«') {
        let text = match piece.split_once('»') {
            None => piece,
            Some((run, text)) => {
                let (class, count) = run.split_at(1);
                if !(b'!'..=b'~').any(|byte| is_in(class.as_bytes()[0], byte)) {
                    return Err(format!("unknown class: {form}").into());
                }
                let (least, most) = match count.split_once('-') {
                    Some((least, most)) => (least.parse()?, most.parse()?),
                    None if count.ends_with('+') => (count.trim_end_matches('+').parse()?, 2048),
                    None => (count.parse()?, count.parse()?),
                };
                parts.push(Part::Run(class.as_bytes()[0], least, most));
                text
            }
        };
        if !text.is_empty() {
            // The bar stands for the beginning of the secret.
            parts.push(Part::Text(text.replace('¦', "|")));
        }
    }
    Ok(parts)
}

type Lists = Vec<(String, Vec<String>)>;

/// Returns the source of the lists of words, and the lists.
fn words(table: &str) -> Result<(String, Lists)> {
    let (mut source, mut lists) = (String::new(), Lists::new());
    for list in table.split("\n[").skip(1) {
        let (name, words) = list.split_once("]\n").ok_or("a list has no name")?;
        let words: Vec<String> =
            words.lines().filter(|word| !word.is_empty()).map(|word| word.replace('␣', " ")).collect();
        writeln!(source, "pub(crate) static {name}: &[&str] = &{words:?};")?;
        lists.push((name.to_owned(), words));
    }
    Ok((source, lists))
}

include!("src/shapes/class.rs");
