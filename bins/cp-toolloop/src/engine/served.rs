//! Calls of MCP tools: which calls of one server may overlap, and their results.

use std::time::Duration;

use cp_common::wire::{Block, Receipt, ToolResult};
use cp_common::{Context, Error, Result};

use super::pause::MCP_INPUT;
use super::{Engine, Pending};
use crate::mcp::{Outcome, SentCall, Spec};
use crate::state::step::Step;
use crate::tools::tool::Tool;

/// A call of an MCP tool.
pub(super) struct Served {
    spec: Spec,
    /// The name of the tool at the server.
    tool: String,
    /// The receipt of the ledger entry of the call.
    receipt: Option<Receipt>,
    /// True if the call may overlap with others that may overlap.
    shares: bool,
    /// The sent call; `None` while it waits for other calls.
    asked: Option<Result<SentCall>>,
}

impl Engine {
    /// Starts a call of an MCP tool. It is sent now unless it must wait for an active call of that server.
    pub(super) fn start_served<'a>(
        &mut self,
        pending: &Pending,
        (tool, server, name): (&Tool, &str, &str),
        receipt: Option<Receipt>,
        underway: impl Iterator<Item = &'a Served>,
        context: &Context,
    ) -> Result<Served> {
        let spec = self.run.plan.mcp.iter().find(|spec| spec.name == server).cloned();
        let spec = spec.ok_or_else(|| Error::not_found(format!("the run has no MCP server {server}")).fatal())?;
        let shares = self.parts.servers(context)?.may_overlap(&spec, tool.hints.read_only)?;
        let mut others = underway.filter(|other| other.spec == spec);
        let is_free = if shares { others.all(|other| other.shares) } else { others.next().is_none() };
        let mut made = Served { spec, tool: name.to_owned(), receipt, shares, asked: None };
        if is_free {
            made.asked = Some(self.call_server(pending, &made, context));
        }
        Ok(made)
    }

    /// Sends a call to a server, which the run records first.
    fn call_server(&mut self, pending: &Pending, made: &Served, context: &Context) -> Result<SentCall> {
        let left = self.run.time_left()?;
        let servers = self.parts.servers(context)?;
        if let Some(started) = servers.unrecorded(&made.spec, left)? {
            self.run.note(|journal| journal.server(&started))?;
            self.run.sync()?;
        }
        let left = self.run.time_left()?;
        self.parts.servers(context)?.call(&made.spec, &made.tool, &pending.call.input, left)
    }

    /// Waits for a call, or sends it after all earlier calls have ended. A failure is a result too, because the model may try another call.
    pub(super) fn finish_served(
        &mut self,
        pending: &Pending,
        mut made: Served,
        context: &Context,
    ) -> Result<ToolResult> {
        let asked = match made.asked.take() {
            Some(asked) => asked,
            None => self.call_server(pending, &made, context),
        };
        let answered = match asked {
            Ok(asked) => self.parts.servers(context)?.answer(&asked),
            Err(error) => Err(error),
        };
        let took = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let result = match answered {
            Ok((Outcome::Answer { text, images, is_error }, time)) => {
                let images = images.iter().map(|(media, data)| Block::image(media, data)).collect();
                ToolResult { images, is_error, duration_ms: took(time), ..pending.failed(text) }
            }
            Ok((Outcome::TimedOut, time)) => {
                self.run.time_left()?;
                let text = format!("stopped after {:.1} seconds", time.as_secs_f64());
                ToolResult { duration_ms: took(time), ..pending.failed(text) }
            }
            Ok((Outcome::InputRequired(questions), _)) => {
                self.run.step(Step::Withdrawn(pending.at))?;
                let server = &made.spec.name;
                let message = format!("the server {server} asks for something that only a person can answer");
                if let Some(tool) = self.run.plan.tools.iter().find(|tool| tool.name == pending.call.name).cloned() {
                    let approval = self.asked(&pending.call, &tool, MCP_INPUT, message.clone(), context)?;
                    self.wait_for(pending.at, &approval)?;
                }
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
        Ok(ToolResult { receipt: made.receipt, ..result })
    }
}
