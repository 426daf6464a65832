//! A command line, read once as the program itself would read it. Rules and decisions ask it; none of them reads words again.

mod options;
mod syntax;

pub(crate) use self::options::{Item, Name};
use self::syntax::{Role, role_of, syntax_of};

/// The words of a command, and what they are to it.
pub(crate) struct Arguments<'a> {
    argv: &'a [String],
    name: &'a str,
    items: Vec<Item<'a>>,
    role: Role,
    own: Vec<Item<'a>>,
}

impl<'a> Arguments<'a> {
    /// Reads a command line, its own name first.
    pub(crate) fn read(argv: &'a [String]) -> Self {
        let name = argv.first().map_or("", |word| word.rsplit('/').next().unwrap_or(word));
        let role = role_of(name);
        let own = role.syntax().map(|syntax| options::read(argv, &syntax)).unwrap_or_default();
        Self { argv, name, items: options::read(argv, syntax_of(name)), role, own }
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

    /// Options and operands, as most rules look at them.
    pub(crate) fn items(&self) -> &[Item<'a>] {
        &self.items
    }

    pub(crate) fn operands(&self) -> impl Iterator<Item = &'a str> {
        operands(&self.items).map(|(word, _)| word)
    }

    /// Whether one of these options is given.
    pub(crate) fn has_option(&self, options: &[impl AsRef<str>]) -> bool {
        has_option(&self.items, options)
    }

    /// Whether one of these options is given before the first operand.
    pub(crate) fn has_option_before_operands(&self, options: &[impl AsRef<str>]) -> bool {
        let end = self.items.iter().position(|item| matches!(item, Item::Operand(..))).unwrap_or(self.items.len());
        has_option(&self.items[..end], options)
    }

    /// What in the arguments could be a path: operands, and the values behind `=` of options.
    pub(crate) fn possible_paths(&self) -> impl Iterator<Item = &'a str> {
        let value = |word: &'a String| {
            word.split_once('=').filter(|_| word.starts_with('-')).map_or(word.as_str(), |(_, value)| value)
        };
        self.words().iter().map(value).filter(|value| !value.is_empty() && !value.starts_with('-'))
    }

    /// This command as one that runs the command behind its own arguments, if it is one.
    pub(crate) fn wrapper(&self) -> Option<Wrapper<'_, 'a>> {
        match self.role {
            Role::Wrapper { before, rewrites, .. } => Some(Wrapper { arguments: self, before, rewrites }),
            _ => None,
        }
    }

    /// The arguments as an interpreter of scripts reads them, if this is one: its options end at the script.
    pub(crate) fn interpreter(&self) -> Option<Interpreter<'_, 'a>> {
        matches!(self.role, Role::Interpreter { .. }).then_some(Interpreter { items: &self.own })
    }

    /// The arguments as `sed` reads them, if this is it.
    pub(crate) fn sed(&self) -> Option<&[Item<'a>]> {
        matches!(self.role, Role::Sed).then_some(self.own.as_slice())
    }
}

/// A command that runs another one, such as `env` or `xargs`.
pub(crate) struct Wrapper<'r, 'a> {
    arguments: &'r Arguments<'a>,
    before: usize,
    rewrites: &'static [&'static str],
}

impl<'a> Wrapper<'_, 'a> {
    /// Whether an option has it take its command as one string, or run it in another directory.
    pub(crate) fn rewrites(&self) -> bool {
        has_option(&self.arguments.own, self.rewrites)
    }

    /// The first operand, which `env` may take as a variable.
    pub(crate) fn first(&self) -> Option<&'a str> {
        operands(&self.arguments.own).next().map(|(word, _)| word)
    }

    /// The words of the command it runs; empty where it runs none.
    pub(crate) fn inner(&self) -> &'a [String] {
        operands(&self.arguments.own).nth(self.before).map_or(&[], |(_, at)| &self.arguments.argv[at..])
    }
}

/// A program that runs a script.
pub(crate) struct Interpreter<'r, 'a> {
    items: &'r [Item<'a>],
}

impl<'a> Interpreter<'_, 'a> {
    /// Whether it is given a letter with a value.
    pub(crate) fn has_value_of(&self, letter: char) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Option(Name::Letter(l), Some(_)) if *l == letter))
    }

    pub(crate) fn script(&self) -> Option<&'a str> {
        operands(self.items).next().map(|(word, _)| word)
    }
}

fn operands<'a>(items: &[Item<'a>]) -> impl Iterator<Item = (&'a str, usize)> {
    items.iter().filter_map(|item| match item {
        Item::Operand(word, at) => Some((*word, *at)),
        Item::Option(..) => None,
    })
}

fn has_option(items: &[Item<'_>], options: &[impl AsRef<str>]) -> bool {
    items.iter().any(|item| match item {
        Item::Option(name, _) => options.iter().any(|option| name.is(option.as_ref())),
        Item::Operand(..) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrappers_are_stripped_to_what_they_run() {
        let inner = |text: &str| {
            let argv = cp_common::words::split(text).unwrap().argv;
            Arguments::read(&argv).wrapper().map(|wrapper| wrapper.inner().join(" "))
        };
        assert_eq!(inner("env -i git status").unwrap(), "git status");
        assert_eq!(inner("nice -n 5 timeout 3 git log").unwrap(), "timeout 3 git log");
        assert_eq!(inner("timeout -k 1 3 git log").unwrap(), "git log");
        assert_eq!(inner("xargs -n1 -I {} git show {}").unwrap(), "git show {}");
        assert_eq!(inner("busybox rm x").unwrap(), "rm x");
        assert_eq!(inner("flock x git log").unwrap(), "git log");
        assert_eq!(inner("git log"), None);
    }

    #[test]
    fn what_rewrites_the_command_of_a_wrapper_is_seen() {
        let rewrites = |text: &str| {
            let argv = cp_common::words::split(text).unwrap().argv;
            Arguments::read(&argv).wrapper().is_some_and(|wrapper| wrapper.rewrites())
        };
        assert!(rewrites("env -S 'git log'") && rewrites("env --split-str='git log'") && rewrites("flock -c id x"));
        assert!(!rewrites("env -i git log") && !rewrites("flock x -c id"));
    }
}
