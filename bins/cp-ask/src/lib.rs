//! `cp-ask`: a text in, the answer out. It composes the other programs for a person at a shell. The modules are
//!
//! - [`arguments`]: the command line
//! - [`ask`]: one question, from the text to the answer
//! - [`command_line`]: a proposed command line
//! - [`keys`], [`models`], [`templates`], [`logs`]: the commands of these names
//! - [`answer`]: prints the records of an answer
//! - [`conversation`]: the session of a call, and the current one of an agent
//! - [`files`]: the files of `-f`
//! - [`tools`]: the tools of a question
//! - [`environment`]: the programs that are started

mod answer;
mod arguments;
mod ask;
mod command_line;
mod conversation;
mod environment;
mod files;
mod keys;
mod logs;
mod models;
mod templates;
mod tools;

use std::ffi::OsString;

use cp_common::home::Home;
use cp_common::output::{Output, to_stderr};
use cp_common::program::completion;
use cp_common::{Code, Error, Result};
use rustix::stdio::stdin;
use rustix::termios::isatty;

use crate::arguments::{Arguments, Verb};
use crate::conversation::{Agent, query};
use crate::environment::{execute, variable};

/// Runs a command line and returns its exit status.
pub fn run(arguments: &[OsString], out: &mut Output) -> Result<u8> {
    if let Some(found) = completion::candidates(arguments::command, arguments) {
        return out.raw(&found).map(|()| 0);
    }
    match arguments::parse(arguments)? {
        Arguments::Print(text) => out.raw(text.as_bytes()).map(|()| 0),
        Arguments::Command(verb, agent) => {
            environment::settle()?;
            run_verb(verb, agent.as_deref(), out)
        }
        Arguments::Ask(question) => {
            environment::settle()?;
            if question.text.is_empty() && question.takes_no_input() && isatty(stdin()) {
                to_stderr(&arguments::usage());
                return Ok(Code::Usage.row().exit);
            }
            let home = Home::find(None)?;
            match &question.save {
                Some(name) => out.raw(templates::save(name, &question, &home)?.as_bytes()).map(|()| 0),
                None if question.command => command_line::propose(&question, out),
                None => ask::ask(*question, &home, out),
            }
        }
    }
}

fn run_verb(verb: Verb, agent: Option<&str>, out: &mut Output) -> Result<u8> {
    let home = Home::find(None)?;
    let text = match verb {
        Verb::Init(rest) => {
            templates::create_starters(&home)?;
            return execute("cp-shell", &["init", "--format", "text"], rest);
        }
        Verb::Config(rest) => return execute("cp-shell", &["config", "--format", "text"], rest),
        Verb::Doctor(rest) => return execute("cp-shell", &["doctor", "--format", "text"], rest),
        Verb::Chat(rest) => return execute("cp-shell", &["--interactive"], rest),
        Verb::Session(rest) => {
            let session = current(agent, &home)?;
            return execute("cp-session", &["load", "--session", &session, "--format", "text"], rest);
        }
        Verb::Log(rest) => {
            let session = current(agent, &home)?;
            return execute("cp-log", &["query", "--session", &session, "--format", "raw"], rest);
        }
        Verb::Reset => reset(agent, &home)?,
        Verb::Logs(args) => logs::list(&args)?,
        Verb::Models(args) => return models::run(args, &home, out),
        Verb::Keys(args) => keys::run(&args, &home)?,
        Verb::Templates { name } => templates::show(name.as_deref(), &home)?,
        Verb::Completions { shell, .. } => completion::script("cp-ask", &shell).script,
        Verb::Help => arguments::usage(),
    };
    out.raw(text.as_bytes()).map(|()| 0)
}

/// Returns the session that the commands apply to.
fn current(agent: Option<&str>, home: &Home) -> Result<String> {
    if let Some(session) = variable("CP_SESSION") {
        return Ok(session);
    }
    let none = || Error::not_found("no conversation yet").hint("cp-ask TEXT begins one");
    Agent::of(agent, home)?.current().ok_or_else(none)
}

fn reset(agent: Option<&str>, home: &Home) -> Result<String> {
    if let Some(session) = variable("CP_SESSION") {
        query(&["clear", "--session", &session])?;
        return Ok(format!("{session} is cleared, its turns are archived\n"));
    }
    let (old, new) = Agent::of(agent, home)?.reset()?;
    let kept = old.map(|old| format!("{old} is kept\n")).unwrap_or_default();
    Ok(format!("{kept}{new} is current\n"))
}
