//! The default verb: an interactive session at a terminal, or pipe mode.

use std::io::IsTerminal as _;

use cp_common::program::{Class, Input, VerbDoc};
use cp_common::{Context, Error, Result};

use crate::agent::ModelOptions;
use crate::interactive::state::Options;
use crate::interactive::state::Request;
use crate::{interactive, pipe};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "",
    class: Class::Governed,
    output: "response",
    also: &["tool_result", "summary"],
    examples: &[
        "echo '{\"operation\":\"governed_roots\"}' | cp-shell | jq -c .result",
        "echo '{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"tool_call\",\"data\":{\"id\":\"1\",\"name\":\"explain_path\",\"input\":{\"path\":\"lib/x\"}},\"meta\":{\"duration_ms\":0}}' | cp-shell",
    ],
    input: &[Input::Rows, Input::Records, Input::Person],
    events: &["agent_turn", "turn_evidence", "session_start", "session_question", "message", "session_turn"],
    ..VerbDoc::EMPTY
};

/// Answer JSON requests, or hold an interactive session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Hold an interactive session even without a terminal
    #[arg(long, help_heading = "Session")]
    interactive: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    model: ModelOptions,
    /// Continue the last interactive session
    #[arg(short = 'c', long = "continue", help_heading = "Session")]
    continues: bool,
    /// The agent that answers: an id in config/agents.json, or default
    #[arg(long, value_name = "ID", help_heading = "Session")]
    agent: Option<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let Args { interactive, options, model, agent, continues } = args;
    let agent = agent.as_deref();
    if *interactive || std::io::stdin().is_terminal() {
        let mut model = model.clone();
        if options.offline {
            // An option wins over the backend that the name of a model selects.
            model.backend = context.config.text("backend", model.backend.as_deref());
        }
        interactive::run(Request { agent, options: *options, continues: *continues, model: &model }, context)
    } else if *continues {
        Err(Error::usage("--continue requires a terminal or --interactive").hint("or name the session with --session"))
    } else {
        pipe::run(agent, context)
    }
}
