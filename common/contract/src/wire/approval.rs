//! `approval`: a request for approval, with the hashes that bind the answer to it.

use std::io::IsTerminal as _;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Receipt};

/// A request for approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["shown"])))]
pub struct Approval {
    /// Id: `APR-` and 16 hex digits of the hash of the action, the level, `binds`, and the run and call of the
    /// requester.
    pub id: String,
    /// The requester.
    pub asked_by: AskedBy,
    /// The action to approve.
    pub action: Action,
    /// The lowest authority that may answer.
    pub level: Level,
    /// The scopes that a grant can have.
    pub scopes: Vec<Scope>,
    /// The text shown to the approver.
    pub shown: Shown,
    /// The hashes that bind an answer to this request.
    pub binds: Binds,
    /// Time of the first request.
    pub asked_at: String,
}

/// The requester.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskedBy {
    /// The program.
    pub program: String,
    /// The agent that the program works for.
    pub agent: String,
    /// The run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// The session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// The tool call of a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
}

/// The action to approve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Action {
    /// Run a command.
    Run,
    /// Call a tool.
    Tool,
    /// Call a tool of an MCP server.
    Server,
}

/// The lowest authority that may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Level {
    /// The approver of the requesting program, or a person.
    Agent,
    /// A person at a terminal, or the approver that the policy names.
    Owner,
}

/// The scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Scope {
    /// One start.
    Once,
    /// Every request of the same rule for the same program, until the run ends.
    Run,
}

/// The text shown to the approver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shown {
    /// The words of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Commands of the same line that already ran, at most the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<String>,
    /// The names of the variables that the request sets, without values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The name of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The change of a description, as a unified diff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Possible harm: low, medium or high.
    pub risk: String,
    /// The rule that requires approval.
    pub rule: String,
    /// The reason.
    pub why: String,
}

/// The hashes that bind an answer, each `sha256:` and 64 hex digits; null if not applicable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Binds {
    /// The exact request, including everything that determines how it is carried out.
    pub request: String,
    /// The file that would be executed.
    pub program: Option<String>,
    /// The policy.
    pub policy: Option<String>,
}

/// A grant of an approval.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The grantor: `terminal`, `approver`, `caller` (a command line without a terminal) or `host` (the client of
    /// another agent).
    pub by: String,
    /// The name of the host, or the path of the approver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The channel by which the grant arrived.
    pub how: How,
    /// The scope of the grant.
    pub scope: Scope,
    /// The receipt of the ledger entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}

/// The channel by which a grant arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A person typed it at a terminal.
    Terminal,
    /// The approver of the run answered.
    Approver,
    /// A command line resumed the run.
    Resume,
}

impl Grant {
    /// A grant that arrived by this channel.
    #[must_use]
    pub fn new(how: How, scope: Scope) -> Self {
        Self { by: how.grantor().to_owned(), through: None, how, scope, receipt: None }
    }

    /// A grant by the client of another agent, or by an approver, with this name.
    #[must_use]
    pub fn by(by: &str, through: &str, how: How) -> Self {
        Self { by: by.to_owned(), through: Some(through.to_owned()), ..Self::new(how, Scope::Once) }
    }
}

impl How {
    /// The grantor of an answer by this channel to this process. A command line that resumes a run has a person behind
    /// it only if its standard input is a terminal.
    #[must_use]
    pub fn grantor(self) -> &'static str {
        match self {
            Self::Terminal => "terminal",
            Self::Resume if std::io::stdin().is_terminal() => "terminal",
            Self::Resume => "caller",
            Self::Approver => "approver",
        }
    }
}

impl Level {
    /// True if a grant by this channel is sufficient.
    #[must_use]
    pub fn takes(self, how: How) -> bool {
        match how {
            How::Terminal => true,
            How::Approver | How::Resume => self == Self::Agent,
        }
    }
}

impl Approval {
    /// The run and the call that an answer is bound to; none for a request outside of a run.
    #[must_use]
    pub fn run_and_call(&self) -> Option<(&str, Option<&str>)> {
        Some((self.asked_by.run.as_deref()?, self.asked_by.call_id.as_deref()))
    }

    /// Returns the approval in an error's details, if there is one.
    pub fn of(error: &Error) -> Option<Self> {
        serde_json::from_value(error.details().remove("approval")?).ok()
    }

    /// Returns the subject in one line: the command, the file, or the tool with its arguments.
    pub fn subject(&self) -> String {
        let Shown { argv, tool, input, .. } = &self.shown;
        match tool {
            Some(tool) => {
                format!("{tool} {}", input.as_ref().map(Value::to_string).unwrap_or_default()).trim_end().to_owned()
            }
            None => argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        }
    }
}

/// Quotes a word for a POSIX shell, if necessary.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+,:@=%".contains(&c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
