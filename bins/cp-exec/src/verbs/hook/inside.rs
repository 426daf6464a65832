//! `cp-exec hook HOST` inside the sandbox of an agent: the supervisor records the tool call. The call goes on
//! unchanged, because everything that it starts is inside as well.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use cp_common::{Context, Error, Result};
use serde_json::{Value, json};

use super::answer::{Answer, answer, hosted, question};
use super::decided::in_one_text;
use crate::digest::sha256;
use crate::hook::{self, Event, Moment, Tool, ToolEffect, Verdict};
use crate::hosts::HookHost;
use crate::run::clients::ToolCall;
use crate::sandbox;

pub(crate) fn run(named: HookHost, context: &mut Context) -> Result<()> {
    let event = hook::decode(&question()?, named)?;
    let silent = Answer { host: event.host, decision: None, words: String::new(), secrets: BTreeMap::new() };
    let message = match &event.moment {
        Moment::Start | Moment::End | Moment::Other => return context.out.answer(&silent),
        Moment::Before(tool) => before(&event, tool, context)?,
        Moment::After(tool, output) => {
            let text = output.value.as_str().map_or_else(|| output.value.to_string(), str::to_owned);
            let output = json!({ "failed": output.failed, "bytes": text.len(), "sha256": sha256(text.as_bytes()) });
            ToolCall { is_result: true, ..call(&event, tool, output)? }
        }
    };
    let is_result = message.is_result;
    match report(&message) {
        Ok(()) if is_result => context.out.answer(&silent),
        Ok(()) => context.out.answer(&answer(event.host, &Verdict::Pass)),
        Err(error) => {
            let verdict = Verdict::Deny(in_one_text(&error));
            context.out.refuse(&answer(event.host, &verdict), error)
        }
    }
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

fn before(event: &Event, tool: &Tool, context: &Context) -> Result<ToolCall> {
    let base = context.base()?;
    let effect = hook::effect_of(tool, event.cwd.as_deref().unwrap_or(&base))?;
    let input_hash = sha256(Value::Object(tool.input.clone()).to_string().as_bytes());
    let input = json!({ "command": hook::command(tool), "input_hash": input_hash, "cwd": event.cwd });
    let (is_listed, by_default) = match effect {
        ToolEffect::Shell(..) | ToolEffect::Files(_) => (false, true),
        // Files of skills and requests to the network are inside as well.
        ToolEffect::Skill | ToolEffect::Harmless | ToolEffect::Fetch => (true, true),
        ToolEffect::Unknown(_) => (true, false),
    };
    Ok(ToolCall { is_listed, by_default, ..call(event, tool, input)? })
}

fn call(event: &Event, tool: &Tool, data: Value) -> Result<ToolCall> {
    let hosted = hosted(event, &hook::call_identity(tool))?;
    Ok(ToolCall {
        host: hosted.host,
        session: hosted.session,
        call: hosted.call,
        tool: tool.name.clone(),
        is_listed: false,
        by_default: true,
        data,
        is_result: false,
    })
}
