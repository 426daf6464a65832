//! `cp-ask`: a text in, the answer out. It composes the other programs for a person at a shell. The modules are
//!
//! - [`arguments`]: the command line
//! - [`ask`]: one question, from the text to the answer
//! - [`command_line`]: a proposed command line
//! - [`providers`]: keys and models
//! - [`templates`], [`logs`]: the commands of these names
//! - [`answer`]: prints the records of an answer
//! - [`conversation`]: the session of a call, and the current one of an agent
//! - [`files`]: the files and the tools of a question

mod answer;
mod arguments;
mod ask;
mod command_line;
mod conversation;
mod files;
mod logs;
mod providers;
mod templates;

use std::collections::BTreeMap;
use std::ffi::OsString;

use cp_common::coprocess::{find, replace};
use cp_common::home::Home;
use cp_common::home::config::variable;
use cp_common::output::{Output, to_stderr};
use cp_common::program::completion;
use cp_common::{Code, Error, Result};
use rustix::stdio::stdin;
use rustix::termios::isatty;

use crate::arguments::{Arguments, Verb};
use crate::conversation::{Agent, query};

/// Runs a command line and returns its exit status.
pub fn run(arguments: &[OsString], out: &mut Output) -> Result<u8> {
    if let Some(found) = completion::candidates(arguments::command, arguments) {
        return out.raw(&found).map(|()| 0);
    }
    settle()?;
    match arguments::parse(arguments)? {
        Arguments::Print(text) => out.raw(text.as_bytes()).map(|()| 0),
        Arguments::Command(verb, agent) => run_verb(verb, agent.as_deref(), out),
        Arguments::Ask(question) => {
            let has_input = question.reads_input || question.attaches_input() || !isatty(stdin());
            if question.needs_input() && !has_input {
                to_stderr(&arguments::command().render_help().to_string());
                return Ok(Code::Usage.row().exit);
            }
            let home = Home::find(None)?;
            match question.one("save") {
                Some(name) => out.raw(templates::save(name, &question, &home)?.as_bytes()).map(|()| 0),
                None if question.has("command") => command_line::propose(&question, out),
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
            return execute("cp-shell", &["init"], rest, &[TEXT]);
        }
        Verb::Config(rest) => return execute("cp-shell", &["config"], rest, &[TEXT]),
        Verb::Doctor(rest) => return execute("cp-shell", &["doctor"], rest, &[TEXT]),
        Verb::Chat(rest) => return execute("cp-shell", &["--interactive"], rest, &[]),
        Verb::Session(rest) => {
            let none = || Error::not_found("no conversation yet").hint("cp-ask TEXT begins one");
            let current = || Agent::of(agent, &home)?.current.session().ok_or_else(none);
            let session = variable("CP_SESSION").map_or_else(current, Ok)?;
            return execute("cp-session", &["load"], rest, &[TEXT, ("CP_SESSION", &session)]);
        }
        Verb::Reset => reset(agent, &home)?,
        Verb::Logs { limit, search } => logs::list(limit, search.as_deref())?,
        Verb::Models { action, rest } => return providers::models(action, rest, &home, out),
        Verb::Keys { action } => providers::keys(action.as_ref(), &home)?,
        Verb::Templates { name } => templates::show(name.as_deref(), &home)?,
        Verb::Completions { shell, .. } => completion::script("cp-ask", &shell),
    };
    out.raw(text.as_bytes()).map(|()| 0)
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

/// Other names of variables; of two names for one variable the first has precedence.
const ALIASES: [(&str, &str); 8] = [
    ("SHELLCLAW_HOME", "CP_HOME"),
    ("SHELLCLAW_AGENT_ID", "CP_AGENT"),
    ("SHELLCLAW_DEFAULT_AGENT", "CP_AGENT"),
    ("SHELLCLAW_MODEL", "CP_MODEL"),
    ("SHELLCLAW_LLM_BACKEND", "CP_BACKEND"),
    ("SHELLCLAW_TOOL_BACKEND", "CP_TOOL_BACKEND"),
    ("SHELLCLAW_SKILLS_DIR", "CP_TOOLS_DIR"),
    ("SHELLCLAW_TOOLS_DIR", "CP_TOOLS_DIR"),
];

/// Executes this process again with the variables that only have a value under another name, if there are any, so that
/// every program that it starts has the same environment.
pub(crate) fn settle() -> Result<()> {
    let mut missing = BTreeMap::new();
    for (alias, name) in ALIASES {
        // This one names the agent of the moment, and CP_AGENT may name that of the settings.
        let is_missing = variable(name).is_none() || alias == "SHELLCLAW_AGENT_ID" && variable(name) != variable(alias);
        if let Some(value) = variable(alias).filter(|_| is_missing) {
            missing.entry(name).or_insert(value);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    let program = std::env::current_exe().map_err(|e| Error::io("finding cp-ask", e))?;
    Err(Error::io("starting cp-ask", replace(program, std::env::args_os().skip(1), &missing)))
}

/// Words for the program that carries out a command.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Rest {
    #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// The format for a person.
pub(crate) const TEXT: (&str, &str) = ("CP_FORMAT", "text");

/// Replaces this process with a program. Returns only if the program cannot be started. Defaults are variables, so that
/// the options are left to the person.
pub(crate) fn execute(program: &str, words: &[&str], rest: Rest, defaults: &[(&str, &str)]) -> Result<u8> {
    let words = words.iter().map(OsString::from).chain(rest.words);
    let defaults = defaults.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    Err(Error::io(format!("starting {program}"), replace(find(program)?, words, &defaults)))
}
