//! The session with a person: a prompt, commands, and turns that go to a model. What decides takes values and returns values
//! (`parse`, `risk`, `hints`, `render`); what touches the world is around it.

mod commands;
mod completion;
mod composed;
mod consent;
pub(crate) mod coprocess;
mod desk;
mod explain;
mod gather;
mod hints;
mod history;
mod hub;
mod interrupt;
mod kept;
mod learning;
mod outcome;
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

use std::rc::Rc;

use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};
use desk::Desk;
use render::Style;

use crate::agent::{Agent, External};
use crate::plane::Plane;
use crate::session::Args;

/// Holds a session with a person, or with a script that stands in for one.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    interrupt::watch()?;
    shell::hold(args, context)
}

/// How the terminal takes text now: it may have been resized since it was asked last.
fn style() -> Style {
    let stdout = rustix::stdio::stdout();
    let columns =
        rustix::termios::tcgetwinsize(stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    let said = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|width| *width > 0);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style { width: columns.or_else(said).unwrap_or(80), colour: rustix::termios::isatty(stdout) && !plain }
}

/// Who answers: an agent by its id in `config/agents.json`, `default`, or a program.
fn agent_of(id: &str, plane: &Plane, desk: &Rc<Desk>, args: &Args, context: &Context) -> Result<Box<dyn Agent>> {
    let agents = crate::agents::load(&context.home.agents_file())?;
    if let Some(agent) = External::of(id, &agents, context)? {
        return Ok(Box::new(agent));
    }
    let is_there = id == "default" || agents.contains_key(id) || context.home.path("agents").join(id).is_dir();
    if !is_there {
        let error = Error::not_found(format!("no agent `{id}`")).with("agent", id);
        return Err(match nearest(id, agents.keys().map(String::as_str).chain(["default"])) {
            Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
            None => error.hint("name it in config/agents.json, or use default"),
        });
    }
    Ok(Box::new(composed::Composed::new(id, governed_prompt(id, plane, context)?, desk, args, context)))
}

/// The governed prompt that an agent must speak with where the tree has a registry of prompts: the one that it names itself, else
/// the one of its soul.
fn governed_prompt(id: &str, plane: &Plane, context: &Context) -> Result<Option<String>> {
    let registered = plane.prompts().map_err(|failure| Error::config(failure.message))?;
    if registered.is_none() {
        return Ok(None);
    }
    let agents = crate::agents::load(&context.home.agents_file())?;
    let named = agents.get(id).and_then(|agent| agent.get("prompt")?.as_str().map(str::to_owned));
    Ok(Some(named.unwrap_or_else(|| format!("PRM-{}-SOUL-001", id.to_uppercase()))))
}
