//! The words of a text, and the table `risk.toml`: the classes of risk, the command lines that have one, and the words of each language
//! with their possible senses.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

/// What ends after a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Word,
    Clause,
    Sentence,
    Question,
}

#[derive(Debug)]
pub(crate) struct Token<'a> {
    /// Without accents, in lower case.
    pub(crate) text: String,
    /// As it was written.
    pub(crate) written: &'a str,
    /// Where it begins.
    pub(crate) at: usize,
    /// Whether it stands in quotes or backticks.
    pub(crate) quoted: bool,
    pub(crate) end: End,
}

/// The text with each voiced kana as one letter, as some systems do not write it.
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

/// Without accents, umlauts and case; letters of full width are plain ones.
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

/// Whether a letter belongs to a script that is written without blanks: kana, kanji.
pub(crate) const fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{3005}'..='\u{3007}' | '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}')
}

/// The words of a text.
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
            // What is quoted has no sentences of its own.
            if let (None, None, Some(last)) = (closing, closes, tokens.last_mut()) {
                last.end = last.end.max(end);
            }
        }
        (at, closing) = (start.max(next), closes);
    }
    word(start, &text[start..], false, table, &mut tokens);
    tokens
}

/// What a letter ends, if it is no part of a word.
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

/// The length of what opens or closes a quotation here, and what closes it after that. What is never closed opens none.
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

/// Takes a word; what is one only in writing is cut: "l'envoi", "peux-tu", and all text without blanks.
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

/// The table that is compiled in.
pub(crate) static TABLE: LazyLock<Table> =
    LazyLock::new(|| Table::parse(include_str!("risk.toml")).unwrap_or_default());

/// How much harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// None to be seen.
    Safe,
    /// Something changes, and can be changed back.
    Caution,
    /// Something is lost, leaves, is opened or stands still.
    Destructive,
    /// A machine, a disk or a service is lost.
    Critical,
}

impl Level {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Safe => "safe",
            Self::Caution => "caution",
            Self::Destructive => "destructive",
            Self::Critical => "critical",
        }
    }
}

/// A class of risk: what is done to what makes it. Senses are separated by blanks.
#[derive(Debug, Deserialize)]
pub(crate) struct Class {
    pub(crate) name: String,
    pub(crate) level: Level,
    pub(crate) verb: String,
    /// `*` is anything or nothing but code, the empty string nothing that is known.
    pub(crate) thing: String,
    /// What must stand somewhere in the clause besides.
    #[serde(default)]
    pub(crate) with: String,
    pub(crate) why: String,
}

/// Command lines of a class.
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
    /// What a command line begins with, besides the commands that have a class.
    programs: String,
    pub(crate) class: Vec<Class>,
    pub(crate) command: Vec<Command>,
    /// Language, sense, words.
    words: BTreeMap<String, BTreeMap<String, String>>,
    #[serde(skip)]
    pub(crate) languages: Vec<Language>,
    /// What is cut out of text that has no blanks, by its first letter, the longest first.
    #[serde(skip)]
    cuts: HashMap<char, Vec<String>>,
}

/// What a language can say, by the first word of it.
#[derive(Debug)]
pub(crate) struct Language {
    /// Whether the verb ends the clause, and particles follow what they mark.
    pub(crate) is_verb_last: bool,
    entries: HashMap<String, Vec<Entry>>,
    /// Those whose first word stands for many.
    stems: Vec<Entry>,
}

#[derive(Debug)]
struct Entry {
    words: Vec<String>,
    sense: String,
    /// Whether every language has it.
    common: bool,
}

/// Words that have a meaning, in a clause.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mark<'a> {
    pub(crate) start: usize,
    /// After its last word.
    pub(crate) end: usize,
    pub(crate) senses: Vec<&'a str>,
    /// How many words its entry has, and how many if only this language has it.
    pub(crate) own: usize,
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

    /// Whether a line that begins with this word is a command line.
    pub(crate) fn is_program(&self, word: &str) -> bool {
        let mut patterns = self.command.iter().flat_map(|command| &command.patterns);
        self.programs.split(", ").any(|program| program == word) || patterns.any(|pattern| pattern[0] == word)
    }

    /// How many bytes the longest known word has with which a text without blanks begins.
    pub(crate) fn cut(&self, text: &str) -> Option<usize> {
        let parts = self.cuts.get(&text.chars().next()?)?;
        parts.iter().find(|part| text.starts_with(part.as_str())).map(String::len)
    }
}

impl Language {
    /// Whatever has a meaning in a clause: the longest entries, from left to right.
    pub(crate) fn marks<'a>(&'a self, clause: &[Token<'_>]) -> Vec<Mark<'a>> {
        let (mut marks, mut taken) = (Vec::new(), vec![false; clause.len()]);
        for start in 0..clause.len() {
            if taken[start] {
                continue;
            }
            let Some(mark) = self.longest(clause, start) else { continue };
            if mark.own > 0 {
                // Between the words of "turn * off" other words stand, with a meaning of their own.
                (start..mark.end).take(mark.own - 1).for_each(|index| taken[index] = true);
                taken[mark.end - 1] = true;
            }
            marks.push(mark);
        }
        marks
    }

    /// Whether a word joins clauses.
    pub(crate) fn joins(&self, word: &str) -> bool {
        self.entries
            .get(word)
            .into_iter()
            .flatten()
            .any(|entry| matches!(entry.sense.as_str(), "and" | "then") && entry.words == [word])
    }

    fn longest<'a>(&'a self, clause: &[Token<'_>], start: usize) -> Option<Mark<'a>> {
        let token = &clause[start];
        let (mut best, mut weight) = (Mark::default(), (0, 0));
        for Entry { words, sense, common } in self.entries.get(&token.text).into_iter().flatten().chain(&self.stems) {
            let Some(length) = words_taken(&clause[start..], words, |word| word.text.as_str(), 8) else { continue };
            let own = words.iter().filter(|word| *word != "*").count();
            let this = (own, words.iter().map(String::len).sum());
            if this > weight {
                (best, weight) = (Mark { start, end: start + length, own, ..Mark::default() }, this);
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

    /// What the last part of a long word is: a "Datenbankprozess" is a process.
    fn compound(&self, word: &str) -> Option<&str> {
        let is_plain = word.bytes().all(|byte| byte.is_ascii_lowercase());
        let ends = 3..word.len().saturating_sub(4);
        let known = ends.filter(|_| is_plain).find_map(|at| self.entries.get(&word[at..]))?;
        let nouns = known.iter().filter(|entry| entry.words.len() == 1 && entry.sense.starts_with("of-"));
        nouns.map(|entry| entry.sense.as_str()).next()
    }
}

/// What a word that no language has looks like: an address, or the name of a file.
fn shape(word: &str) -> Option<&'static str> {
    let ending = word.rsplit_once('.').map_or("", |(_, ending)| ending);
    let is_ending = (1..=4).contains(&ending.len()) && ending.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if word.contains("://") || (word.contains('@') && is_ending) {
        return Some("at-outside");
    }
    let is_path = word.starts_with(['/', '.']) || word.starts_with("~/");
    ((is_path && word.len() > 1) || (is_ending && word.len() > ending.len() + 1)).then_some("of-file")
}

/// How many of the leading words a pattern takes: `*` takes up to `gap`, `~` ends a word of which only the beginning counts.
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
