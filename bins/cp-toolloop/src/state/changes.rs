//! What a run did that an undo does not restore, as recorded in its ledger.

use std::collections::{BTreeMap, BTreeSet};

use cp_common::Result;
use cp_common::output::printable_line;
use cp_common::wire::quoted;
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

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
#[derive(Deserialize)]
struct Data<'a> {
    /// The sequence number of the intent of a command.
    intent: Option<u64>,
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    name: Option<String>,
    /// The id of a call.
    id: Option<String>,
    /// The call that a command belongs to.
    call: Option<String>,
}

/// A tool in the start of a run.
#[derive(Deserialize)]
struct Pinned {
    name: String,
    kind: String,
    #[serde(default)]
    read_only: bool,
}

const EVENTS: [&str; 4] = ["run_start", "tool_call", "exec.intent", "exec.result"];

/// The effects of a run, or of one of its calls, whose changes are not known. A call must be one of the run.
pub(crate) fn unknown(files: &RunFiles, call: Option<&str>) -> Result<Vec<Effect>> {
    let mut lines = read::lines(&files.ledger)?;
    let (mut effects, mut served, mut running) = (Vec::new(), BTreeSet::new(), BTreeMap::new());
    let is_meant = |of: &Option<String>| call.is_none() || of.as_deref() == call;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        let Some(event) = EVENTS.into_iter().find(|event| line.is_event(event)) else { continue };
        let whole = line.member("data").unwrap_or_default();
        let Ok(data) = serde_json::from_slice::<Data<'_>>(whole) else { continue };
        match event {
            "run_start" => {
                let tools = data.tools.map_or("[]", RawValue::get).as_bytes();
                let resolved = blob::resolve(&files.ledger, tools)?;
                let tools: Vec<Pinned> =
                    serde_json::from_slice(resolved.as_deref().unwrap_or(tools)).unwrap_or_default();
                let is_served = |tool: &Pinned| tool.kind == "mcp" && !tool.read_only;
                served.extend(tools.into_iter().filter(is_served).map(|tool| tool.name));
            }
            "tool_call" => {
                if let Some(command) = data.name.filter(|name| served.contains(name) && is_meant(&data.id)) {
                    effects.push(Effect { call: data.id, command });
                }
            }
            "exec.intent" if is_meant(&data.call) => {
                running.insert(line.seq(), Effect { call: data.call, command: command_line(whole) });
            }
            _ => drop(running.remove(&data.intent.unwrap_or(u64::MAX))),
        }
    }
    // These commands were killed with their cp-exec.
    effects.extend(running.into_values());
    Ok(effects)
}
