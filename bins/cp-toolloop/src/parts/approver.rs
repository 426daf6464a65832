//! Which calls require approval, and the program that gives it in a person's place.

use std::time::Instant;

use cp_common::program::approval::{self, Verdict};
use cp_common::wire::Approval;
use cp_common::{Context, Error, Result, coprocess};
use cp_servers::matches;
use serde::Deserialize;

use crate::tools::tool::{Origin, Tool};

/// Which calls require approval, and the program that gives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approver {
    /// The program, with its arguments; none: a person.
    argv: Option<Vec<String>>,
    policy: ToolsPolicy,
}

/// `[tools]` of the policy, as far as this program reads it. cp-exec reads the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ToolsPolicy {
    /// The tools that require approval; `*` stands for any run of characters.
    approve: Vec<String>,
}

impl Approver {
    /// The approver of a command line, with the policy of this home.
    pub(crate) fn new(command: Option<&str>, context: &Context) -> Result<Self> {
        let argv = command.map(coprocess::command_line).transpose().map_err(Error::fatal)?;
        Ok(Self { argv, policy: cp_policy::table(&context.home, "tools")? })
    }

    /// The rule by which each call of a tool requires approval, and why; none where it does not. What cp-exec carries out and asks about
    /// itself is not asked about twice.
    pub(crate) fn reason(&self, tool: &Tool) -> Option<(&'static str, String)> {
        if self.policy.approve.iter().any(|pattern| matches(pattern, &tool.name)) {
            let why = || format!("tools.approve of the policy lists `{}`", tool.name);
            return (!matches!(tool.origin, Origin::Executable { .. })).then(|| ("tools.approve", why()));
        }
        let why = || format!("{} requires approval of each call", tool.name);
        tool.hints.approve.then(|| ("tool.approve", why()))
    }

    /// The program's answer, waited for until then at most. `None`: there is no program.
    pub(crate) fn ask(&self, approval: &Approval, until: Option<Instant>) -> Result<Option<Verdict>> {
        self.argv.as_ref().map(|argv| approval::ask(argv, approval, until)).transpose()
    }
}
