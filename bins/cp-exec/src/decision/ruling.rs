//! A ruling: a command that may run, with everything that its run needs.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::program::approval::Spent;

use super::program::Pinned;
use super::watched::Watched;
use crate::policy::Confirm;
use crate::rules::Risk;
use crate::sandbox::plan::Plan;

/// A command that may run: now, or when it is confirmed.
pub(crate) struct Ruling {
    /// What the helper gets.
    pub plan: Plan,
    /// The words the command was asked for with.
    pub argv: Vec<String>,
    /// The line that its shell runs, where it is one.
    pub line: Option<String>,
    pub pinned: Pinned,
    /// The names of the variables that the request sets.
    pub variables: Vec<String>,
    pub timeout: Duration,
    /// The rule that decided.
    pub rule: String,
    /// What to confirm, and why, where it is not simply allowed.
    pub confirm: Option<String>,
    pub level: Confirm,
    /// The yes that was spent for it.
    pub approved: Option<Spent>,
    /// The tool call of a model that asks for it.
    pub call: Option<String>,
    /// Whether it deletes or publishes: no yes to it is for more than once.
    pub is_final: bool,
    /// The existing file that it destroys.
    pub target: Option<PathBuf>,
    /// The hash of the token that was spent for it.
    pub confirmed: Option<String>,
    /// The hash of what it reads, where that came with the request.
    pub stdin: Option<String>,
    pub risk: Risk,
    /// Worth reporting, though not a reason to refuse.
    pub notices: Vec<String>,
    /// What is guarded in what it may write.
    pub watched: Watched,
}
