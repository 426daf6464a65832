//! Parses the arguments of a program by the program's own grammar: clusters of letters, attached values,
//! abbreviations, `--`.

use super::data;
use super::data::{Name, Program, Takes};
use cp_common::glob::name_matches;

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
    program: Option<&'static Program>,
    /// The number of words that come before the arguments.
    start: usize,
    options: Vec<Given<'a>>,
    operands: Vec<Operand<'a>>,
    /// The number of options before the first operand.
    leading: usize,
}

/// An option and its value.
pub(super) type Given<'a> = (Name<'a>, Option<&'a str>);

/// A word that is not an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Operand<'a> {
    pub word: &'a str,
    /// It may be the value of the unknown option before it.
    doubtful: bool,
    /// It follows `--`.
    pub(super) after_dashes: bool,
}

impl<'a> Arguments<'a> {
    /// Parses a command line, starting with the program's name.
    pub(crate) fn read(argv: &'a [String]) -> Self {
        let base = |at: usize| argv.get(at).map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        let applet = is_multicall(base(0)) && argv.get(1).is_some_and(|word| !word.starts_with('-'));
        let (name, start) = (base(usize::from(applet)), 1 + usize::from(applet));
        let program = data::program(name);
        let (options, operands) = (Vec::new(), Vec::new());
        let mut arguments = Self { argv, name, program, start, options, operands, leading: 0 };
        arguments.classify();
        arguments
    }

    fn classify(&mut self) {
        let program = self.program;
        let stops = program.is_some_and(Program::stops);
        let mut known = program.map_or("", |program| &program.options);
        let mut words = self.words().iter().map(String::as_str);
        let (mut is_ended, mut doubt) = (false, false);
        while let Some(word) = words.next() {
            let doubtful = std::mem::take(&mut doubt);
            let is_first = self.operands.is_empty();
            let is_option = !is_ended && word.starts_with('-') && word != "-";
            if is_option && word == "--" {
                is_ended = true;
            } else if is_option && (word.starts_with("--") || program.is_some_and(|program| program.one_dash)) {
                doubt = self.long(word.trim_start_matches('-'), known, &mut words);
            } else if is_option {
                doubt = self.letters(&word[1..], known, &mut words);
            } else if !(stops && is_first && self.options.is_empty() && word.starts_with('+')) {
                // A toolchain of cargo, as `+stable`, is not an operand.
                self.operands.push(Operand { word, doubtful, after_dashes: is_ended });
                if let Some(program) = program.filter(|program| is_first && program.stops()) {
                    self.leading = self.options.len();
                    (known, is_ended) = (&program.command_options, program.instead_of_script.is_some());
                }
            }
        }
        if self.operands.is_empty() {
            self.leading = self.options.len();
        }
    }

    /// Adds a long option. True if the next word may be its value.
    fn long(&mut self, word: &'a str, known: &str, words: &mut impl Iterator<Item = &'a str>) -> bool {
        let (name, attached) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        let takes = Takes::of(known, Name::Long(name));
        let value = if attached.is_none() && takes == Some(Takes::Value) { words.next() } else { attached };
        self.options.push((Name::Long(name), value));
        takes.is_none() && attached.is_none()
    }

    /// Adds a cluster of letters. True if the next word may be the value of one.
    fn letters(&mut self, mut rest: &'a str, known: &str, words: &mut impl Iterator<Item = &'a str>) -> bool {
        let mut doubt = false;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            let takes = Takes::of(known, Name::Letter(letter));
            let value = match takes {
                Some(Takes::Value) if rest.is_empty() => words.next(),
                Some(Takes::Value | Takes::Attached) => {
                    Some(std::mem::take(&mut rest)).filter(|value| !value.is_empty())
                }
                Some(Takes::Nothing) | None => None,
            };
            doubt |= takes.is_none();
            self.options.push((Name::Letter(letter), value));
        }
        doubt
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

    /// The options, or those after the program's own command. The options before it are of the program, such as
    /// `git -C DIR`.
    pub(super) fn options(&self, is_of_command: bool) -> &[Given<'a>] {
        let has_commands = self.program.is_some_and(|program| !program.command_options.is_empty());
        &self.options[if is_of_command && has_commands { self.leading } else { 0 }..]
    }

    /// The operands. Those of a program with commands of its own begin with that command.
    pub(crate) fn operands(&self) -> &[Operand<'a>] {
        &self.operands
    }

    /// The operands after the program's own command.
    pub(crate) fn operands_of_command(&self) -> &[Operand<'a>] {
        split_command(&self.operands).1
    }

    /// True if the program's own command is one of these, by its name: `push`, or `stash
    /// drop` with the command within the command. `*` matches any run of characters.
    pub(crate) fn is_command(&self, commands: &[impl AsRef<str>]) -> bool {
        commands.iter().any(|phrase| {
            let (first, second) =
                phrase.as_ref().split_once(' ').map_or((phrase.as_ref(), None), |(a, b)| (a, Some(b)));
            let (names, rest) = split_command(&self.operands);
            names.iter().any(|name| name_matches(first, name.word))
                && second.is_none_or(|second| split_command(rest).0.iter().any(|name| name_matches(second, name.word)))
        })
    }

    /// The directories that options before the first operand change to, in order.
    pub(crate) fn directories(&self) -> impl Iterator<Item = &'a str> {
        values_of(&self.options[..self.leading], &["-C"])
    }

    /// The words that may be paths: operands, and values of options.
    pub(crate) fn possible_paths(&self) -> impl Iterator<Item = &'a str> {
        let attached = self.words().iter().filter_map(|word| word.split_once('=')).map(|(_, value)| value);
        self.words().iter().map(String::as_str).filter(|word| !word.starts_with('-')).chain(attached)
    }

    /// The script that an interpreter runs, and the words after it.
    pub(crate) fn script(&self) -> Option<(&'a str, &'a [String])> {
        let script = self.operands.first()?.word;
        if has_option(&self.options, self.program?.instead_of_script.as_ref()?) {
            return None;
        }
        let words = self.words();
        let at = words.iter().position(|word| word == script).map_or(words.len(), |at| at + 1);
        Some((script, &words[at..]))
    }
}

/// True if one of these options is given, or `--name=FORM` with a value of this form.
pub(super) fn has_option(given: &[Given<'_>], options: &[impl AsRef<str>]) -> bool {
    options.iter().any(|option| match option.as_ref().split_once('=') {
        None => given.iter().any(|(name, _)| name.is(option.as_ref())),
        Some((option, form)) => values_of(given, &[option]).any(|value| name_matches(form, value)),
    })
}

/// The values of an option.
pub(super) fn values_of<'s, 'a>(
    given: &'s [Given<'a>],
    options: &'s [impl AsRef<str>],
) -> impl Iterator<Item = &'a str> + 's {
    let of = given.iter().filter(|(name, _)| options.iter().any(|option| name.is(option.as_ref())));
    of.filter_map(|(_, value)| *value)
}

/// Splits the operands that may be a command from the others. They are the first, and the next if the first may be the
/// value of an option.
fn split_command<'s, 'a>(operands: &'s [Operand<'a>]) -> (&'s [Operand<'a>], &'s [Operand<'a>]) {
    let certain = operands.iter().position(|operand| !operand.doubtful);
    operands.split_at(certain.map_or(operands.len(), |at| at + 1))
}
