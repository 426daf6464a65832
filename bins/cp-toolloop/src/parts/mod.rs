//! The coprocesses of a run: the model, the executors and the approver.

pub(crate) mod part;

use std::time::Instant;

use cp_common::coprocess;
use cp_common::glob::name_matches;
use cp_common::program::approval::{self, Verdict};
use cp_common::wire::{Approval, Grant, How};
use cp_common::{Context, Error, Result};
use serde::Deserialize;

use self::part::{Model, Part};
use crate::state::plan::{Limits, Plan};
use crate::tools::tool::{Origin, Tool};

/// The coprocesses of a run. Each is started when it is first needed.
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) approver: Approver,
    tools: Part,
    servers: Part,
}

impl Parts {
    /// The coprocesses of a run, with the servers that were started to list their tools.
    pub(crate) fn new(plan: &Plan, limits: &Limits, approver: Approver, servers: Option<Part>) -> Self {
        let tools = Part::of_tools(&plan.directories, plan.read_only);
        let servers = servers.unwrap_or_else(|| Part::of_servers(&plan.mcp));
        Self { model: Model::new(plan, limits), approver, tools, servers }
    }

    /// The executor of a tool.
    pub(crate) fn executor(&mut self, origin: &Origin) -> &mut Part {
        match origin {
            Origin::Mcp { .. } => &mut self.servers,
            Origin::Builtin | Origin::Executable(_) => &mut self.tools,
        }
    }

    /// Ends the input of the model, and of the executors if they are not at work, and waits until they exit.
    pub(crate) fn rest(&mut self, executors: bool, context: &Context) {
        let mut left = vec![self.model.part.finish()];
        if executors {
            left.extend([self.tools.finish(), self.servers.finish()]);
        }
        for error in left.into_iter().filter_map(Result::err) {
            context.warn(error.message());
        }
    }
}

/// Which calls require approval, and the program that gives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approver {
    /// The approver, with its arguments.
    argv: Option<Vec<String>>,
    policy: ToolsPolicy,
}

/// The part of `[tools]` in the policy that this program reads; cp-exec reads the rest.
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

    /// The rule by which each call of a tool requires approval, and the reason; `None` if it requires no approval here.
    /// cp-exec itself requests approval for the files that it runs, and cp-mcp for the tools of servers.
    pub(crate) fn reason(&self, tool: &Tool) -> Option<(&'static str, String)> {
        if matches!(tool.origin, Origin::Mcp { .. }) {
            return None;
        }
        if self.policy.approve.iter().any(|pattern| name_matches(pattern, &tool.name)) {
            let why = || format!("tools.approve of the policy lists `{}`", tool.name);
            return matches!(tool.origin, Origin::Builtin).then(|| ("tools.approve", why()));
        }
        let why = || format!("{} requires approval of each call", tool.name);
        tool.hints.approve.then(|| ("tool.approve", why()))
    }

    /// A grant by the approver.
    pub(crate) fn grant(&self) -> Grant {
        Grant::by("approver", self.argv.iter().flatten().next().map_or("", String::as_str), How::Approver)
    }

    /// The answer of the approver, until a deadline; `None` without an approver.
    pub(crate) fn ask(&self, approval: &Approval, until: Option<Instant>) -> Result<Option<Verdict>> {
        self.argv.as_ref().map(|argv| approval::ask(argv, approval, until)).transpose()
    }
}
