//! The coprocesses of a run: the model, cp-exec, MCP servers, agents and the approver; or a recording that replaces them.

pub(crate) mod agent;
pub(crate) mod executor;
pub(crate) mod hooks;
pub(crate) mod model;
pub(crate) mod replay;

use cp_common::{Context, Result};

use self::executor::Executor;
use self::hooks::{Approver, Hooks};
use self::model::Model;
use crate::mcp::Servers;
use crate::state::plan::{Limits, Plan};

/// The coprocesses of a run. Each is started when it is first needed.
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) executor: Executor,
    pub(crate) approver: Approver,
    pub(crate) hooks: Hooks,
    servers: Option<Servers>,
}

impl Parts {
    /// The coprocesses of a run, with the servers that were started to list their tools.
    pub(crate) fn new(plan: &Plan, limits: &Limits, approver: Approver, servers: Option<Servers>) -> Result<Self> {
        let executor = Executor::new(plan.directories.clone(), plan.read_only);
        let model = Model::new(plan.model.clone(), plan.shared_budget(limits));
        Ok(Self { model, executor, approver, hooks: Hooks::of(plan)?, servers })
    }

    /// The MCP servers.
    pub(crate) fn servers(&mut self, context: &Context) -> Result<&mut Servers> {
        Ok(match &mut self.servers {
            Some(servers) => servers,
            none => none.insert(Servers::of(context)?),
        })
    }

    /// Ends the input of the model, and of cp-exec if it is not at work, and waits until they exit.
    pub(crate) fn rest(&mut self, executor: bool, context: &Context) {
        for left in [self.model.finish(), if executor { self.executor.finish() } else { Ok(()) }] {
            if let Err(error) = left {
                context.warn(error.message());
            }
        }
    }
}
