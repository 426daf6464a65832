//! What a run did that an undo does not restore, as recorded in its ledger.

use std::collections::BTreeMap;

use cp_common::Result;
use cp_common::output::printable_line;
use cp_common::wire::quoted;
use cp_ledger::blob;
use cp_ledger::read;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::ledger::data_of;
use crate::state::plan::RunFiles;

/// A killed command, or a call of a server's tool, whose changes are not known.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Effect {
    /// The call of the run that made it.
    pub(crate) call: Option<String>,
    /// The command line, or the tool of a server.
    pub(crate) command: String,
}

impl Effect {
    pub(crate) fn text(&self) -> String {
        let call = self.call.as_ref().map(|call| format!("{call}: ")).unwrap_or_default();
        printable_line(&format!("not undone: {call}{}, whose changes are not known", self.command))
    }
}

/// The text of the command line in the data of an `exec.intent`.
pub(crate) fn command_line(data: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Intent {
        argv: Vec<String>,
        line: Option<String>,
    }
    let Intent { argv, line } = serde_json::from_slice(data).unwrap_or_default();
    line.unwrap_or_else(|| argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "))
}

/// The members of an entry that are read.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Data {
    /// The sequence number of the intent of a command.
    intent: Option<u64>,
    tools: Value,
    name: Option<String>,
    /// The id of a call.
    id: Option<String>,
    /// The call that a command belongs to.
    call: Option<String>,
}

/// The effects of a run, or of one of its calls, whose changes are not known. A call must be one of the run.
pub(crate) fn unknown(files: &RunFiles, call: Option<&str>) -> Result<Vec<Effect>> {
    let mut lines = read::lines(&files.ledger)?;
    let (mut effects, mut served, mut running) = (Vec::new(), Vec::new(), BTreeMap::new());
    let is_meant = |of: &Option<String>| call.is_none() || of.as_deref() == call;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event("run_start") {
            let tools = data_of::<Data>(&line).tools;
            let whole = blob::resolve(&files.ledger, tools.to_string().as_bytes())?;
            served = whole
                .and_then(|whole| serde_json::from_slice(&whole).ok())
                .unwrap_or(tools)
                .as_array()
                .cloned()
                .unwrap_or_default();
            served.retain(|tool| tool["kind"] == "mcp" && tool["read_only"] != true);
        } else if line.is_event("tool_call") {
            let Data { name, id: call, .. } = data_of(&line);
            let command = name.unwrap_or_default();
            let is_served = served.iter().any(|tool| tool["name"] == *command);
            effects.extend((is_served && is_meant(&call)).then_some(Effect { call, command }));
        } else if line.is_event("exec.intent") {
            let call = data_of::<Data>(&line).call;
            let command = command_line(line.member("data").unwrap_or_default());
            running.extend(is_meant(&call).then_some((line.seq(), Effect { call, command })));
        } else if line.is_event("exec.result") {
            data_of::<Data>(&line).intent.and_then(|intent| running.remove(&intent));
        }
    }
    // These commands were killed with their cp-exec.
    effects.extend(running.into_values());
    Ok(effects)
}
