//! Parses the arguments of a program by the program's own grammar: clusters of letters, attached values,
//! abbreviations, `--`.

use super::data;
use super::data::{Grammar, Program, Takes};
use crate::glob::name_matches;

/// Programs that contain other programs. Their first operand names the one that runs.
const MULTICALL: [&str; 3] = ["busybox", "toybox", "coreutils"];

/// True for a program that acts as the program that its `argv[0]` names.
pub(crate) fn is_multicall(name: &str) -> bool {
    MULTICALL.contains(&name)
}

/// The words of a command, classified by the grammar of its program.
pub(crate) struct Arguments<'a> {
    argv: &'a [String],
    name: &'a str,
    items: Vec<Item<'a>>,
    program: Option<&'static Program>,
    /// The number of items before the first operand.
    leading: usize,
    /// The number of words that come before the arguments.
    start: usize,
}

/// One argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'a> {
    /// An option and its value.
    Option(Name<'a>, Option<&'a str>),
    Operand(Operand<'a>),
}

/// A word that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand<'a> {
    pub word: &'a str,
    /// It may be the value of the unknown option before it.
    doubtful: bool,
    /// It follows `--`.
    pub(super) after_dashes: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Letter(char),
    /// A name without its dashes, and whether it is known to be complete.
    Long(&'a str, bool),
}

impl Name<'_> {
    /// True if this is the option that a rule names, with its dashes. An abbreviation is every option that it may stand
    /// for.
    fn is(self, option: &str) -> bool {
        match self {
            Self::Letter(letter) => {
                option.strip_prefix('-').is_some_and(|known| known.chars().eq(std::iter::once(letter)))
            }
            Self::Long(name, whole) => match option.strip_prefix("--") {
                Some(known) => known == name || !whole && !name.is_empty() && known.starts_with(name),
                None => option.strip_prefix('-') == Some(name),
            },
        }
    }
}

impl<'a> Arguments<'a> {
    /// Parses a command line, starting with the program's name.
    pub(crate) fn read(argv: &'a [String]) -> Self {
        let base = |at: usize| argv.get(at).map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        let applet = is_multicall(base(0)) && argv.get(1).is_some_and(|word| !word.starts_with('-'));
        let (name, start) = (base(usize::from(applet)), 1 + usize::from(applet));
        let program = data::family_of(name).and_then(|family| family.program(name));
        let mut reader = Reader::new(argv, start, program.map(Program::grammar).unwrap_or_default());
        reader.read();
        let mut items = reader.items;
        let leading = items.iter().position(|item| matches!(item, Item::Operand(_))).unwrap_or(items.len());
        if let (Some(program), Some(at)) = (program, reader.stopped) {
            let mut rest = Reader::new(argv, at + 1, program.grammar_of(&argv[at]).unwrap_or_default());
            rest.ended = program.script.is_some();
            rest.read();
            items.append(&mut rest.items);
        }
        Self { argv, name, items, program, leading, start }
    }

    /// The first word, as written.
    pub(crate) fn command(&self) -> Option<&'a str> {
        self.argv.first().map(String::as_str)
    }

    /// The program's name without a directory; for `busybox NAME`, that name.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// The words after the program's name.
    pub(crate) fn words(&self) -> &'a [String] {
        self.argv.get(self.start..).unwrap_or_default()
    }

    pub(super) fn items(&self) -> &[Item<'a>] {
        &self.items
    }

    /// The arguments from the program's own command on. The options before it are of the program, such as `git -C DIR`.
    pub(super) fn items_of_command(&self) -> &[Item<'a>] {
        let has_commands = self.program.is_some_and(|program| program.stops && program.script.is_none());
        &self.items[if has_commands { self.leading } else { 0 }..]
    }

    /// The operands. Those of a program with commands of its own begin with that command.
    pub(crate) fn operands(&self) -> impl Iterator<Item = Operand<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Operand(operand) => Some(*operand),
            Item::Option(..) => None,
        })
    }

    /// The operands after the program's own command.
    pub(crate) fn operands_of_command(&self) -> impl Iterator<Item = Operand<'a>> {
        let mut commands = true;
        self.operands().skip_while(move |operand| {
            let skip = commands;
            commands &= operand.doubtful;
            skip
        })
    }

    /// True if one of these options is given.
    pub(crate) fn has_option(&self, options: &[impl AsRef<str>]) -> bool {
        has_option(&self.items, options)
    }

    /// True if the program's own command is one of these, by its name, an alias or its beginning: `push`, or `stash
    /// drop` with the command within the command. `*` matches any run of characters.
    pub(crate) fn is_command(&self, commands: &[impl AsRef<str>]) -> bool {
        commands.iter().any(|phrase| {
            let (first, second) =
                phrase.as_ref().split_once(' ').map_or((phrase.as_ref(), None), |(a, b)| (a, Some(b)));
            let canonical = |word| self.program.and_then(|program| program.canonical(word));
            candidates(self.operands())
                .any(|word| name_matches(first, word) || canonical(word).is_some_and(|word| name_matches(first, word)))
                && second
                    .is_none_or(|second| candidates(self.operands_of_command()).any(|word| name_matches(second, word)))
        })
    }

    /// The directories that options before the first operand change to, in order.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &'a str> {
        let letter = self.program.and_then(|program| program.directory);
        self.items[..self.leading].iter().filter_map(move |item| match item {
            Item::Option(Name::Letter(found), value) if letter == Some(*found) => *value,
            _ => None,
        })
    }

    /// The words that may be paths: operands, values of options, and the text attached to a letter.
    pub(crate) fn possible_paths(&self) -> impl Iterator<Item = &'a str> {
        let parts = |word: &'a String| {
            let word = word.as_str();
            let value = match (word.starts_with('-'), word.split_once('=')) {
                (true, Some((_, value))) => Some(value),
                (true, None) => {
                    word.char_indices().nth(2).filter(|_| !word.starts_with("--")).map(|(at, _)| &word[at..])
                }
                (false, _) => Some(word),
            };
            // In a cluster the value follows several letters.
            let path = word.find(['/', '.']).filter(|_| word.starts_with('-')).map(|at| &word[at..]);
            [value, path.filter(|path| Some(*path) != value)]
        };
        self.words().iter().flat_map(parts).flatten().filter(|value| !value.is_empty() && !value.starts_with('-'))
    }

    /// The script that an interpreter runs, and the words after it.
    pub(crate) fn script(&self) -> Option<(&'a str, &'a [String])> {
        let script = self.program?.script.as_ref()?;
        if self.has_option(&script.instead) {
            return None;
        }
        let path = values_of(&self.items, &script.file)
            .next()
            .or_else(|| self.operands().next().map(|operand| operand.word))?;
        let words = self.words();
        let at = words.iter().position(|word| *word == path).map_or(words.len(), |at| at + 1);
        Some((path, &words[at..]))
    }
}

/// True if one of these options is among the arguments.
pub(super) fn has_option(items: &[Item<'_>], options: &[impl AsRef<str>]) -> bool {
    items.iter().any(|item| match item {
        Item::Option(name, _) => options.iter().any(|option| name.is(option.as_ref())),
        Item::Operand(_) => false,
    })
}

/// The values of an option.
pub(super) fn values_of<'s, 'a>(
    items: &'s [Item<'a>],
    options: &'s [impl AsRef<str>],
) -> impl Iterator<Item = &'a str> + 's {
    items.iter().filter_map(|item| match item {
        Item::Option(name, value) if options.iter().any(|option| name.is(option.as_ref())) => *value,
        _ => None,
    })
}

/// The operands that may be a command: the first, and the next if the first may be the value of an option.
fn candidates<'a>(operands: impl Iterator<Item = Operand<'a>>) -> impl Iterator<Item = &'a str> {
    let mut doubtful = true;
    let taken = operands.take_while(move |operand| {
        let take = doubtful;
        doubtful &= operand.doubtful;
        take
    });
    taken.map(|operand| operand.word)
}

struct Reader<'a, 'g> {
    argv: &'a [String],
    at: usize,
    grammar: Grammar<'g>,
    items: Vec<Item<'a>>,
    /// The index of the operand at which option parsing stopped, for a grammar that stops.
    stopped: Option<usize>,
    /// True if all remaining words are operands.
    ended: bool,
    doubt: bool,
}

impl<'a, 'g> Reader<'a, 'g> {
    fn new(argv: &'a [String], at: usize, grammar: Grammar<'g>) -> Self {
        Self { argv, at, grammar, items: Vec::new(), stopped: None, ended: false, doubt: false }
    }

    fn read(&mut self) {
        while self.at < self.argv.len() && self.stopped.is_none() {
            let word = self.argv[self.at].as_str();
            self.at += 1;
            let doubtful = std::mem::take(&mut self.doubt);
            if !self.ended && word == "--" {
                self.ended = true;
            } else if self.ended || word == "-" || !word.starts_with('-') {
                // A toolchain of cargo is not an operand.
                if !(self.items.is_empty() && self.grammar.stops && word.starts_with('+')) {
                    self.items.push(Item::Operand(Operand { word, doubtful, after_dashes: self.ended }));
                    self.stopped = self.grammar.stops.then_some(self.at - 1);
                }
            } else if word.starts_with("--") || self.grammar.one_dash {
                self.long(word.trim_start_matches('-'));
            } else {
                self.letters(&word[1..]);
            }
        }
    }

    fn long(&mut self, word: &'a str) {
        let (name, attached) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let known = self.grammar.long(name).or_else(|| {
            let (_, whole) = self.grammar.long(name.strip_prefix("no-")?)?;
            Some((Takes::Nothing, whole))
        });
        let value = match (attached, known) {
            (None, Some((Takes::Value, _))) => self.value(),
            _ => attached,
        };
        self.doubt = known.is_none() && attached.is_none();
        self.items.push(Item::Option(Name::Long(name, known.is_some_and(|(_, whole)| whole)), value));
    }

    fn value(&mut self) -> Option<&'a str> {
        let word = self.argv.get(self.at)?;
        self.at += 1;
        Some(word)
    }

    /// Reads a cluster of letters.
    fn letters(&mut self, mut rest: &'a str) {
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let takes = self.grammar.letter(letter);
            let value = match takes {
                Some(Takes::Value) if rest.is_empty() => self.value(),
                Some(Takes::Value | Takes::Attached) => {
                    Some(std::mem::take(&mut rest)).filter(|value| !value.is_empty())
                }
                Some(Takes::Nothing) | None => None,
            };
            self.doubt |= takes.is_none();
            self.items.push(Item::Option(Name::Letter(letter), value));
        }
    }
}
