//! Who does the work of a run: the model, cp-exec, servers, agents and the approver, each a process of its own; or a recording in their
//! place.

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

/// The programs that a run uses. Each is started when it is first needed.
pub(crate) struct Parts {
    pub(crate) model: Model,
    pub(crate) executor: Executor,
    pub(crate) approver: Approver,
    pub(crate) hooks: Hooks,
    servers: Option<Servers>,
}

impl Parts {
    /// The parts of a run. Servers that were started to list their tools are used on.
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

    /// Lets the coprocesses leave in their own time: the model, and cp-exec unless it may be at work.
    pub(crate) fn rest(&mut self, executor: bool, context: &Context) {
        for left in [self.model.finish(), if executor { self.executor.finish() } else { Ok(()) }] {
            if let Err(error) = left {
                context.warn(error.message());
            }
        }
    }
}
