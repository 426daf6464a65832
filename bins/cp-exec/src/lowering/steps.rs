//! The steps of a command line, as a string is lowered to them and as a request may give them outright.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One step, and when it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub join: Join,
    /// Whether its status is turned round: `! command`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub negated: bool,
    #[serde(flatten)]
    pub action: Action,
}

/// When a step runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Join {
    /// It is the first.
    Start,
    /// The status so far is zero: `&&`.
    And,
    /// The status so far is not zero: `||`.
    Or,
    /// In any case: `;` or a new line.
    Then,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Action {
    /// Commands at once, the output of one the input of the next.
    Pipeline(Vec<Part>),
    /// The steps after it run in this directory: `cd DIR`.
    Cd(Word),
    /// Steps whose change of directory, and whose `exit`, ends with them: `( … )`.
    Group(Vec<Step>),
    /// Steps that only share a place in the list: `{ …; }`.
    Block(Vec<Step>),
    /// The end of the group, or of all, with this status: `exit N`.
    Exit(Word),
}

/// A simple command. Without words it is alone in its pipeline, starts nothing and succeeds once its redirections are made: `: > file`, `A=1`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub argv: Vec<Word>,
    /// Variables that only this command gets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, Word>,
    /// In the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<Redirect>,
}

/// Where a stream of a command comes from or goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Members", into = "Members")]
pub(crate) struct Redirect {
    /// 0 for what is read, 1 or 2 for what is written.
    pub fd: u8,
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// A file that is read: `<`.
    Read { path: Word },
    /// A file that is made, or emptied first: `>`.
    Write { path: Word },
    /// A file that is made, or added to: `>>`.
    Append { path: Word },
    /// Where another stream goes at this moment: `2>&1`.
    Dup { to: u8 },
    /// A text that came with the command: a here-document or here-string.
    Text { text: Word },
}

#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Operation {
    Read,
    Write,
    Append,
    Dup,
    Text,
}

/// A redirection on the wire.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Members {
    fd: u8,
    op: Operation,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<Word>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Word>,
}

impl TryFrom<Members> for Redirect {
    type Error = &'static str;

    fn try_from(members: Members) -> Result<Self, Self::Error> {
        let Members { fd, op, path, to, text } = members;
        let target = match (op, path, to, text) {
            (Operation::Read, Some(path), None, None) => Target::Read { path },
            (Operation::Write, Some(path), None, None) => Target::Write { path },
            (Operation::Append, Some(path), None, None) => Target::Append { path },
            (Operation::Dup, None, Some(to), None) => Target::Dup { to },
            (Operation::Text, None, None, Some(text)) => Target::Text { text },
            _ => return Err("a redirection has `path`, or for `dup` `to`, or for `text` `text`"),
        };
        Ok(Self { fd, target })
    }
}

impl From<Redirect> for Members {
    fn from(Redirect { fd, target }: Redirect) -> Self {
        let (op, path, to, text) = match target {
            Target::Read { path } => (Operation::Read, Some(path), None, None),
            Target::Write { path } => (Operation::Write, Some(path), None, None),
            Target::Append { path } => (Operation::Append, Some(path), None, None),
            Target::Dup { to } => (Operation::Dup, None, Some(to), None),
            Target::Text { text } => (Operation::Text, None, None, Some(text)),
        };
        Self { fd, op, path, to, text }
    }
}

/// A word of a command: text, unless something in it is known only when its step runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Word {
    Text(String),
    Pieces(Vec<Piece>),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Piece {
    Text(String),
    /// An unquoted pattern: `*`, `?` or `[…]`.
    Glob(String),
    /// The status of the step before: `$?`.
    Status,
}

impl Word {
    /// The text, where nothing is left to find out.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Pieces(_) => None,
        }
    }

    /// Whether an unquoted pattern stands in it.
    pub(crate) fn has_pattern(&self) -> bool {
        matches!(self, Self::Pieces(pieces) if pieces.iter().any(|piece| matches!(piece, Piece::Glob(_))))
    }

    /// The text once the status of the step before is known; patterns as they were typed.
    pub(crate) fn with_status(&self, status: u8) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Pieces(pieces) => pieces
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Glob(text) => text.clone(),
                    Piece::Status => status.to_string(),
                })
                .collect(),
        }
    }
}
