//! The steps of a command line, as a string is lowered to them and as a request may give them outright.

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
    /// Steps whose change of directory ends with them: `( … )`.
    Group(Vec<Step>),
}

/// A simple command.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Part {
    pub argv: Vec<Word>,
    /// Variables that only this command gets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<(String, Word)>,
    /// In the order in which they are made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub redirects: Vec<Redirect>,
}

/// Where a stream of a command comes from or goes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Redirect {
    /// 0, 1 or 2.
    pub fd: u8,
    #[serde(flatten)]
    pub target: Target,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
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
