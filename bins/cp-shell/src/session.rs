//! The verb that is meant when none is named: a session with a person on a terminal, or with a program over a pipe.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use cp_common::{Context, Result};

use crate::{interactive, pipe};

/// Answer JSON requests, or talk with a person
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag of the command line")]
pub(crate) struct Args {
    /// The control plane tree to look into (default: the home)
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,
    /// Talk with a person, also without a terminal
    #[arg(long)]
    pub(crate) interactive: bool,
    /// Open no socket
    #[arg(long)]
    pub(crate) offline: bool,
    /// Leave the hub alone
    #[arg(long)]
    pub(crate) no_hub: bool,
    /// Let the history of the person's shell be context
    #[arg(long)]
    pub(crate) with_history: bool,
    /// Who answers: anthropic, openai, gemini, llm, stub, or a program with a `/`
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,
    /// The model to ask
    #[arg(short = 'm', long, value_name = "MODEL")]
    pub(crate) model: Option<String>,
    /// A directory of tools that the model may use; once for each
    #[arg(long, value_name = "DIR")]
    pub(crate) tools: Vec<PathBuf>,
    /// Who speaks: an id in config/agents.json, or default
    #[arg(long, value_name = "ID")]
    pub(crate) agent: Option<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.interactive || std::io::stdin().is_terminal() {
        interactive::run(args, context)
    } else {
        pipe::run(args, context)
    }
}
