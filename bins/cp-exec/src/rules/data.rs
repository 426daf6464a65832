//! The data of the rules, in `rules.toml`: roles of programs, the grammar of options (`[[program]]`), and the rules
//! (`[[rule]]`).

use std::sync::LazyLock;

use serde::Deserialize;

use crate::data::parsed;
use crate::policy::Verdict;
use cp_common::glob::name_matches;

/// Everything in `rules.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Data {
    /// Programs that start the program that their operands name.
    pub wrappers: Vec<String>,
    pub shells: Vec<String>,
    /// Subcommands of any program that publish or delete.
    pub final_commands: Vec<String>,
    pub served: Vec<Served>,
    program: Vec<Program>,
    pub rule: Vec<Rule>,
}

pub(super) static DATA: LazyLock<Data> = LazyLock::new(|| parsed(include_str!("rules.toml")));

/// A rule about arguments.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Rule {
    /// Its name on the record.
    pub id: String,
    /// The programs to which it applies; `*` matches any run of characters.
    pub commands: Vec<String>,
    /// It applies to a command line that matches one of these clauses. Empty: any command line.
    #[serde(default)]
    when: Vec<Clause>,
    pub decision: Verdict,
    pub kind: Kind,
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
    /// It matters only if the command itself does it, not if another program starts it: discards changes, writes the
    /// configuration of the repository, or opens a shell on another machine.
    Direct,
    /// Removes or changes files of the write paths, which a run keeps for undo.
    Removes,
    /// Gains privileges, leaves the sandbox, or changes the machine.
    Escalates,
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

/// The rules for a program.
pub(super) fn rules_of(name: &str) -> impl Iterator<Item = &'static Rule> {
    DATA.rule.iter().filter(move |rule| is_named(&rule.commands, name))
}

/// The grammar of a program.
pub(super) fn program(name: &str) -> Option<&'static Program> {
    DATA.program.iter().find(|program| is_named(&program.names, name))
}

impl Rule {
    /// True if the rule applies to one of these arguments of its program.
    pub(super) fn holds(&self, is: impl Fn(&Clause) -> bool) -> bool {
        self.when.is_empty() || self.when.iter().any(is)
    }
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
    /// `.git`, a part of it that is not a lock, or a directory with one.
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
    /// The options that replace the script of a program that runs its first operand as one.
    pub instead_of_script: Option<Vec<String>>,
    /// The options after the first operand, if that is a command of the program.
    pub command_options: String,
}

impl Program {
    /// True if its own options end at the first operand, which is a command of the program or a script.
    pub(super) fn stops(&self) -> bool {
        self.instead_of_script.is_some() || !self.command_options.is_empty()
    }
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
