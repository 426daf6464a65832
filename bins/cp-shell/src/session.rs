//! The verb that is meant when none is named: a session with a person on a terminal, or with a program over a pipe.

use std::io::IsTerminal as _;
use std::path::PathBuf;

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

/// Answer JSON requests, or talk with a person
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The control plane tree to look into (default: the home)
    #[arg(long, value_name = "DIR", help_heading = "The session")]
    root: Option<PathBuf>,
    /// Talk with a person, also without a terminal
    #[arg(long, help_heading = "The session")]
    interactive: bool,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    model: ModelOptions,
    /// Go on with the last session of a person
    #[arg(short = 'c', long = "continue", help_heading = "The session")]
    goes_on: bool,
    /// The agent that answers: an id in config/agents.json, or default
    #[arg(long, value_name = "ID", help_heading = "The session")]
    agent: Option<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let Args { root, interactive, options, model, agent, goes_on } = args;
    let (root, agent) = (root.as_deref(), agent.as_deref());
    if *interactive || std::io::stdin().is_terminal() {
        let mut model = model.clone();
        if options.offline {
            // An option is what no name of a model leads away from, whatever else is configured.
            model.backend = context.config.text("backend", model.backend.as_deref());
        }
        interactive::run(Request { root, agent, options: *options, goes_on: *goes_on, model: &model }, context)
    } else if *goes_on {
        Err(Error::usage("--continue is for a person").hint("add --interactive, or name the session with --session"))
    } else {
        pipe::run(root, agent, context)
    }
}
