//! Options that several verbs have.

use std::path::PathBuf;

use cp_common::{Context, Result};

use crate::mcp::Spec;
use crate::tools::catalogue::Allowed;
use crate::tools::sources::Sources;

/// Where tools come from.
#[derive(clap::Args, Debug)]
pub(super) struct ToolOptions {
    /// A directory of tools, one tool, or a JSON catalogue; give it once for each
    #[arg(long, value_name = "DIR|FILE")]
    tools: Vec<PathBuf>,
    /// A tool that may be called; give it once for each (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allow: Vec<String>,
    /// An MCP server, its name and its command; give it once for each
    #[arg(long, value_name = "NAME=COMMAND")]
    mcp: Vec<String>,
    /// How many levels of agents may be started: 0 is none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8))]
    pub(super) agent_depth: u8,
}

impl ToolOptions {
    /// Where tools come from: the configured directory unless --tools is given.
    pub(super) fn sources(&self, context: &Context) -> Result<Sources> {
        let configured = || context.config.text("tools_dir", None).map(PathBuf::from).into_iter().collect();
        let places = if self.tools.is_empty() { configured() } else { self.tools.clone() };
        let mcp = self.mcp.iter().map(|server| Spec::parse(server, context)).collect::<Result<_>>()?;
        Ok(Sources { places, mcp, agents: self.agent_depth > 0, allowed: Allowed(self.allow.clone()) })
    }
}

/// A number that a limit can be.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number <= 1e9 {
        Ok(number)
    } else {
        Err("must be more than 0 and at most 1000000000".to_owned())
    }
}
