//! The data of the rules: one file for each program or small family, parsed when a rule is needed for one of its
//! programs.
//!
//! The first line of a file lists its programs. The file then has the grammar of their options (`[[program]]`) and the
//! rules (`[[rule]]`). Roles that need no arguments are in `roles.toml`.
//!
//! A family has a [`Program`], with the syntax of its options, for each program that has its own options.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use serde::Deserialize;

use crate::data::parsed;
use crate::glob::name_matches;
use crate::policy::Verdict;

const TEXTS: [&str; 12] = [
    include_str!("data/cargo.toml"),
    include_str!("data/databases.toml"),
    include_str!("data/deploy.toml"),
    include_str!("data/files.toml"),
    include_str!("data/git.toml"),
    include_str!("data/github.toml"),
    include_str!("data/interpreters.toml"),
    include_str!("data/npm.toml"),
    include_str!("data/packages.toml"),
    include_str!("data/python.toml"),
    include_str!("data/ssh.toml"),
    include_str!("data/system.toml"),
];

/// The rules and grammars of some programs.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Family {
    programs: Vec<String>,
    program: Vec<Program>,
    pub rule: Vec<Rule>,
}

/// A rule about arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name on the record.
    pub id: String,
    /// The programs to which it applies; `*` matches any run of characters. Empty: every program of the file.
    #[serde(default)]
    commands: Vec<String>,
    /// It applies to a command line that matches one of these clauses. Empty: any command line.
    #[serde(default)]
    when: Vec<Clause>,
    pub decision: Verdict,
    pub kind: Kind,
    /// It also applies to programs that other programs start.
    #[serde(default = "yes")]
    pub in_children: bool,
    /// A confirmation is valid for one run only.
    #[serde(default = "yes", rename = "final")]
    pub is_final: bool,
    pub reason: String,
    /// The recommended alternative.
    pub hint: Option<String>,
    /// Command lines to which it applies.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests run them"))]
    pub examples: Vec<String>,
    /// Command lines to which it does not apply.
    #[serde(default)]
    #[cfg_attr(not(test), expect(dead_code, reason = "only the tests run them"))]
    pub counterexamples: Vec<String>,
}

/// The effect of a command that must be confirmed or denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Destroys data or history that cannot be restored.
    Destroys,
    /// Changes data that other people see.
    Publishes,
    /// Discards changes that exist nowhere else.
    Discards,
    /// Removes or changes files of the write paths, which a run keeps for undo.
    Removes,
    /// Gains privileges, leaves the sandbox, or changes the machine.
    Escalates,
    /// Changes the configuration of the repository.
    WritesConfig,
}

/// Programs by their role, independent of their arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Roles {
    /// Programs that start the program that their operands name.
    pub wrappers: Vec<String>,
    pub shells: Vec<String>,
    /// Subcommands of any program that publish or delete.
    pub final_commands: Vec<String>,
    pub served: Vec<Served>,
}

/// A command that a tool call replaces.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Served {
    pub commands: Vec<String>,
    /// The command only reads, so the tool call is preferred wherever it is possible.
    #[serde(default)]
    pub reads: bool,
    /// The operation that replaces it.
    pub by: String,
    pub hint: String,
    /// The same for a model, which calls tools by their names.
    pub call: String,
}

const fn yes() -> bool {
    true
}

/// True if a name matches one of some patterns.
pub(super) fn is_named(patterns: &[String], name: &str) -> bool {
    patterns.iter().any(|pattern| name_matches(pattern, name))
}

impl Family {
    /// The grammar of one of its programs.
    pub(super) fn program(&self, name: &str) -> Option<&Program> {
        self.program.iter().find(|program| is_named(&program.names, name))
    }

    /// The rules for one of its programs.
    pub(super) fn rules_of(&self, name: &str) -> impl Iterator<Item = &Rule> {
        self.rule.iter().filter(move |rule| rule.commands.is_empty() || is_named(&rule.commands, name))
    }
}

impl Rule {
    /// True if the rule applies to one of these arguments of its program.
    pub(super) fn holds(&self, is: impl Fn(&Clause) -> bool) -> bool {
        self.when.is_empty() || self.when.iter().any(is)
    }
}

/// The family of a program.
pub(super) fn family_of(name: &str) -> Option<&'static Family> {
    static PROGRAMS: LazyLock<Vec<Vec<String>>> = LazyLock::new(|| {
        TEXTS.iter().map(|text| parsed::<Family>(text.lines().next().unwrap_or_default()).programs).collect()
    });
    PROGRAMS.iter().position(|programs| is_named(programs, name)).map(family)
}

#[cfg(test)]
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    (0..TEXTS.len()).map(family)
}

fn family(at: usize) -> &'static Family {
    static FAMILIES: [OnceLock<Family>; TEXTS.len()] = [const { OnceLock::new() }; TEXTS.len()];
    FAMILIES[at].get_or_init(|| parsed(TEXTS[at]))
}

pub(super) fn roles() -> &'static Roles {
    static ROLES: LazyLock<Roles> = LazyLock::new(|| parsed(include_str!("data/roles.toml")));
    &ROLES
}

/// A test over arguments: all of its members hold.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Clause {
    /// The program's own command is one of these: `push`, or `stash drop`.
    pub(super) command: Vec<String>,
    pub(super) not_command: Vec<String>,
    /// One of these options is given; `--name=FORM` with a value of this form.
    pub(super) options: Vec<String>,
    /// None of these options is given.
    pub(super) no_options: Vec<String>,
    /// An operand after the command has one of these forms.
    pub(super) operands: Vec<String>,
    /// An operand, or the value of an option, has one of these forms, whatever the case of its letters.
    pub(super) words: Vec<String>,
    /// At least this many operands follow the command.
    pub(super) at_least: usize,
    /// An operand follows `--`.
    pub(super) after_dashes: bool,
    /// An operand names an existing file, or is a pattern.
    pub(super) existing: bool,
    /// An operand resolves to this place.
    pub(super) place: Option<Place>,
}

/// A place whose removal destroys more than the files of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Place {
    /// The project's root, the home, or a directory above one of them.
    Root,
    /// `.git`, or a part of it that is not a lock.
    Repository,
}

/// Programs that parse their arguments in the same way.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Program {
    /// Their names; `*` matches any run of characters.
    pub names: Vec<String>,
    /// Their options: `-f` and `--file` take nothing, `-f=` and `--file=` a value, `-i[=]` an attached one.
    pub options: String,
    /// `-name` and `--name` are the same option.
    pub one_dash: bool,
    /// Options end at the first operand, which is a command of the program or a script.
    pub stops: bool,
    /// The program runs its first operand as a script.
    pub script: Option<Script>,
    /// The options of each command; `*` is any other command.
    commands: BTreeMap<String, String>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    Attached,
}

/// The name of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Name<'a> {
    Letter(char),
    /// A name without its dashes.
    Long(&'a str),
}

impl Name<'_> {
    /// True if this is the option that a rule names, with its dashes. A beginning is every option that it may stand for.
    pub(super) fn is(self, option: &str) -> bool {
        match (self, option.strip_prefix("--")) {
            (Self::Long(name), Some(known)) => !name.is_empty() && known.starts_with(name),
            (Self::Long(name), None) => option.strip_prefix('-') == Some(name),
            (Self::Letter(letter), _) => option.strip_prefix('-').is_some_and(|known| known.chars().eq([letter])),
        }
    }
}

impl Takes {
    /// What an option takes; `None` if it is not in a list.
    pub(super) fn of(options: &str, name: Name<'_>) -> Option<Self> {
        let entries = options.split_ascii_whitespace().map(|entry| match entry.split_once(['=', '[']) {
            None => (entry, Self::Nothing),
            Some((option, "")) => (option, Self::Value),
            Some((option, _)) => (option, Self::Attached),
        });
        // The shortest is the option itself, if the name is written in full.
        entries.filter(|(option, _)| name.is(option)).min_by_key(|(option, _)| option.len()).map(|(_, takes)| takes)
    }
}

impl Program {
    /// The options after a command.
    pub(super) fn options_of(&self, command: &str) -> &str {
        let own = self.commands.get(self.canonical(command).unwrap_or(command)).or_else(|| self.commands.get("*"));
        own.map_or("", String::as_str)
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn rule_files_parse_and_first_line_lists_programs() {
        for text in TEXTS {
            let family: Family = toml::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let first: Family = toml::from_str(text.lines().next().unwrap()).unwrap();
            assert!(!first.programs.is_empty() && first.programs == family.programs, "{text}");
            let named = family.program.iter().flat_map(|program| &program.names);
            let named = named.chain(family.rule.iter().flat_map(|rule| &rule.commands));
            for name in named {
                assert!(family.programs.contains(name), "{name} is not in the first line of its file");
            }
        }
        let roles: Roles = toml::from_str(include_str!("data/roles.toml")).unwrap();
        assert!(!roles.wrappers.is_empty() && !roles.shells.is_empty());
    }

    #[test]
    fn rule_files_have_distinct_programs() {
        let mut seen = BTreeMap::new();
        for (at, family) in families().enumerate() {
            for program in &family.programs {
                assert_eq!(seen.insert(program, at), None, "{program}");
            }
        }
    }
}
