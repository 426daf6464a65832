//! The built-in rules: arguments by which a harmless command runs something else, or destroys.
//!
//! Data, a file for each kind of program. Each rule carries command lines it is about and such that it is not; a test and
//! `cp-exec policy test` check them all.

mod build;
mod escapes;
mod files;
mod git;
mod interpreters;
mod machines;

use cp_common::words;

use super::finding::{Finding, Risk};
use crate::arguments::{Arguments, Item};
use crate::glob::name_matches;
use crate::policy::Verdict;

/// What a rule looks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    /// The command itself.
    Command,
    /// One of these options.
    Options(&'static [&'static str]),
    /// One of these options before the first operand.
    Before(&'static [&'static str]),
    /// One of these as the program's own command.
    First(&'static [&'static str]),
    /// One of these as the program's own command, and one of these options.
    FirstWith(&'static [&'static str], &'static [&'static str]),
    /// A command, and one of these within it.
    Nested(&'static str, &'static [&'static str]),
    /// A command that the program does not have.
    NotACommand,
    /// A command that is none of these.
    Other(&'static [&'static str]),
    /// An operand, or the value of an option, of one of these forms.
    Words(&'static [&'static str]),
    /// An operand behind the program's own command of one of these forms.
    Operands(&'static [&'static str]),
    /// At least so many operands behind the program's own command.
    Many(usize),
    /// An operand behind `--`.
    Behind,
    /// One of these options with a value of one of these forms.
    Value(&'static [&'static str], &'static [&'static str]),
    /// A word that begins so.
    Begins(&'static [&'static str]),
    Any(&'static [Test]),
    All(&'static [Test]),
    Not(&'static Test),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct BuiltIn {
    /// Its name on the record.
    pub id: &'static str,
    /// The commands it is about; `*` stands for any run of characters.
    pub commands: &'static [&'static str],
    pub test: Test,
    pub verdict: Verdict,
    pub reason: &'static str,
    /// Command lines it is about.
    pub examples: &'static [&'static str],
    /// Command lines it is not about.
    pub counterexamples: &'static [&'static str],
}

impl Test {
    fn holds(&self, arguments: &Arguments<'_>) -> bool {
        let of_form = |word: &str, forms: &[&str]| forms.iter().any(|form| name_matches(form, word));
        match self {
            Self::Command => true,
            Self::Options(options) => arguments.has_option(options),
            Self::Before(options) => arguments.has_option_before_operands(options),
            Self::First(words) => arguments.is_command(words),
            Self::FirstWith(words, options) => arguments.is_command(words) && arguments.has_option(options),
            Self::Nested(first, second) => arguments.is_nested_command(first, second),
            Self::NotACommand => arguments.unknown_command().is_some(),
            Self::Other(known) => arguments.operands().next().is_some() && !arguments.is_command(known),
            Self::Words(forms) => arguments.items().iter().any(|item| {
                let word = match item {
                    Item::Option(_, value) => *value,
                    Item::Operand(operand) => Some(operand.word),
                };
                word.is_some_and(|word| of_form(word, forms))
            }),
            Self::Operands(forms) => arguments.operands_of_command().any(|operand| of_form(operand.word, forms)),
            Self::Many(count) => arguments.operands_of_command().count() >= *count,
            Self::Behind => arguments.operands_of_command().any(|operand| operand.behind),
            Self::Value(options, forms) => arguments.values_of(options).any(|value| of_form(value, forms)),
            Self::Begins(starts) => {
                arguments.words().iter().any(|word| starts.iter().any(|start| word.starts_with(start)))
            }
            Self::Any(tests) => tests.iter().any(|test| test.holds(arguments)),
            Self::All(tests) => tests.iter().all(|test| test.holds(arguments)),
            Self::Not(test) => !test.holds(arguments),
        }
    }
}

impl BuiltIn {
    pub(super) fn names(&self, name: &str) -> bool {
        self.commands.iter().any(|command| name_matches(command, name))
    }

    pub(super) fn is_about(&self, arguments: &Arguments<'_>) -> bool {
        self.names(arguments.name()) && self.test.holds(arguments)
    }

    /// An example that this is not about, or a counterexample that it is about.
    fn wrong_example(&self) -> Option<&'static str> {
        let about = |line: &str| words::split(line).is_ok_and(|words| self.is_about(&Arguments::read(&words.argv)));
        let missed = self.examples.iter().find(|line| !about(line));
        missed.or_else(|| self.counterexamples.iter().find(|line| about(line))).copied()
    }
}

/// What the table says of a command.
pub(super) fn in_table(arguments: &Arguments<'_>) -> Finding {
    let hits = rules().filter(|rule| rule.is_about(arguments)).map(|rule| Finding {
        verdict: rule.verdict,
        rule: rule.id.to_owned(),
        reason: format!("`{}`: {}", arguments.name(), rule.reason),
        risk: Risk::High,
        is_final: rule.verdict == Verdict::Confirm,
    });
    hits.fold(Finding::allowed(Risk::Low), Finding::or)
}

/// Every built-in rule.
pub(crate) fn rules() -> impl Iterator<Item = &'static BuiltIn> {
    [git::RULES, files::RULES, machines::RULES, build::RULES, interpreters::RULES, escapes::RULES].into_iter().flatten()
}

/// The first rule that is wrong about one of its own command lines, with that line.
pub(crate) fn wrong_example() -> Option<(&'static str, &'static str)> {
    rules().find_map(|rule| Some((rule.id, rule.wrong_example()?)))
}

const fn rule(
    id: &'static str,
    commands: &'static [&'static str],
    test: Test,
    verdict: Verdict,
    reason: &'static str,
    examples: &'static [&'static str],
    counterexamples: &'static [&'static str],
) -> BuiltIn {
    BuiltIn { id, commands, test, verdict, reason, examples, counterexamples }
}
