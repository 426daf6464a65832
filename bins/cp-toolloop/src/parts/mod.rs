//! The coprocesses of a run: the model, the executors and the approver.

pub(crate) mod approver;
pub(crate) mod child;
pub(crate) mod executor;
pub(crate) mod model;

use cp_common::Context;

use self::approver::Approver;
use self::executor::Executor;
use self::model::Model;
use crate::state::plan::{Limits, Plan};
use crate::tools::tool::Origin;

/// The coprocesses of a run. Each is started when it is first needed.
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) approver: Approver,
    tools: Executor,
    servers: Executor,
}

impl Parts {
    /// The coprocesses of a run, with the servers that were started to list their tools.
    pub(crate) fn new(plan: &Plan, limits: &Limits, approver: Approver, servers: Option<Executor>) -> Self {
        let tools = Executor::of_tools(&plan.directories, plan.read_only);
        let servers = servers.unwrap_or_else(|| Executor::of_servers(&plan.mcp));
        let model = Model::new(plan.model.clone(), plan.shared_budget(limits));
        Self { model, approver, tools, servers }
    }

    /// The executor of a tool.
    pub(crate) fn executor(&mut self, origin: &Origin) -> &mut Executor {
        match origin {
            Origin::Mcp { .. } => &mut self.servers,
            Origin::Builtin | Origin::Executable { .. } => &mut self.tools,
        }
    }

    /// Ends the input of the model, and of the executors if they are not at work, and waits until they exit.
    pub(crate) fn rest(&mut self, executors: bool, context: &Context) {
        let mut left = vec![self.model.finish()];
        if executors {
            left.extend([self.tools.finish(), self.servers.finish()]);
        }
        for error in left.into_iter().filter_map(Result::err) {
            context.warn(error.message());
        }
    }
}
