//! The syntax of the options of one program. The data of a family contains a [`Program`] for each program that has
//! its own options.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Programs that parse their arguments in the same way.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Program {
    /// Their names; `*` matches any run of characters.
    pub names: Vec<String>,
    /// Options with one letter, as in getopt(3): `f:` takes a value, `i::` an attached one.
    letters: String,
    /// Long options without their dashes: `file=` takes a value, `in-place[=]` an attached one.
    long: String,
    /// `-name` and `--name` are the same option.
    pub one_dash: bool,
    /// Options end at the first operand, which is a command of the program or a script.
    pub stops: bool,
    /// The program runs its first operand as a script.
    pub script: Option<Script>,
    /// Letters and long options of each command; `*` is any other command.
    commands: BTreeMap<String, [String; 2]>,
    /// Other names of commands.
    aliases: BTreeMap<String, String>,
    /// The commands of a program that accepts their unambiguous beginnings.
    abbreviates: Vec<String>,
    /// The letter of the option that changes the working directory.
    pub directory: Option<char>,
}

/// The ways in which an interpreter gets its script.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Script {
    /// Options whose value is the script.
    pub file: Vec<String>,
    /// Options that replace the script.
    pub instead: Vec<String>,
}

/// Letters and long options.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Grammar<'a> {
    letters: &'a str,
    long: &'a str,
    pub one_dash: bool,
    pub stops: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    Attached,
}

impl Program {
    pub(super) fn grammar(&self) -> Grammar<'_> {
        Grammar { letters: &self.letters, long: &self.long, one_dash: self.one_dash, stops: self.stops }
    }

    /// The grammar of the words after a command; `None` if it is the same as before the command.
    pub(super) fn grammar_of(&self, command: &str) -> Option<Grammar<'_>> {
        let canonical = self.canonical(command).unwrap_or(command);
        let own = self.commands.get(canonical).or_else(|| self.commands.get("*"));
        match own {
            Some([letters, long]) => Some(Grammar { letters, long, stops: false, ..self.grammar() }),
            None => self.stops.then_some(Grammar { one_dash: self.one_dash, ..Grammar::default() }),
        }
    }

    /// The command that an alias or an unambiguous beginning stands for.
    pub(super) fn canonical<'a>(&'a self, word: &'a str) -> Option<&'a str> {
        if let Some(command) = self.aliases.get(word) {
            return Some(command);
        }
        if self.abbreviates.iter().any(|command| command == word) {
            return None;
        }
        self.abbreviates.iter().find(|command| command.starts_with(word)).map(String::as_str)
    }
}

impl Grammar<'_> {
    /// The kind of value of a letter; `None` if the letter is unknown.
    pub(super) fn letter(&self, letter: char) -> Option<Takes> {
        let at = self.letters.find(letter).filter(|_| letter != ':')?;
        let rest = &self.letters[at + letter.len_utf8()..];
        Some(match rest {
            _ if rest.starts_with("::") => Takes::Attached,
            _ if rest.starts_with(':') => Takes::Value,
            _ => Takes::Nothing,
        })
    }

    /// The value of a long option, and whether its name is written in full; `None` if it is unknown, or an abbreviation of options that
    /// differ.
    pub(super) fn long(&self, name: &str) -> Option<(Takes, bool)> {
        let known = self.long.split_ascii_whitespace().map(|entry| {
            entry.strip_suffix("[=]").map_or_else(
                || entry.strip_suffix('=').map_or((entry, Takes::Nothing), |known| (known, Takes::Value)),
                |known| (known, Takes::Attached),
            )
        });
        let mut found = None;
        for (known, takes) in known {
            if known == name {
                return Some((takes, true));
            }
            if known.starts_with(name) {
                if found.is_some_and(|before| before != takes) {
                    found = None;
                    break;
                }
                found = Some(takes);
            }
        }
        found.map(|takes| (takes, false))
    }
}
