//! Reading a command's words as its own parser would: bundled letters, attached values, abbreviations, `--`.

use super::grammar::{Also, Form, Grammar, Takes, same_letters};

/// One argument, read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item<'a> {
    /// An option, and its value.
    Option(Name<'a>, Option<&'a str>),
    Operand(Operand<'a>),
}

/// A word that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand<'a> {
    pub word: &'a str,
    /// Its place in the words.
    pub at: usize,
    /// It may be the value of the option before it, which is not known.
    pub doubtful: bool,
    /// It stands behind a `--`.
    pub behind: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Name<'a> {
    Letter(char),
    Long {
        /// Without its dashes.
        name: &'a str,
        dashes: usize,
        /// It is written in full, so that it stands for no other.
        whole: bool,
    },
}

impl Name<'_> {
    /// Whether this is the option that a rule names, with its dashes. An abbreviation is every option it could stand for.
    pub(crate) fn is(&self, option: &str) -> bool {
        match self {
            Self::Letter(letter) => {
                option.len() == 1 + letter.len_utf8() && option.starts_with('-') && option.ends_with(*letter)
            }
            Self::Long { name, dashes, whole } => {
                let Some(known) = option.strip_prefix("--") else {
                    return option.strip_prefix('-').is_some_and(|known| {
                        known.chars().nth(1).is_some() && same_letters(known, name) || *dashes == 1 && known == *name
                    });
                };
                same_letters(known, name)
                    || *dashes == 2
                        && !whole
                        && !name.is_empty()
                        && known.get(..name.len()).is_some_and(|start| same_letters(start, name))
            }
        }
    }
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Reading<'a> {
    pub items: Vec<Item<'a>>,
    /// An option that the table does not have, or that could be several.
    pub unknown: Option<&'a str>,
    /// Where reading stopped, for a grammar that stops.
    pub stopped: Option<usize>,
}

/// Reads the words from a place on.
pub(super) fn read<'a>(argv: &'a [String], from: usize, grammar: &Grammar) -> Reading<'a> {
    let mut reader = Reader { argv, at: from, grammar, reading: Reading::default(), ended: false, doubt: false };
    if grammar.also == Also::Bundle {
        reader.bundle();
    }
    while reader.at < argv.len() {
        reader.word();
        if reader.reading.stopped.is_some() {
            reader.rest();
            break;
        }
    }
    reader.reading
}

struct Reader<'a, 'g> {
    argv: &'a [String],
    at: usize,
    grammar: &'g Grammar,
    reading: Reading<'a>,
    ended: bool,
    doubt: bool,
}

impl<'a> Reader<'a, '_> {
    fn word(&mut self) {
        let word = self.argv[self.at].as_str();
        self.at += 1;
        // npm takes these for the value of a flag.
        let flag = self.grammar.form == Form::Npm && ["true", "false", "null"].contains(&word);
        let doubt = std::mem::take(&mut self.doubt) || flag;
        if self.ended {
            return self.operand(word, doubt);
        }
        let numbers = self.grammar.also == Also::Numbers;
        if word == "--" {
            self.ended = true;
        } else if numbers && is_number(word) {
            self.reading.items.push(Item::Option(Name::Letter('#'), Some(word)));
        } else if self.grammar.also == Also::Toolchain && word.starts_with('+') && self.reading.items.is_empty() {
            self.reading.items.push(Item::Option(Name::Letter('+'), Some(word)));
        } else if self.grammar.also == Also::Plus && word.len() > 1 && word.starts_with('+') {
            self.letters(word);
        } else if word == "-" || !word.starts_with('-') {
            self.operand(word, doubt);
        } else if word.starts_with("--") || self.is_long(word) {
            self.long(word);
        } else {
            self.letters(word);
        }
    }

    /// Whether a word with one dash is one option: npm looks for such a name first.
    fn is_long(&self, word: &str) -> bool {
        match self.grammar.form {
            Form::Gnu => false,
            Form::OneDash => true,
            Form::Npm => {
                let name = word.trim_start_matches('-');
                self.grammar.long(name).is_some_and(|(_, whole)| whole)
                    || !name.chars().all(|letter| self.grammar.letter(letter).is_some())
            }
        }
    }

    fn operand(&mut self, word: &'a str, doubtful: bool) {
        let at = self.at - 1;
        self.reading.items.push(Item::Operand(Operand { word, at, doubtful, behind: self.ended }));
        if self.grammar.stops {
            self.reading.stopped = Some(at);
        }
    }

    /// What follows belongs to another program.
    fn rest(&mut self) {
        for at in self.at..self.argv.len() {
            let operand = Operand { word: &self.argv[at], at, doubtful: false, behind: self.ended };
            self.reading.items.push(Item::Operand(operand));
        }
    }

    fn long(&mut self, word: &'a str) {
        let name = word.trim_start_matches('-');
        let dashes = word.len() - name.len();
        let (name, attached) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
        let known = self.grammar.long(name).or_else(|| {
            let positive = name.strip_prefix("no-").filter(|_| !self.grammar.long.is_empty())?;
            self.grammar.long(positive).map(|(_, whole)| (Takes::Nothing, whole))
        });
        let whole = known.is_some_and(|(_, whole)| whole);
        let value = match (attached, known) {
            (Some(value), _) => Some(value),
            (None, Some((Takes::Value, _))) => self.value(),
            (None, Some(_)) => None,
            (None, None) => {
                self.doubt = true;
                None
            }
        };
        if known.is_none() {
            self.unknown(word);
        }
        self.reading.items.push(Item::Option(Name::Long { name, dashes, whole }, value));
    }

    fn unknown(&mut self, word: &'a str) {
        if self.grammar.closed {
            self.reading.unknown.get_or_insert(word);
        }
    }

    /// The next word, as a value.
    fn value(&mut self) -> Option<&'a str> {
        let word = self.argv.get(self.at).map(String::as_str)?;
        if self.grammar.form == Form::Npm && word.starts_with('-') {
            return None;
        }
        self.at += 1;
        Some(word)
    }

    /// Reads `-abc`.
    fn letters(&mut self, word: &'a str) {
        let mut rest = &word[1..];
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let takes = self.grammar.letter(letter);
            let value = match takes {
                Some(Takes::Value) if rest.is_empty() => self.value(),
                Some(Takes::Value | Takes::Attached) => {
                    let value = (!rest.is_empty()).then_some(rest);
                    rest = "";
                    value
                }
                Some(Takes::Digits) => {
                    let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
                    let value = (digits > 0).then_some(&rest[..digits]);
                    rest = &rest[digits..];
                    value
                }
                Some(Takes::Nothing) => None,
                None => {
                    self.doubt = true;
                    self.unknown(word);
                    None
                }
            };
            self.reading.items.push(Item::Option(Name::Letter(letter), value));
            self.ended |= self.grammar.last.contains(letter) && value.is_some();
        }
    }

    /// `tar cIf PROGRAM FILE`.
    fn bundle(&mut self) {
        let Some(word) = self.argv.get(self.at).filter(|word| !word.starts_with('-')) else { return };
        self.at += 1;
        for letter in word.chars() {
            let takes = self.grammar.letter(letter) == Some(Takes::Value);
            let value = if takes { self.value() } else { None };
            self.reading.items.push(Item::Option(Name::Letter(letter), value));
        }
    }
}

fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix('-').map(|word| word.trim_start_matches(['-', '+']));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}
