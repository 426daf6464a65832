//! `cp-exec hook HOST` inside the sandbox of an agent: the supervisor records the tool call. The call goes on
//! unchanged, because everything that it starts is inside as well.

use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use cp_common::{Context, Error, Result};
use serde_json::{Value, json};

use super::answer::{Answer, hosted, input_hash, question};
use crate::digest::sha256;
use crate::hook::{self, Moment, ToolEffect, Verdict};
use crate::hosts::Host;
use crate::policy::HostCall;
use crate::run::clients::ToolCall;
use crate::sandbox;

pub(crate) fn run(named: Host, context: &mut Context) -> Result<()> {
    let event = hook::decode(&question()?, named)?;
    let (tool, data, listing) = match &event.moment {
        Moment::Before(tool) => {
            let base = context.base()?;
            // Files of skills and requests to the network are inside as well.
            let listing = match hook::effect_of(tool, event.cwd.as_deref().unwrap_or(&base))? {
                ToolEffect::Shell(..) | ToolEffect::Files(_) => (false, true),
                ToolEffect::Skill | ToolEffect::Harmless | ToolEffect::Fetch => (true, true),
                ToolEffect::Unknown(_) => (true, false),
            };
            let command = hook::command(tool);
            (tool, json!({ "command": command, "input_hash": input_hash(tool), "cwd": event.cwd }), Some(listing))
        }
        Moment::After(tool, output) => {
            let text = output.text();
            let hash = sha256(text.as_bytes());
            (tool, json!({ "failed": output.failed, "bytes": text.len(), "sha256": hash }), None)
        }
        Moment::Start | Moment::End | Moment::Other => return context.out.answer(&Answer::of(event.host, None)),
    };
    let HostCall { host, session, call } = hosted(&event)?;
    let (is_listed, by_default) = listing.unwrap_or((false, true));
    let (tool, is_result) = (tool.name.clone(), listing.is_none());
    report(&ToolCall { host, session, call, tool, is_listed, by_default, data, is_result })?;
    context.out.answer(&Answer::of(event.host, listing.map(|_| &Verdict::Pass)))
}

/// The time limit for an answer of the supervisor.
const PATIENCE: Duration = Duration::from_secs(30);

/// Sends a tool call to the supervisor, which records or refuses it.
fn report(call: &ToolCall) -> Result<()> {
    let exchange = || -> io::Result<Option<Value>> {
        let mut stream = sandbox::connect()?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.write_all(&serde_json::to_vec(call)?)?;
        stream.shutdown(Shutdown::Write)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(serde_json::from_slice(&answer)?)
    };
    match exchange() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(Error::from_value(&error)),
        Err(e) => Err(Error::io("the supervisor outside of the sandbox does not answer", e)),
    }
}
