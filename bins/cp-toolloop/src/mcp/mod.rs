//! The MCP servers of a run. Each runs behind `cp-mcp proxy`, which holds the pins, the allowed tools, the time limits and the redaction of
//! secrets; a command that is itself `cp-mcp` is started as it is. Only tools are used: no prompts, resources or sampling.

mod client;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
pub(crate) use cp_mcp_wire::{LeftOut, Tool as Offer};
pub(crate) use cp_servers::{LONGEST_NAME, Spec, is_in_names, is_name};
use cp_servers::{Launcher, Sandbox, Table, is_cp_mcp, unavailable};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use self::client::{Client, Ticket};

/// The largest file next to the program that is hashed, in bytes: a script, and not its data.
const LARGEST_SCRIPT: u64 = 16 << 20;

/// The outcome of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The tool has answered.
    Answer {
        /// The text for the model.
        text: String,
        /// The media type of each image for the model, and its bytes in base64.
        images: Vec<(String, String)>,
        /// True if the tool failed.
        is_error: bool,
    },
    /// The server needs an answer that only a person can give.
    InputRequired(Value),
    /// The time limit was reached.
    TimedOut,
}

/// The tools of a server, and the settings that apply to all of them.
pub(crate) struct Offers {
    pub(crate) tools: Vec<Offer>,
    pub(crate) left_out: Vec<LeftOut>,
    pub(crate) started: Started,
    /// The server's instructions for the model.
    pub(crate) instructions: Option<String>,
    /// True or false if the policy decides for all calls whether they require approval.
    pub(crate) approve: Option<bool>,
}

/// A call that was sent, and the process that got it.
pub(crate) struct SentCall {
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
    client: Client,
    started: Started,
    /// True if the run has recorded the server.
    is_recorded: bool,
}

impl Servers {
    /// The servers of a context; none is started yet.
    pub(crate) fn of(context: &Context) -> Result<Self> {
        Ok(Self { launcher: Launcher::of(context)?, running: Vec::new(), next: 0 })
    }

    /// The tools of a server, which must start and list them within its start limit, or within `left` if that is shorter.
    pub(crate) fn offers(&mut self, spec: &Spec, left: Option<Duration>) -> Result<Offers> {
        let table = self.launcher.table(&spec.name)?;
        let until = start_deadline(&table, left);
        let Running { client, started, .. } = self.running(spec, until).map_err(|e| unavailable(&e, spec, &table))?;
        let (tools, left_out) = client.tools(until).map_err(|e| unavailable(&e, spec, &table))?;
        let instructions = client.greeting.instructions.clone();
        // Our own bridge requests approval itself.
        let approve = if is_cp_mcp(spec) { Some(false) } else { table.approve };
        Ok(Offers { tools, left_out, started: started.clone(), instructions, approve })
    }

    /// The entry that the run must record before it calls a server; `None` if it was recorded. Starts a server that is not running.
    pub(crate) fn unrecorded(&mut self, spec: &Spec, left: Option<Duration>) -> Result<Option<Started>> {
        let until = start_deadline(&self.launcher.table(&spec.name)?, left);
        let running = self.running(spec, until)?;
        let is_recorded = std::mem::replace(&mut running.is_recorded, true);
        Ok((!is_recorded).then(|| running.started.clone().with_hashes()))
    }

    /// Calls a tool of a server. The time limit is that of the server, or `left` if that is shorter.
    pub(crate) fn call(
        &mut self,
        spec: &Spec,
        tool: &str,
        input: &RawValue,
        left: Option<Duration>,
    ) -> Result<SentCall> {
        let table = self.launcher.table(&spec.name)?;
        let limit = table.call_limit().min(left.unwrap_or(Duration::MAX));
        let running = self.running(spec, start_deadline(&table, None))?;
        let process = running.process;
        let called = running.client.call(tool, input, limit);
        self.forget_exited(process, called).map(|ticket| SentCall { process, ticket })
    }

    /// Waits for the outcome of a call, and returns it with the time that the call took.
    pub(crate) fn answer(&mut self, sent: &SentCall) -> Result<(Outcome, Duration)> {
        let running = self.running.iter_mut().find(|running| running.process == sent.process);
        let running = running.ok_or_else(|| Error::new(Code::Io, "the server ended before it answered"))?;
        let answered = running.client.answer(&sent.ticket);
        self.forget_exited(sent.process, answered)
    }

    /// Drops the process if its outcome is that it has exited.
    fn forget_exited<T>(&mut self, process: u64, outcome: Result<T>) -> Result<T> {
        if outcome.as_ref().is_err_and(|error| error.code() == Code::Io) {
            self.running.retain(|running| running.process != process);
        }
        outcome
    }

    /// The process of a server, started if necessary.
    fn running(&mut self, spec: &Spec, until: Instant) -> Result<&mut Running> {
        self.running.retain_mut(|running| running.client.is_running());
        let at = if let Some(at) = self.running.iter().position(|running| running.spec == *spec) {
            at
        } else {
            let client = Client::open(spec, &self.launcher, until)?;
            let started = Started::of(spec, &self.launcher.table(&spec.name)?, &client);
            self.next += 1;
            let (process, spec) = (self.next, spec.clone());
            self.running.push(Running { process, spec, client, started, is_recorded: false });
            self.running.len() - 1
        };
        Ok(&mut self.running[at])
    }
}

/// When a server must have started and listed its tools.
fn start_deadline(table: &Table, left: Option<Duration>) -> Instant {
    Instant::now() + table.start_limit().min(left.unwrap_or(Duration::MAX))
}

/// A server that was started, as the run records it.
#[derive(Clone, Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Started {
    /// Its name.
    pub(crate) name: String,
    /// What started it, with the names of variables and not their values.
    pub(crate) command: Vec<String>,
    /// The hashes of the program and of the scripts among its arguments, by their paths.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) files: BTreeMap<String, String>,
    /// The variables that it was given, by name.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) env: Vec<String>,
    /// tool, or none where it runs outside the sandbox.
    pub(crate) sandbox: &'static str,
    /// Its name.
    pub(crate) server_name: String,
    /// Which version of itself it says it is.
    pub(crate) server_version: String,
    /// The version of the protocol that it is spoken to in.
    pub(crate) protocol: String,
}

impl Started {
    fn of(spec: &Spec, table: &Table, client: &Client) -> Self {
        let sandbox = match table.sandbox {
            Sandbox::Tool if !is_cp_mcp(spec) => "tool",
            Sandbox::Tool | Sandbox::None => "none",
        };
        let greeting = &client.greeting;
        Self {
            name: spec.name.clone(),
            command: spec.argv.clone(),
            files: BTreeMap::new(),
            env: table.env.iter().chain(spec.env.keys()).cloned().collect(),
            sandbox,
            server_name: greeting.server_info.name.clone(),
            server_version: greeting.server_info.version.clone(),
            protocol: greeting.protocol_version.clone(),
        }
    }

    /// This entry with the hashes of the files that the command names.
    fn with_hashes(self) -> Self {
        let files = self.command.iter().enumerate().filter_map(|(at, word)| hash_file(at == 0, word)).collect();
        Self { files, ..self }
    }
}

/// The path and hash of the file that a word of a command names.
fn hash_file(is_program: bool, word: &str) -> Option<(String, String)> {
    let path = Path::new(word);
    let meta = path.metadata().ok().filter(std::fs::Metadata::is_file)?;
    if !is_program && meta.len() > LARGEST_SCRIPT {
        return None;
    }
    let bytes = std::fs::read(path).ok()?;
    Some((word.to_owned(), Hash::of(&bytes).to_string()))
}
