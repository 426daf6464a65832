//! What a wrapper runs: the words behind its own arguments.

use super::Arguments;
use super::tables::{Before, Wraps};

/// A command that runs another one, such as `env` or `xargs`.
pub(crate) struct Wrapper<'r, 'a> {
    pub(super) arguments: &'r Arguments<'a>,
    pub(super) wraps: &'r Wraps,
}

/// What a wrapper would run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inner {
    /// Nothing but itself.
    Nothing,
    Words(Vec<String>),
    /// These words, read by the wrapper again.
    Again(Vec<String>),
    /// A command that it builds by rules of its own.
    Built,
    /// A command under variables that were not checked.
    Variables,
    /// A command whose name, or the name of what that wraps, comes from its input.
    FromInput,
}

impl<'a> Wrapper<'_, 'a> {
    /// Whether what it runs gets further words from its input.
    pub(crate) fn feeds(&self) -> bool {
        self.wraps.feeds
    }

    /// What it runs.
    pub(crate) fn inner(&self) -> Inner {
        let arguments = self.arguments;
        if arguments.has_option_before_operands(self.wraps.rewrites) {
            return Inner::Built;
        }
        if arguments.has_option_before_operands(self.wraps.idle) {
            return Inner::Nothing;
        }
        if let Some(text) = arguments.values_of(self.wraps.splits).next() {
            return self.split(text);
        }
        let mut operands: Vec<&'a str> = arguments.operands().map(|operand| operand.word).collect();
        if arguments.name() == "env" {
            if operands.first() == Some(&"-") {
                operands.remove(0);
            }
            if operands.first().is_some_and(|word| word.contains('=')) {
                return Inner::Variables;
            }
        }
        if arguments.name() == "watch"
            && !operands.is_empty()
            && !arguments.has_option_before_operands(&["-x", "--exec"])
        {
            return Inner::Built;
        }
        let before = match self.wraps.before {
            Before::Operands(count) => count,
            Before::Number => usize::from(operands.first().is_some_and(|word| word.parse::<i32>().is_ok())),
        };
        let words = operands.get(before..).unwrap_or_default();
        let Some(command) = words.first() else { return Inner::Nothing };
        // `flock FILE -c STRING`.
        if command.starts_with('-') {
            return Inner::Built;
        }
        // What is read replaces a part of the name too.
        if arguments.values_of(self.wraps.replaces).any(|part| command.contains(part))
            || arguments.has_option_before_operands(self.wraps.replaces) && command.contains("{}")
        {
            return Inner::FromInput;
        }
        Inner::Words(words.iter().map(|word| (*word).to_owned()).collect())
    }

    /// Whether what is read may replace any of these words.
    pub(crate) fn replaces(&self) -> bool {
        self.arguments.has_option_before_operands(self.wraps.replaces)
    }

    /// `env -S 'git status'`: words between blanks. Anything that it would quote, expand or drop is not read.
    fn split(&self, text: &str) -> Inner {
        if text.contains(['\\', '\'', '"', '$', '#']) {
            return Inner::Built;
        }
        let name = self.arguments.command().unwrap_or_default().to_owned();
        let blanks = [' ', '\t', '\n', '\x0b', '\x0c', '\r'];
        let words = text.split(blanks).filter(|word| !word.is_empty()).map(str::to_owned);
        let rest = self.arguments.operands().map(|operand| operand.word.to_owned());
        Inner::Again(std::iter::once(name).chain(words).chain(rest).collect())
    }
}
