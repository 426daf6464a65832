//! A command line, read once as the program itself would read it. Rules and decisions ask it; none of them reads words again.

mod grammar;
mod levels;
mod read;
mod tables;
mod wrapped;

use self::grammar::OPEN;
pub(crate) use self::read::{Item, Name, Operand};
pub(crate) use self::tables::Role;
use self::tables::{Levels, Then};
pub(crate) use self::wrapped::{Inner, Wrapper};

/// The words of a command, and what they are to it.
pub(crate) struct Arguments<'a> {
    argv: &'a [String],
    name: &'a str,
    items: Vec<Item<'a>>,
    role: Role,
    unknown: Option<&'a str>,
    /// How many of the items come before the first operand.
    before: usize,
}

impl<'a> Arguments<'a> {
    /// Reads a command line, its own name first.
    pub(crate) fn read(argv: &'a [String]) -> Self {
        let name = argv.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        let family = tables::family_of(name);
        let role = family.map_or(Role::Plain, |family| family.role);
        let mut reading = read::read(argv, 1, family.map_or(&OPEN, |family| &family.grammar));
        let before = reading.items.iter().position(|item| matches!(item, Item::Operand(_)));
        let before = before.unwrap_or(reading.items.len());
        if let (Role::Levels(levels), Some(at)) = (&role, reading.stopped)
            && let Some(grammar) = levels.grammar_of(&argv[at])
        {
            reading.items.truncate(before + 1);
            reading.items.append(&mut read::read(argv, at + 1, &grammar).items);
        }
        Self { argv, name, items: reading.items, role, unknown: reading.unknown, before }
    }

    /// The command as it was written, if there is one.
    pub(crate) fn command(&self) -> Option<&'a str> {
        self.argv.first().map(String::as_str)
    }

    /// The command's name, without a directory.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }

    /// The words after the command.
    pub(crate) fn words(&self) -> &'a [String] {
        self.argv.get(1..).unwrap_or_default()
    }

    /// Options and operands, in order.
    pub(crate) fn items(&self) -> &[Item<'a>] {
        &self.items
    }

    /// An option that is not known, so that what the program would do is not known either.
    pub(crate) fn unknown(&self) -> Option<&'a str> {
        self.unknown
    }

    /// The operands. Those of a program with commands of its own begin with that command.
    pub(crate) fn operands(&self) -> impl Iterator<Item = Operand<'a>> {
        self.items.iter().filter_map(|item| match item {
            Item::Operand(operand) => Some(*operand),
            Item::Option(..) => None,
        })
    }

    /// The operands behind the program's own command.
    pub(crate) fn operands_of_command(&self) -> impl Iterator<Item = Operand<'a>> {
        let mut commands = true;
        self.operands().skip_while(move |operand| {
            let skip = commands;
            commands &= operand.doubtful;
            skip
        })
    }

    /// Whether one of these options is given.
    pub(crate) fn has_option(&self, options: &[impl AsRef<str>]) -> bool {
        has_option(&self.items, options)
    }

    /// Whether one of these options is given before the first operand.
    pub(crate) fn has_option_before_operands(&self, options: &[impl AsRef<str>]) -> bool {
        has_option(&self.items[..self.before], options)
    }

    /// The values of an option.
    pub(crate) fn values_of<'s>(&'s self, options: &'s [&str]) -> impl Iterator<Item = &'a str> + 's {
        self.items.iter().filter_map(|item| match item {
            Item::Option(name, value) if options.iter().any(|option| name.is(option)) => *value,
            _ => None,
        })
    }

    /// Whether the program's own command is one of these: by its name, another name, or its beginning.
    pub(crate) fn is_command(&self, commands: &[impl AsRef<str>]) -> bool {
        self.commands().any(|operand| self.stands_for(operand.word, commands))
    }

    /// Whether the command within the command is one of these.
    pub(crate) fn is_nested_command(&self, command: &str, nested: &[&str]) -> bool {
        self.is_command(&[command]) && {
            let mut doubtful = true;
            let mut operands = self.operands_of_command().take_while(|operand| {
                let take = doubtful;
                doubtful &= operand.doubtful;
                take
            });
            operands.any(|operand| nested.contains(&operand.word))
        }
    }

    /// The program's own command, as it was written, where it is none that the program has.
    pub(crate) fn unknown_command(&self) -> Option<&'a str> {
        let Role::Levels(Levels { then: Then::Each(known), .. }) = self.role else { return None };
        let command = self.commands().next()?.word;
        (!known.iter().any(|(name, ..)| *name == command)).then_some(command)
    }

    /// Operands that may be the program's own command: the first, and the next where that may be the value of an option.
    fn commands(&self) -> impl Iterator<Item = Operand<'a>> {
        let mut doubtful = true;
        self.operands().take_while(move |operand| {
            let take = doubtful;
            doubtful &= operand.doubtful;
            take
        })
    }

    fn stands_for(&self, word: &str, commands: &[impl AsRef<str>]) -> bool {
        let is = |word: &str| commands.iter().any(|command| command.as_ref() == word);
        is(word)
            || match &self.role {
                Role::Levels(levels) => levels.canonical(word).is_some_and(is),
                _ => false,
            }
    }

    /// What in the arguments could be a path: operands, the values of options, and what is attached to a letter.
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
            // Letters come before what is attached to the last of them.
            let path = word.find(['/', '.']).filter(|_| word.starts_with('-')).map(|at| &word[at..]);
            [value, path.filter(|path| Some(*path) != value)]
        };
        self.words().iter().flat_map(parts).flatten().filter(|value| !value.is_empty() && !value.starts_with('-'))
    }

    /// This command as one that runs the command behind its own arguments, if it is one.
    pub(crate) fn wrapper(&self) -> Option<Wrapper<'_, 'a>> {
        match &self.role {
            Role::Wrapper(wraps) => Some(Wrapper { arguments: self, wraps }),
            _ => None,
        }
    }

    /// Whether this runs scripts.
    pub(crate) fn is_interpreter(&self) -> bool {
        matches!(self.role, Role::Interpreter { .. })
    }

    /// The script that an interpreter runs.
    pub(crate) fn script(&self) -> Option<&'a str> {
        let Role::Interpreter { file } = self.role else { return None };
        self.values_of(file).next().or_else(|| self.operands().next().map(|operand| operand.word))
    }

    /// Whether this is `sed`.
    pub(crate) fn is_sed(&self) -> bool {
        matches!(self.role, Role::Sed)
    }
}

fn has_option(items: &[Item<'_>], options: &[impl AsRef<str>]) -> bool {
    items.iter().any(|item| match item {
        Item::Option(name, _) => options.iter().any(|option| name.is(option.as_ref())),
        Item::Operand(_) => false,
    })
}

#[cfg(test)]
mod tests;
