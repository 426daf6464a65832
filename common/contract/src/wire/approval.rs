//! `approval`: a request for approval, with everything that the answer is bound to.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Error, Receipt};

/// A request for approval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-untrusted" = ["shown"])))]
pub struct Approval {
    /// Its id: `APR-` and 16 hex digits of the hash of what it binds.
    pub id: String,
    /// Who asks.
    pub asked_by: AskedBy,
    /// What would be done.
    pub action: Action,
    /// Who may answer.
    pub level: Level,
    /// The scopes that a grant can have.
    pub scopes: Vec<Scope>,
    /// The text for whoever answers.
    pub shown: Shown,
    /// What the answer is bound to.
    pub binds: Binds,
    /// When it was asked first.
    pub asked_at: String,
    /// When it is no longer listed.
    pub expires_at: String,
    /// The command line that answers it or goes on after the answer.
    pub resume: Vec<String>,
}

/// Who asks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AskedBy {
    /// The program.
    pub program: String,
    /// The agent that it works for.
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

/// What would be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Action {
    /// A command runs.
    Run,
    /// A file is replaced.
    Write,
    /// A part of a file is replaced.
    Edit,
    /// Something is published.
    Publish,
    /// A tool is called.
    Tool,
    /// A tool of a server is called.
    Server,
}

/// Who may answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Level {
    /// The approver of the program that asks, or a person.
    Agent,
    /// A person at a terminal, or the approver that the policy names.
    Owner,
}

/// The scope of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Scope {
    /// For one start.
    Once,
    /// For whatever the same rule asks about the same program, until the run is over.
    Run,
}

/// The text for whoever answers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Shown {
    /// The words of a command.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// A plan as one line, in approvals of an older form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// Commands of the same line that ran already, at most the last 20.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ran: Vec<String>,
    /// The variables that the request sets, without their values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<String>,
    /// The name of a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The arguments of the tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// The file that would change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How it would change, as a unified difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// The working directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// How much harm it can do: low, medium or high.
    pub risk: String,
    /// The rule that asks.
    pub rule: String,
    /// Why.
    pub why: String,
}

/// What an answer is bound to: hashes, each `sha256:` and 64 hex digits. Null where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Binds {
    /// The exact request, with everything that decides how it is carried out.
    pub request: String,
    /// The file that would be executed.
    pub program: Option<String>,
    /// The file that would change, as it is now.
    pub target: Option<String>,
    /// The policy.
    pub policy: Option<String>,
}

/// A grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// Who gave it: `person`, or the name of a program.
    pub by: String,
    /// By which way it came.
    pub how: How,
    /// How far it goes.
    pub scope: Scope,
    /// Where it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<Receipt>,
}

/// The way that a grant came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// A person typed it at a terminal.
    Terminal,
    /// The approver that the policy names.
    OwnerApprover,
    /// The approver of the run.
    Approver,
    /// A command line that resumes the run.
    Resume,
}

impl Level {
    /// True if a grant that came this way counts.
    #[must_use]
    pub fn takes(self, how: How) -> bool {
        match how {
            How::Terminal | How::OwnerApprover => true,
            How::Approver | How::Resume => self == Self::Agent,
        }
    }
}

impl Approval {
    /// The approval that an error waits for, if it does.
    pub fn of(error: &Error) -> Option<Self> {
        serde_json::from_value(error.details().remove("approval")?).ok()
    }

    /// What it is about, in one line: the command, the file, or the tool with its arguments.
    pub fn subject(&self) -> String {
        let Shown { argv, line, tool, input, path, .. } = &self.shown;
        if let Some(line) = line {
            return line.clone();
        }
        match (path, tool) {
            (Some(path), _) => format!("write {}", quoted(path)),
            (None, Some(tool)) => {
                format!("{tool} {}", input.as_ref().map(Value::to_string).unwrap_or_default()).trim_end().to_owned()
            }
            (None, None) => argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "),
        }
    }
}

/// A word as a shell reads it back.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = !word.is_empty() && word.bytes().all(|c| c.is_ascii_alphanumeric() || b"/._-+,:@=%".contains(&c));
    if plain { word.to_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
}
