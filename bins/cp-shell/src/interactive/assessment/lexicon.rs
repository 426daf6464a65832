//! The words of a text, and the table `risk.toml`: the classes of risk, the command lines with a class, and the words of each language with
//! their senses.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// The boundary after a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Word,
    Clause,
    Sentence,
    Question,
}

#[derive(Debug)]
pub(crate) struct Token<'a> {
    /// The text without accents, in lower case.
    pub(crate) text: String,
    /// As it was written.
    pub(crate) written: &'a str,
    /// The offset in the text.
    pub(crate) at: usize,
    /// True if the word is in quotes or backticks.
    pub(crate) quoted: bool,
    pub(crate) end: End,
}

/// Composes voiced kana into one letter.
pub(crate) fn composed(text: &str) -> String {
    let mut composed = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '\u{3099}' | '\u{309a}' => {
                let voiced =
                    composed.pop().and_then(|kana| char::from_u32(u32::from(kana) + u32::from(letter) - 0x3098));
                composed.extend(voiced);
            }
            _ => composed.push(letter),
        }
    }
    composed
}

/// Folds case, accents, umlauts and full-width letters.
pub(crate) fn folded(text: &str) -> String {
    let mut folded = String::with_capacity(text.len());
    for letter in text.chars().flat_map(char::to_lowercase) {
        match letter {
            'à'..='å' => folded.push('a'),
            'ç' => folded.push('c'),
            'è'..='ë' => folded.push('e'),
            'ì'..='ï' => folded.push('i'),
            'ñ' => folded.push('n'),
            'ò'..='ö' => folded.push('o'),
            'ù'..='ü' => folded.push('u'),
            'ß' => folded.push_str("ss"),
            'œ' => folded.push_str("oe"),
            'æ' => folded.push_str("ae"),
            '’' => folded.push('\''),
            '\u{300}'..='\u{36f}' => {}
            '\u{ff01}'..='\u{ff5e}' => {
                folded.extend(char::from_u32(u32::from(letter) - 0xfee0).map(|it| it.to_ascii_lowercase()));
            }
            _ => folded.push(letter),
        }
    }
    folded
}

/// True for letters of scripts without blanks: kana and kanji.
pub(crate) const fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// Splits a text into words.
pub(crate) fn tokens<'a>(text: &'a str, table: &Table) -> Vec<Token<'a>> {
    let mut tokens: Vec<Token<'a>> = Vec::new();
    let (mut start, mut at, mut closing) = (0, 0, None);
    while let Some(letter) = text[at..].chars().next() {
        let (rest, next) = (&text[at..], at + letter.len_utf8());
        let (taken, closes) = quotation(rest, letter, closing);
        let end = if taken > 0 { Some(End::Word) } else { end(letter, &text[next..]) };
        let script = text[start..at].chars().next().map(is_unspaced);
        if end.is_some() || script.is_some_and(|script| script != is_unspaced(letter)) {
            word(start, &text[start..at], closing.is_some(), table, &mut tokens);
            start = at;
        }
        if let Some(end) = end {
            start = next.max(at + taken);
            // Boundaries inside quotes do not count.
            if let (None, None, Some(last)) = (closing, closes, tokens.last_mut()) {
                last.end = last.end.max(end);
            }
        }
        (at, closing) = (start.max(next), closes);
    }
    word(start, &text[start..], false, table, &mut tokens);
    tokens
}

/// The boundary that a letter causes, if it is not part of a word.
fn end(letter: char, after: &str) -> Option<End> {
    let is_last = after.chars().next().is_none_or(|next| next.is_whitespace() || is_unspaced(next));
    match letter {
        '.' | '!' if is_last => Some(End::Sentence),
        '?' if is_last => Some(End::Question),
        ':' if is_last => Some(End::Clause),
        '？' => Some(End::Question),
        '。' | '！' | '\n' => Some(End::Sentence),
        ',' | ';' | '、' | '，' | '；' | '：' | '…' | '(' | ')' | '|' | '&' => Some(End::Clause),
        '[' | ']' | '{' | '}' | '¿' | '¡' => Some(End::Word),
        _ => letter.is_whitespace().then_some(End::Word),
    }
}

/// The length of a quotation mark here, and the mark that closes the open quotation. An unclosed mark is ignored.
fn quotation<'a>(rest: &'a str, letter: char, closing: Option<&'a str>) -> (usize, Option<&'a str>) {
    if let Some(closing) = closing {
        return if rest.starts_with(closing) { (closing.len(), None) } else { (0, Some(closing)) };
    }
    let (opening, closing) = match letter {
        '`' => rest.split_at(rest.len() - rest.trim_start_matches('`').len()),
        '"' => ("\"", "\""),
        '“' => ("“", "”"),
        '„' => ("„", "“"),
        '«' => ("«", "»"),
        '「' => ("「", "」"),
        _ => return (0, None),
    };
    let closing = if letter == '`' { opening } else { closing };
    if rest[opening.len()..].contains(closing) { (opening.len(), Some(closing)) } else { (0, None) }
}

/// Adds a word, after splitting forms such as "l'envoi", "peux-tu", and text without blanks.
fn word<'a>(start: usize, word: &'a str, quoted: bool, table: &Table, tokens: &mut Vec<Token<'a>>) {
    let mut push = |at: usize, written: &'a str| {
        if !written.is_empty() {
            tokens.push(Token { text: folded(written), written, at: start + at, quoted, end: End::Word });
        }
    };
    let (mut known, mut at) = (0, 0);
    if word.starts_with(is_unspaced) {
        while let Some(letter) = word[at..].chars().next() {
            let Some(length) = table.cut(&word[at..]) else {
                at += letter.len_utf8();
                continue;
            };
            push(known, &word[known..at]);
            push(at, &word[at..at + length]);
            at += length;
            known = at;
        }
        return push(known, &word[known..]);
    }
    let is_plain = |letter: char| letter.is_alphabetic() || matches!(letter, '-' | '\'' | '’');
    if word.starts_with('-') || !word.chars().all(is_plain) {
        return push(0, word.trim_matches('\''));
    }
    for part in word.split('-') {
        let elided = part
            .find(['\'', '’'])
            .map(|index| part.split_at(index + part[index..].chars().next().map_or(0, char::len_utf8)));
        let is_elided =
            |word: &str| matches!(folded(word).as_str(), "l'" | "d'" | "n'" | "m'" | "s'" | "j'" | "t'" | "c'" | "qu'");
        let (before, rest) = elided.filter(|(before, _)| is_elided(before)).unwrap_or(("", part));
        push(at, before);
        push(at + before.len(), rest.trim_matches('\''));
        at += part.len() + 1;
    }
}

/// The built-in table.
pub(crate) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("risk.toml")).unwrap_or_default());

named_enum! {
    /// The level of risk.
    #[derive(PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    Level:
    Safe "safe" "No risk was found.",
    Caution "caution" "A change that can be reverted.",
    Destructive "destructive" "Data is lost or leaves, access is opened, or a service stops.",
    Critical "critical" "A machine, a disk or a service is lost.",
}

/// A class of risk, by verb and object. Senses are separated by blanks.
#[derive(Debug, Deserialize)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) verb: String,
    /// `*` matches any object except code, the empty string an unknown object, and `!` means that the verb has its object in itself.
    pub(crate) thing: String,
    /// A sense that the clause must also contain.
    #[serde(default)]
    pub(crate) with: String,
    pub(crate) why: String,
}

/// The object of a class whose verbs are idioms that name their object.
pub(crate) const IDIOM: &str = "!";

/// Command lines with a class.
#[derive(Debug, Deserialize)]
pub(crate) struct Command {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) why: String,
    #[serde(default)]
    pub(crate) is_mass_edit: bool,
    lines: String,
    #[serde(skip)]
    pub(crate) patterns: Vec<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Table {
    /// Programs that begin a command line without a class.
    programs: String,
    pub(crate) class: Vec<Class>,
    pub(crate) command: Vec<Command>,
    /// Language, sense, words.
    words: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(skip)]
    pub(crate) languages: Vec<Language>,
    /// Words to find in text without blanks, by their first letter, the longest first.
    #[serde(skip)]
    cuts: HashMap<char, Vec<String>>,
}

/// The entries of a language by their first word.
#[derive(Debug)]
pub(crate) struct Language {
    /// True if the verb ends the clause, and particles follow their words.
    pub(crate) is_verb_last: bool,
    entries: HashMap<String, Vec<Entry>>,
    /// Entries whose first word is a stem.
    stems: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    words: Vec<String>,
    sense: String,
    /// True for entries of all languages.
    common: bool,
}

/// A group of words with a sense.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark<'a> {
    pub(crate) start: usize,
    /// After its last word.
    pub(crate) end: usize,
    pub(crate) senses: Vec<&'a str>,
    /// The number of words of the entry, of those before its first `*`, and of those after its last.
    pub(crate) own: usize,
    head: usize,
    tail: usize,
    pub(crate) known: usize,
}

impl Mark<'_> {
    pub(crate) fn is(&self, sense: &str) -> bool {
        self.senses.contains(&sense)
    }
}

impl Table {
    pub(crate) fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let mut table: Self = toml::from_str(text)?;
        for command in &mut table.command {
            command.patterns =
                command.lines.split(", ").map(|line| line.split(' ').map(str::to_owned).collect()).collect();
        }
        let common = table.words.remove("any").unwrap_or_default();
        for senses in table.words.values() {
            let (mut entries, mut stems): (HashMap<String, Vec<Entry>>, Vec<Entry>) = Default::default();
            for (sense, written) in senses.iter().chain(&common) {
                for entry in written.split(", ") {
                    let entry = folded(entry);
                    for part in entry.split(' ').filter(|part| part.chars().any(is_unspaced)) {
                        table.cuts.entry(part.chars().next().unwrap_or_default()).or_default().push(part.to_owned());
                    }
                    let words: Vec<String> = entry.split(' ').map(str::to_owned).collect();
                    let common = common.get(sense).is_some_and(|all| std::ptr::eq(all, written));
                    let first = words[0].clone();
                    let among = if first.contains('~') && first.len() > 2 {
                        &mut stems
                    } else {
                        entries.entry(first).or_default()
                    };
                    among.push(Entry { words, sense: sense.clone(), common });
                }
            }
            table.languages.push(Language { is_verb_last: senses.contains_key("object"), entries, stems });
        }
        for parts in table.cuts.values_mut() {
            parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        }
        Ok(table)
    }

    /// True if a verb is an idiom.
    pub(crate) fn is_idiom(&self, verb: &Mark<'_>) -> bool {
        let bare = |sense: &str| sense.strip_prefix("do-").or_else(|| sense.strip_prefix("done-")).map(str::to_owned);
        let idioms = self.class.iter().filter(|class| class.thing == IDIOM);
        idioms
            .flat_map(|class| class.verb.split(' '))
            .any(|name| verb.senses.iter().any(|it| bare(it).as_deref() == Some(name)))
    }

    /// True if a line that begins with this word is a command line.
    pub(crate) fn is_program(&self, word: &str) -> bool {
        let mut patterns = self.command.iter().flat_map(|command| &command.patterns);
        self.programs.split(", ").any(|program| program == word) || patterns.any(|pattern| pattern[0] == word)
    }

    /// The length of the longest known word at the beginning of a text without blanks.
    pub(crate) fn cut(&self, text: &str) -> Option<usize> {
        let parts = self.cuts.get(&text.chars().next()?)?;
        parts.iter().find(|part| text.starts_with(part.as_str())).map(String::len)
    }
}

impl Language {
    /// Finds the senses in a clause: the longest entries, from left to right.
    pub(crate) fn marks<'a>(&'a self, clause: &[Token<'_>]) -> Vec<Mark<'a>> {
        let (mut marks, mut taken) = (Vec::new(), vec![false; clause.len()]);
        for start in 0..clause.len() {
            if taken[start] {
                continue;
            }
            let Some(mark) = self.longest(clause, start) else { continue };
            // The words inside "turn * off" have their own senses.
            taken[start..start + mark.head].fill(true);
            taken[mark.end - mark.tail..mark.end].fill(true);
            marks.push(mark);
        }
        marks
    }

    /// True if a word joins clauses.
    pub(crate) fn joins(&self, word: &str) -> bool {
        ["and", "then"].iter().any(|sense| self.has_sense(word, sense))
    }

    /// True if a single word has a sense.
    pub(crate) fn has_sense(&self, word: &str, sense: &str) -> bool {
        self.entries.get(word).into_iter().flatten().any(|entry| entry.sense == sense && entry.words == [word])
    }

    fn longest<'a>(&'a self, clause: &[Token<'_>], start: usize) -> Option<Mark<'a>> {
        let token = &clause[start];
        let (mut best, mut weight) = (Mark::default(), (0, 0));
        for Entry { words, sense, common } in self.entries.get(&token.text).into_iter().flatten().chain(&self.stems) {
            let Some(length) = words_taken(&clause[start..], words, |word| word.text.as_str(), 8) else { continue };
            let own = words.iter().filter(|word| *word != "*").count();
            let this = (own, words.iter().map(String::len).sum());
            if this > weight {
                let gap = |word: &String| word == "*";
                let head = words.iter().position(gap).unwrap_or(own);
                let tail = words.iter().rev().position(gap).unwrap_or(0);
                (best, weight) = (Mark { start, end: start + length, own, head, tail, ..Mark::default() }, this);
            }
            if this == weight {
                best.senses.push(sense);
                best.known = best.known.max(if *common { 0 } else { own });
            }
        }
        if best.own == 0 {
            let sense = self.compound(&token.text).or_else(|| shape(&token.text))?;
            best = Mark { start, end: start + 1, senses: vec![sense], ..Mark::default() };
        }
        Some(best)
    }

    /// The sense of the last part of a compound: a "Datenbankprozess" is a process.
    fn compound(&self, word: &str) -> Option<&str> {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase());
        let ends = 3..word.len().saturating_sub(4);
        let known = ends.filter(|_| is_plain).find_map(|at| self.entries.get(&word[at..]))?;
        let nouns = known.iter().filter(|entry| entry.words.len() == 1 && entry.sense.starts_with("of-"));
        nouns.map(|entry| entry.sense.as_str()).next()
    }
}

/// The last labels of common host names.
const HOSTS: [&str; 10] = ["com", "org", "net", "io", "dev", "app", "ai", "cloud", "example", "test"];

/// The sense of an unknown word by its shape: a URL, an address or the name of a file.
fn shape(word: &str) -> Option<&'static str> {
    let ending = word.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_ending = (1..=4).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let is_host = HOSTS.contains(&ending) && !word.contains('/');
    if word.contains("://") || ((word.contains('@') || is_host) && is_ending) {
        return Some("at-outside");
    }
    let is_path = word.starts_with(['/', '.']) || word.starts_with("~/");
    ((is_path && word.len() > 1) || (is_ending && word.len() > ending.len() + 1)).then_some("of-file")
}

/// The number of leading words that match a pattern. `*` matches up to `gap` words, and `~` ends a prefix.
pub(crate) fn words_taken<T>(words: &[T], pattern: &[String], text: fn(&T) -> &str, gap: usize) -> Option<usize> {
    let Some((first, rest)) = pattern.split_first() else { return Some(0) };
    if first == "*" {
        return (0..=gap.min(words.len())).find_map(|skip| Some(skip + words_taken(&words[skip..], rest, text, gap)?));
    }
    let word = text(words.first()?);
    let fits = match (first.strip_suffix('~'), first.strip_prefix("~.")) {
        (Some(beginning), _) => word.starts_with(beginning),
        (None, Some(ending)) => word.strip_suffix(ending).is_some_and(|name| name.ends_with('.')),
        (None, None) => word == first,
    };
    if fits { Some(1 + words_taken(&words[1..], rest, text, gap)?) } else { None }
}
