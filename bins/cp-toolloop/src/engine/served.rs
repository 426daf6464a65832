//! Calls of MCP tools, and their results.

use std::time::Duration;

use cp_common::wire::{Block, Receipt, ToolResult};
use cp_common::{Context, Error, Result};

use super::pause::MCP_INPUT;
use super::{Engine, Pending};
use crate::mcp::{Outcome, SentCall, Spec};
use crate::state::step::Step;
use crate::tools::tool::Tool;

impl Engine {
    /// Calls a tool of an MCP server, and waits for its result. A failure is a result too, because the model may try another call.
    pub(super) fn serve(
        &mut self,
        pending: &Pending,
        (tool, server, name): (&Tool, &str, &str),
        receipt: Option<Receipt>,
        context: &Context,
    ) -> Result<ToolResult> {
        let spec = self.run.plan.mcp.iter().find(|spec| spec.name == server).cloned();
        let spec = spec.ok_or_else(|| Error::not_found(format!("the run has no MCP server {server}")).fatal())?;
        let answered = match self.call_server(pending, &spec, name, context) {
            Ok(asked) => self.parts.servers(context)?.answer(&asked),
            Err(error) => Err(error),
        };
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let result = match answered {
            Ok((Outcome::Answer { text, images, is_error }, time)) => {
                let images = images.iter().map(|(media, data)| Block::image(media, data)).collect();
                ToolResult { images, is_error, duration_ms: millis(time), ..pending.failed(text) }
            }
            Ok((Outcome::TimedOut, time)) => {
                self.run.time_left()?;
                let text = format!("stopped after {:.1} seconds", time.as_secs_f64());
                ToolResult { duration_ms: millis(time), ..pending.failed(text) }
            }
            Ok((Outcome::InputRequired(questions), _)) => {
                self.run.step(Step::Withdrawn(pending.at))?;
                let message = format!("the server {server} asks for something that only a person can answer");
                let approval = self.asked(&pending.call, tool, MCP_INPUT, message.clone(), context)?;
                self.wait_for(pending.at, &approval)?;
                return Err(self
                    .human("answer_mcp_input", message, &pending.call)
                    .with("questions", questions)
                    .hint("answer the server in its own way, then --approve repeats the call"));
            }
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                self.run.time_left()?;
                pending.failed(error.message())
            }
        };
        Ok(ToolResult { receipt, ..result })
    }

    /// Sends a call to a server, which the run records first.
    fn call_server(&mut self, pending: &Pending, spec: &Spec, tool: &str, context: &Context) -> Result<SentCall> {
        let left = self.run.time_left()?;
        let servers = self.parts.servers(context)?;
        if let Some(started) = servers.unrecorded(spec, left)? {
            self.run.note(|journal| journal.server(&started))?;
            self.run.sync()?;
        }
        let left = self.run.time_left()?;
        self.parts.servers(context)?.call(spec, tool, &pending.call.input, left)
    }
}
