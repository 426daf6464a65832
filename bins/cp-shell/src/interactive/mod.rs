//! The session with a person: a prompt, commands, and turns that go to a model. What decides takes values and returns values
//! (`parse`, `risk`, `hints`, `render`); what touches the world is around it.

mod commands;
mod completion;
mod composed;
mod coprocess;
mod desk;
mod explain;
mod gather;
mod hints;
mod history;
mod hub;
mod interrupt;
mod kept;
mod learning;
mod parse;
mod recall;
mod record;
mod render;
mod risk;
mod run;
mod settings;
mod shell;
mod table;
mod turn;

use std::io::IsTerminal as _;

use cp_common::{Context, Result};

use crate::agent::Agent;
use crate::session::Args;
use render::Style;

/// Holds a session with a person, or with a script that stands in for one.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    interrupt::watch()?;
    shell::hold(args, context)
}

/// How the terminal takes text now: it may have been resized since it was asked last.
fn style() -> Style {
    let stdout = std::io::stdout();
    let columns =
        rustix::termios::tcgetwinsize(&stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|width| *width > 0);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style { width: columns.or_else(said).unwrap_or(80), colour: stdout.is_terminal() && !plain }
}

/// Who answers: an agent by its id in `config/agents.json`, or `default`.
fn agent_of(id: &str, args: &Args, context: &Context) -> Result<Box<dyn Agent>> {
    Ok(Box::new(composed::Composed::new(id, None, args, context)))
}
