//! `cp-exec agent`: runs a whole coding agent in the sandbox.

use std::path::PathBuf;
use std::time::Duration;

use cp_common::context::options::seconds;
use cp_common::output::{Severity, line_to_stderr, to_stderr};
use cp_common::program::{Class, Input, VerbDoc, require_text};
use cp_common::{Context, Error, Result};
use cp_hosts::Host;

use super::run::{answer_live, begin, is_live, notice_of_repository, on_record, pass_on};
use crate::agent::{Request, host_of, prepare};
use crate::decision::decide_agent;
use crate::hosts::facts::Facts;
use crate::run::{Engine, FinishedRun, Prepared, RunResult, streams};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "agent",
    class: Class::Governed,
    output: "exec_result",
    examples: &["cp-exec policy init --for . && {} agent --json -- bash -c 'echo inside'"],
    input: &[Input::Bytes],
    exits: &[124, 125, 126, 127],
    events: super::run::DOC.events,
    ..VerbDoc::EMPTY
};

/// The time that an agent gets to end by itself after a signal.
const PATIENCE: Duration = Duration::from_secs(3);

/// Run a whole coding agent in the sandbox
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent (default: the name of COMMAND)
    #[arg(value_name = "HOST", value_enum)]
    host: Option<Host>,
    /// A directory with state of the agent, which the agent may write (repeatable)
    #[arg(long, value_name = "DIR")]
    state: Vec<PathBuf>,
    /// A file or directory that the agent may read (repeatable)
    #[arg(long, value_name = "PATH")]
    read: Vec<PathBuf>,
    /// A domain that the agent needs (repeatable)
    #[arg(long = "allow-host", value_name = "DOMAIN")]
    domains: Vec<String>,
    /// A variable of the agent: its value, or only its name to pass it on (repeatable)
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// Log in to the service of HOST, and keep the token in the agent's private state
    #[arg(long)]
    login: bool,
    /// The time after which the agent is killed (default: none)
    #[arg(long, value_name = "DURATION", value_parser = seconds)]
    timeout: Option<f64>,
    /// The command that starts the agent, after `--`
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    require_text("--state", args.state.iter().map(PathBuf::as_path))?;
    let host = host_of(args.host, &args.command);
    if args.login && host.is_none() {
        return Err(Error::usage("--login without a host").hint("write cp-exec agent --login claude"));
    }
    if args.command.is_empty() && !args.login {
        return Err(Error::usage("there is no command").hint("write cp-exec agent -- claude"));
    }
    let mut engine = Engine::new(context, &[])?;
    begin(&mut engine, false, context)?;
    notice_of_repository(&engine, context);
    context.out.filtering();
    context.out.outlive_reader();
    let outcome =
        start(args, host, &mut engine, context).and_then(|prepared| supervise(prepared, &mut engine, context));
    answer_live(outcome, context)
}

/// Decides about the agent, and records its intent.
fn start(args: &Args, host: Option<Host>, engine: &mut Engine, context: &mut Context) -> Result<Prepared> {
    for path in &args.read {
        let missing = |e| Error::io("--read", e).in_file(path);
        let real = engine.policy.base.join(path).canonicalize().map_err(missing)?;
        engine.policy.allow(&real, false);
    }
    let request = Request {
        host,
        argv: &args.command,
        state: &args.state,
        domains: &args.domains,
        login: args.login,
        env: &args.env,
        interactive: is_live(context),
    };
    let ruling = prepare(&request, &engine.policy).and_then(|(mut agent, notes)| {
        say(context, "state", notes);
        if let Some(seconds) = args.timeout {
            agent.timeout = Duration::try_from_secs_f64(seconds)
                .map_err(|_| Error::usage(format!("--timeout {seconds}: not a valid number of seconds")))?;
        }
        let (ruling, unseen) = decide_agent(&mut engine.policy, &mut engine.hashes, agent)?;
        let shown = |path: PathBuf| format!("the agent cannot read {0}; --read {0} shows it", path.display());
        say(context, "unseen_file", unseen.into_iter().map(shown));
        Ok(ruling)
    });
    let ruling = on_record(engine, &args.command, ruling)?;
    // A terminal that the agent does not get is not a source of input.
    let is_terminal = rustix::termios::isatty(rustix::stdio::stdin());
    let stdin = if is_terminal { None } else { Some(streams::copy_own_stdin()?) };
    let mut prepared = Prepared::new(engine, "agent", ruling, stdin, None)?;
    prepared.patience = PATIENCE;
    prepared.quiet = host.map_or(&[], |host| &Facts::of(host).agent.quiet);
    Ok(prepared)
}

/// Warns on standard error and in the answer.
fn say(context: &mut Context, kind: &'static str, messages: impl IntoIterator<Item = String>) {
    for message in messages {
        context.warn(&message);
        context.out.notice(kind, Severity::Warning, message);
    }
}

/// Runs the agent, and reports its end on standard error.
fn supervise(mut prepared: Prepared, engine: &mut Engine, context: &mut Context) -> Result<FinishedRun> {
    let (ran, passed) = pass_on(is_live(context), context, |watch| prepared.run(watch));
    let summary = summary(&ran);
    // At a terminal these are the messages of this program, which the screen of the agent did not show.
    let kept = ran.as_ref().ok().filter(|_| prepared.has_terminal()).map(|outcome| outcome.stderr.bytes.clone());
    let finished = prepared.settle(engine, ran)?;
    if let Some(summary) = summary {
        to_stderr(&String::from_utf8_lossy(&kept.unwrap_or_default()));
        line_to_stderr(&summary);
    }
    passed.map(|()| finished)
}

/// The lines at the end of an agent: quarantined files, and each count that the sandbox knows.
fn summary(ran: &RunResult) -> Option<String> {
    let outcome = ran.as_ref().ok()?;
    let steps = &outcome.steps;
    let counted = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    let decided = |count, refused: u64, one, many| format!("{} ({refused} refused)", counted(count, one, many));
    let mut parts = vec![
        decided(steps.calls, steps.calls_denied, "tool call", "tool calls"),
        decided(steps.line + steps.programs, steps.denied_count, "program", "programs"),
    ];
    let connections = outcome.connections.as_ref().filter(|all| all.allowed + all.refused > 0);
    parts.extend(connections.map(|all| decided(all.allowed + all.refused, all.refused, "connection", "connections")));
    parts.push(counted(outcome.enforcement.guard.len() as u64, "file quarantined", "files quarantined"));
    let ended = outcome.ended.and_then(|ended| serde_json::to_value(ended).ok()?.as_str().map(str::to_owned));
    parts.extend(ended.map(|ended| format!("ended ({ended})")));
    let files = outcome.enforcement.guard.iter().map(|file| {
        let why = file.reason.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
        format!("cp-exec: quarantined: {}{why}\n", file.path)
    });
    Some(format!("{}cp-exec agent: {}", files.collect::<String>(), parts.join(", ")))
}
