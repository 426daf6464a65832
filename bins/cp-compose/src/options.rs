//! The options that choose the agent, the system text and the history.

use crate::history::Mode;

/// The options that choose the agent and the system text.
#[derive(clap::Args, Debug)]
pub(crate) struct Identity {
    /// The agent: an id in config/agents.json, or default
    #[arg(long, value_name = "ID", help_heading = "Who speaks")]
    pub(crate) agent: Option<String>,
    /// More system text, after the agent's own
    #[arg(short, long, value_name = "TEXT|@FILE", help_heading = "Who speaks")]
    pub(crate) system: Option<String>,
    /// The governed prompt that begins the system text
    #[arg(long, value_name = "PRM-ID", help_heading = "Who speaks")]
    pub(crate) prompt: Option<String>,
    /// A variable for the governed prompt and the template; repeat for more
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Who speaks")]
    pub(crate) var: Vec<String>,
    /// Send context as it is, with its secrets
    #[arg(long, help_heading = "Who speaks", hide_short_help = true)]
    pub(crate) no_redact: bool,
}

/// The options that choose the history.
#[derive(clap::Args, Debug)]
pub(crate) struct Past {
    /// Only the newest N turns of the session
    #[arg(long, value_name = "N", help_heading = "The conversation")]
    pub(crate) last: Option<usize>,
    /// How much of the session goes to the model (default: as the session was started)
    #[arg(long, value_enum, help_heading = "The conversation")]
    pub(crate) mode: Option<Mode>,
}
