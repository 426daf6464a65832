//! Tools of MCP servers: started over stdio, called in either protocol, closed at the end.
//!
//! A server of the current era has no session: each request says which version it speaks. One of the era before needs a handshake first.
//! Which one it is, is found out by asking; see [`connection`]. Only tools are used: no prompts, resources, sampling.

mod connection;
mod pipe;
mod started;

use std::time::{Duration, Instant};

use cp_common::{Code, Context, Error, Result};
pub(crate) use cp_mcp_wire::Tool as Offer;
pub(crate) use cp_servers::{LONGEST_NAME, Spec, is_in_names, is_name};
use cp_servers::{Launcher, is_door, unavailable};
use serde_json::Value;
use serde_json::value::RawValue;

use self::connection::{Connection, Ticket};
pub(crate) use self::started::Started;

/// What a call came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The tool answered.
    Answer {
        /// For the model.
        text: String,
        /// Whether it failed.
        is_error: bool,
    },
    /// The tool answered with images too.
    Shown {
        /// For the model.
        text: String,
        /// The type of each, and its bytes in base64.
        images: Vec<(String, String)>,
        /// Whether it failed.
        is_error: bool,
    },
    /// It asks for something that only a person can answer.
    InputRequired(Value),
    /// It took too long.
    TimedOut,
}

/// What a server offers, and what its table says of all its tools.
pub(crate) struct Offers {
    pub(crate) tools: Vec<Offer>,
    pub(crate) started: Started,
    /// What it says of its tools to a model.
    pub(crate) instructions: Option<String>,
    /// Whether its calls require approval, where the policy says so or that they do not.
    pub(crate) approve: Option<bool>,
}

/// A call that was made, and the process that it was made to.
pub(crate) struct Asked {
    process: u64,
    ticket: Ticket,
}

/// The servers of a run. Each is started when it is first needed.
pub(crate) struct Servers {
    launcher: Launcher,
    running: Vec<Running>,
    next: u64,
}

struct Running {
    process: u64,
    spec: Spec,
    connection: Connection,
    started: Started,
    /// Whether the run has that on record.
    is_noted: bool,
}

impl Servers {
    /// The servers of a context, none of them started.
    pub(crate) fn of(context: &Context) -> Result<Self> {
        Launcher::of(context).map(Self::with)
    }

    fn with(launcher: Launcher) -> Self {
        Self { launcher, running: Vec::new(), next: 0 }
    }

    /// What a server offers; it has so long to start and to say it, if its own time is not less.
    pub(crate) fn offers(&mut self, spec: &Spec, left: Option<Duration>) -> Result<Offers> {
        let table = self.launcher.table(&spec.name)?;
        let until = Instant::now() + table.start_limit().min(left.unwrap_or(Duration::MAX));
        let Running { connection, started, .. } =
            self.running(spec, Duration::ZERO, until).map_err(|e| unavailable(&e, spec, &table))?;
        let mut tools = connection.tools(until).map_err(|e| unavailable(&e, spec, &table))?;
        tools.retain(|tool| table.allows(&tool.name));
        let instructions = connection.greeting.instructions.clone();
        // Our own bridge asks itself.
        let approve = if is_door(spec) { Some(false) } else { table.approve };
        Ok(Offers { tools, started: started.clone(), instructions, approve })
    }

    /// Whether calls of a server's tool may be made at the same time as others of that kind.
    pub(crate) fn shares(&self, spec: &Spec, is_read_only: bool) -> Result<bool> {
        Ok(is_read_only || self.launcher.table(&spec.name)?.parallel)
    }

    /// What the record of a run has to have of a server before it is called: none if it has it. A server that is not there, or would end
    /// before a call has, is started.
    pub(crate) fn started(&mut self, spec: &Spec, left: Option<Duration>) -> Result<Option<Started>> {
        let table = self.launcher.table(&spec.name)?;
        let limit = table.call_limit().min(left.unwrap_or(Duration::MAX));
        let until = Instant::now() + table.start_limit().min(left.unwrap_or(Duration::MAX));
        let running = self.running(spec, limit, until)?;
        let is_known = std::mem::replace(&mut running.is_noted, true);
        Ok((!is_known).then(|| running.started.clone().hashed()))
    }

    /// Calls a tool of a server, which has the time of its table to answer, or what is left if that is less.
    pub(crate) fn call(&mut self, spec: &Spec, tool: &str, input: &RawValue, left: Option<Duration>) -> Result<Asked> {
        let table = self.launcher.table(&spec.name)?;
        if !table.allows(tool) {
            let message = format!("the policy does not let the tool {tool} of the server {} be called", spec.name);
            return Err(Error::new(Code::Forbidden, message).with("rule", "mcp.tools"));
        }
        let limit = table.call_limit().min(left.unwrap_or(Duration::MAX));
        let running = self.running(spec, limit, Instant::now() + table.start_limit())?;
        let process = running.process;
        let called = running.connection.call(tool, input, limit);
        self.kept(process, called).map(|ticket| Asked { process, ticket })
    }

    /// Waits for what a call came to, and gives the time that it took.
    pub(crate) fn answer(&mut self, asked: &Asked) -> Result<(Outcome, Duration)> {
        let running = self.running.iter_mut().find(|running| running.process == asked.process);
        let running = running.ok_or_else(|| Error::new(Code::Io, "the server ended before it answered"))?;
        let answered = running.connection.answer(&asked.ticket);
        self.kept(asked.process, answered)
    }

    /// The outcome of a process, which is given up where it has ended.
    fn kept<T>(&mut self, process: u64, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|error| error.code() == Code::Io) {
            self.running.retain(|running| running.process != process);
        }
        outcome
    }

    /// The process of a server that will be there for so long. One that will not is left to the calls that it has.
    fn running(&mut self, spec: &Spec, time: Duration, until: Instant) -> Result<&mut Running> {
        self.running.retain_mut(|running| {
            let Running { spec: other, connection, .. } = running;
            *other != *spec || connection.is_busy() || connection.lasts(time)
        });
        let fits = |running: &mut Running| running.spec == *spec && running.connection.lasts(time);
        let at = self.running.iter_mut().position(fits);
        let at = if let Some(at) = at {
            at
        } else {
            let connection = Connection::open(spec, &self.launcher, until)?;
            let started = Started::of(spec, &self.launcher.table(&spec.name)?, &connection.greeting);
            self.next += 1;
            let (process, spec) = (self.next, spec.clone());
            self.running.push(Running { process, spec, connection, started, is_noted: false });
            self.running.len() - 1
        };
        Ok(&mut self.running[at])
    }
}

#[cfg(test)]
mod tests;
