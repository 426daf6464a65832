//! Why a string is not lowered: the rule, the place, and what to write instead.

use cp_common::{Code, Error};

/// What a command line may not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Rule {
    Empty,
    UnterminatedQuote,
    TrailingBackslash,
    NulByte,
    ControlChar,
    HereDocument,
    Syntax,
    TooLong,
    CommandSubstitution,
    ProcessSubstitution,
    Arithmetic,
    Variable,
    Uncertain,
    Assignment,
    Background,
    Compound,
    Function,
    Builtin,
    Redirection,
    Group,
    Brace,
    Pattern,
    Tilde,
    Escape,
}

impl Rule {
    /// The name on the wire.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::UnterminatedQuote => "unterminated_quote",
            Self::TrailingBackslash => "trailing_backslash",
            Self::NulByte => "nul_byte",
            Self::ControlChar => "control_char",
            Self::HereDocument => "here_document",
            Self::Syntax => "syntax",
            Self::TooLong => "too_long",
            Self::CommandSubstitution => "command_substitution",
            Self::ProcessSubstitution => "process_substitution",
            Self::Arithmetic => "arithmetic",
            Self::Variable => "variable",
            Self::Uncertain => "uncertain_variable",
            Self::Assignment => "assignment",
            Self::Background => "background",
            Self::Compound => "compound_command",
            Self::Function => "function",
            Self::Builtin => "builtin",
            Self::Redirection => "redirection",
            Self::Group => "group",
            Self::Brace => "brace_expansion",
            Self::Pattern => "pattern",
            Self::Tilde => "tilde",
            Self::Escape => "escape",
        }
    }

    /// What to write instead, where the place itself does not say it better.
    const fn hint(self) -> &'static str {
        match self {
            Self::Empty => "write the command and its arguments",
            Self::UnterminatedQuote => "close the quote",
            Self::TrailingBackslash => "double it for a literal backslash",
            Self::NulByte => "leave the byte out",
            Self::ControlChar => "leave the character out, or write it as an escape in $'…'",
            Self::HereDocument => "end the text with a line that holds only the word after `<<`",
            Self::Syntax => "see COMMAND LINES in cp-exec(1) for what is understood",
            Self::TooLong => "send it in several requests",
            Self::CommandSubstitution => "run that command first, and write its output; or quote it in single quotes",
            Self::ProcessSubstitution => "write the output to a file first, and name the file",
            Self::Arithmetic => "write the number itself",
            Self::Variable => "write the value itself, or '$' in single quotes",
            Self::Uncertain => "assign it first, and join the command with &&; or write the value itself",
            Self::Assignment => "write NAME=value with a plain value",
            Self::Background => "leave the `&` out: each request has its own time limit, and others may run beside it",
            Self::Compound => "write the commands out one by one, or put a script into a file and run that",
            Self::Function => "write the commands out, or put a script into a file and run that",
            Self::Builtin => "leave it out, or put a script into a file and run that",
            Self::Redirection => "redirect 0 with `<`, and 1 or 2 with `>`, `>>`, `2>&1` or `&>`",
            Self::Group => "give each command in it its own redirection or pipe",
            Self::Brace => "write the words out, or quote the braces",
            Self::Pattern => "write the name, or quote the pattern",
            Self::Tilde => "write `~/…` or the whole path, or quote the `~`",
            Self::Escape => "write the character itself",
        }
    }

    /// Whether the string is broken rather than asking for more of a shell than there is.
    const fn is_malformed(self) -> bool {
        matches!(
            self,
            Self::Empty
                | Self::UnterminatedQuote
                | Self::TrailingBackslash
                | Self::NulByte
                | Self::ControlChar
                | Self::HereDocument
                | Self::Syntax
                | Self::TooLong
        )
    }
}

/// Why a string is not lowered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub rule: Rule,
    /// Where, in bytes from the start.
    pub offset: usize,
    /// Line and column in characters, both from 1, where there is more than one line.
    pub line: Option<(usize, usize)>,
    pub reason: String,
    pub hint: &'static str,
    /// The names of the commands before that place, as far as they are known.
    pub understood: Vec<String>,
}

impl Refusal {
    pub(super) fn new(rule: Rule, offset: usize, reason: impl Into<String>) -> Self {
        Self { rule, offset, line: None, reason: reason.into(), hint: rule.hint(), understood: Vec::new() }
    }

    pub(super) fn hint(mut self, hint: &'static str) -> Self {
        self.hint = hint;
        self
    }

    /// The refusal with its place in a text of several lines.
    pub(super) fn within(mut self, text: &str) -> Self {
        if text.trim_end_matches('\n').contains('\n') {
            let before = &text[..self.offset];
            let start = before.rfind('\n').map_or(0, |at| at + 1);
            self.line = Some((before.matches('\n').count() + 1, before[start..].chars().count() + 1));
        }
        self
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let code = if refusal.rule.is_malformed() { Code::Validation } else { Code::Forbidden };
        let place = match refusal.line {
            Some((line, column)) => format!("line {line}, column {column}"),
            None => format!("byte {}", refusal.offset),
        };
        let mut error = Self::new(code, format!("{place}: {}", refusal.reason))
            .with("rule", refusal.rule.name())
            .with("offset", refusal.offset)
            .with("reason", refusal.reason)
            .with("understood", refusal.understood)
            .hint(refusal.hint);
        if let Some((line, column)) = refusal.line {
            error = error.with("line", line).with("column", column);
        }
        error
    }
}
