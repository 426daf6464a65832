//! A ruling: a command that may run, with everything that its run needs.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::program::approval::Spent;

use super::program::Pinned;
use super::watched::Watched;
use crate::policy::Confirm;
use crate::rules::Risk;
use crate::sandbox::plan::Plan;

/// A command that may run now, or after confirmation.
pub(crate) struct Ruling {
    /// The plan for the sandbox helper.
    pub plan: Plan,
    /// The arguments of the request.
    pub argv: Vec<String>,
    /// The line that its shell runs, if it is a command line.
    pub line: Option<String>,
    pub pinned: Pinned,
    /// The names of the variables that the request sets.
    pub variables: Vec<String>,
    pub timeout: Duration,
    /// The rule that decided.
    pub rule: String,
    /// The reason why confirmation is required; `None` if the command is allowed.
    pub confirm: Option<String>,
    pub level: Confirm,
    /// The approval that was spent for this run.
    pub approved: Option<Spent>,
    /// The id of the model's tool call that requests the command.
    pub call: Option<String>,
    /// True if the command deletes or publishes: an approval is valid for one run only.
    pub is_final: bool,
    /// The existing file that the command destroys.
    pub target: Option<PathBuf>,
    /// The hash of the token that was spent for this run.
    pub confirmed: Option<String>,
    /// The hash of the standard input, if the request contains it.
    pub stdin: Option<String>,
    pub risk: Risk,
    /// Remarks to report that are not a reason to refuse.
    pub notices: Vec<String>,
    /// The guarded paths in the trees that the run may write.
    pub watched: Watched,
}
