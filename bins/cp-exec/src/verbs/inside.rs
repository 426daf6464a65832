//! cp-exec inside the sandbox of another cp-exec: replaces itself by its command, because the supervisor outside decides
//! about each program when it starts, and records it. Hooks of an agent report their tool calls to the supervisor.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::os::fd::AsFd as _;

use cp_common::{Code, Context, Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::{Value, json};

use super::hook::{self as hook_verb, Answer, Verb, input_hash, question};
use super::run::{Args, exit_with_status, is_live, replaced_by, variables};
use crate::decision::shell_words;
use crate::hook::{self, Moment, Verdict};
use crate::hosts::Does;
use crate::hosts::Host;
use crate::run::clients::ToolCall;
use crate::sandbox;

/// The refusal of all but commands and hooks.
pub(crate) fn refusal() -> Error {
    Error::new(Code::Forbidden, "inside a cp-exec sandbox cp-exec executes a command, and nothing else")
        .with("rule", "inside")
        .hint("run the command itself; run other verbs outside of the sandbox")
}

pub(crate) fn command(args: &Args, context: &mut Context) -> Result<()> {
    let Args { cwd, env, string, command, .. } = args.clone();
    let has_command = string.is_some() || !command.is_empty();
    let has_others = *args != Args { cwd, env, string, command, ..Args::default() } || context.options.root.is_some();
    if !has_command || has_others || !is_live(context) {
        return Err(refusal());
    }
    exit_with_status(&replaced(args, context), context);
    Ok(())
}

/// Replaces this process by the command. Returns only if that fails.
fn replaced<T>(args: &Args, context: &Context) -> Result<T> {
    let variables = variables(&args.env)?;
    let variables = variables.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    let directory = context.base()?.join(args.cwd.as_deref().unwrap_or_default());
    std::env::set_current_dir(&directory).map_err(|e| Error::io("--cwd", e).in_file(&directory))?;
    match &args.string {
        Some(line) => replaced_by_line(line, &variables),
        None => replaced_by(&args.command[0], &args.command[1..], &variables),
    }
}

/// Replaces this process by a shell that runs a line. Returns only on failure.
fn replaced_by_line<T>(line: &str, variables: &BTreeMap<&str, String>) -> Result<T> {
    let (shell, words) = shell_words(line)?;
    replaced_by(shell, &words[1..], variables)
}

/// Answers a hook, or runs a line of the agent's shell as it is. The other verbs change a configuration.
pub(crate) fn hook(args: &hook_verb::Args, context: &mut Context) -> Result<()> {
    match (&args.verb, args.host) {
        (None, Some(host)) => tool_call(host, context),
        (Some(Verb::Shell(args)), _) => replaced_by_line(&args.line, &BTreeMap::new()),
        _ => Err(refusal()),
    }
}

/// Reports a tool call before it is made, which goes on unchanged, because everything that it starts is inside as well.
fn tool_call(named: Host, context: &mut Context) -> Result<()> {
    let event = hook::decode(&question()?, named)?;
    let Moment::Before(tool) = &event.moment else {
        return context.out.answer(&Answer::of(event.host, None));
    };
    let base = context.base()?;
    // Files of skills and requests to the network are inside as well.
    let effect = hook::effect_of(tool, event.cwd.as_deref().unwrap_or(&base))?;
    let by_name = matches!(effect.does, Does::Unknown | Does::Skill | Does::Stdin | Does::Fetch | Does::None);
    let by_default = (by_name && effect.line.is_none()).then_some(effect.does != Does::Unknown);
    let command = hook::command(tool).filter(|line| line.len() <= LONGEST);
    let data = json!({ "command": command, "input_hash": input_hash(tool), "cwd": event.cwd });
    report(&ToolCall { host_call: event.call, tool: tool.name.clone(), by_default, data })?;
    context.out.answer(&Answer::of(event.host, Some(&Verdict::Pass)))
}

/// The time limit for an answer of the supervisor.
const PATIENCE: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// The longest command line that is reported, in bytes. What it starts is recorded in any case.
const LONGEST: usize = 8 << 10;

/// Sends a tool call to the supervisor, which records or refuses it.
fn report(call: &ToolCall) -> Result<()> {
    let exchange = || -> io::Result<Option<Value>> {
        let supervisor = sandbox::connect()?;
        sandbox::send(supervisor.as_fd(), call, &[])?;
        poll(&mut [PollFd::new(&supervisor, PollFlags::IN)], Some(&PATIENCE))?;
        let answer = sandbox::receive(supervisor.as_fd())?;
        answer.map(|(error, _)| error).ok_or_else(|| ErrorKind::UnexpectedEof.into())
    };
    match exchange() {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(Error::from_value(&error)),
        Err(e) => Err(Error::io("the supervisor outside of the sandbox does not answer", e)),
    }
}
