//! `cp-exec`: runs one command, or every request on standard input.

pub(crate) mod check;
mod requests;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, IsTerminal as _, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use cp_common::context::given::{note_unread_input, refuse_unread_file, unreadable};
use cp_common::context::options::{StreamOptions, WriteOptions, seconds};
use cp_common::coprocess::replace;
use cp_common::output::{Format, Severity, has_lost_reader, to_stderr};
use cp_common::program::grant::inspect;
use cp_common::program::idempotency::{self, Begun};
use cp_common::program::terminal;
use cp_common::program::{Class, Input, VerbDoc, require_text};
use cp_common::stream::filter::{self, Source};
use cp_common::wire::record::Kind;
use cp_common::wire::{Reply as _, quoted};
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;
use serde_json::Value;

use self::requests::Requests;
use crate::decision;
use crate::decision::confirm;
use crate::digest::sha256;
use crate::exec_result::ExecResult;
use crate::policy::{Access, HostCall, Policy};
use crate::request::{Command, word_text};
use crate::run::approvals::paused;
use crate::run::{Engine, FinishedRun, Prepared, RunResult, Stream, streams, until_answered};
use crate::verbs::allow;

pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["item", "decision", "tool_result", "summary"],
    examples: &["{} policy init && {} -- ls", r#"echo '{"tool":"system","operation":"get_info"}' | {}"#],
    input: &[Input::Rows, Input::Records],
    // Exit statuses of the raw format, in addition to those of the command.
    exits: &[124, 125, 126, 127],
    events: &[
        "exec.intent",
        "exec.step",
        "exec.connection",
        "exec.result",
        "exec.changes",
        "exec.refused",
        "exec.operation",
        "approval.asked",
        "approval.granted",
        "approval.denied",
        "approval.spent",
    ],
    ..VerbDoc::new("", Class::Governed, "exec_result")
};

/// Run a command, or the requests on standard input
#[derive(clap::Args, Clone, Default, PartialEq)]
pub(crate) struct Args {
    /// Directory to run it in
    #[arg(short = 'C', long, value_name = "DIR", help_heading = "Execution")]
    pub cwd: Option<String>,
    /// The time after which it is killed, at most 10m
    #[arg(long, value_name = "DURATION", value_parser = seconds, help_heading = "Execution")]
    pub timeout: Option<f64>,
    /// A variable: its value, or only its name to pass it on (repeatable)
    #[arg(long, value_name = "K=V", help_heading = "Execution", hide_short_help = true)]
    pub env: Vec<String>,
    /// A directory of executable tools that requests may call (repeatable)
    #[arg(long, value_name = "DIR", help_heading = "Requests", hide_short_help = true)]
    pub tools: Vec<PathBuf>,
    /// The command's standard input: a file, or `-` for that of cp-exec
    #[arg(long, value_name = "FILE", help_heading = "Execution")]
    pub stdin: Option<String>,
    /// A command line, run by a shell inside the sandbox
    #[arg(short = 'c', value_name = "STRING", help_heading = "Execution")]
    #[arg(allow_hyphen_values = true, conflicts_with = "command")]
    pub string: Option<String>,
    /// Read-only: no writes and no network, whatever the policy allows
    #[arg(long, help_heading = "Permissions")]
    pub read_only: bool,
    /// Internal: the tool call of another agent that it serves, as HOST/SESSION/CALL
    // The standard input is not that of its command.
    #[arg(long, value_name = "CALL", hide = true)]
    pub hosted: Option<String>,
    /// Internal: serve the process that started this one, for a day at most, and end with it
    #[arg(long, hide = true)]
    pub lasting: bool,
    /// Internal: the inherited descriptor of a lock, which stays locked while a process of a run exists
    #[arg(long, value_name = "FD", hide = true)]
    pub lock: Option<i32>,
    #[command(flatten)]
    pub write: WriteOptions,
    #[command(flatten)]
    pub stream: StreamOptions,
    /// The command and its arguments, after `--`
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub command: Vec<OsString>,
    /// The text that the shell runs for the line of an agent, if the agent adds something around it.
    #[arg(skip)]
    pub shell_text: Option<Box<str>>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    require_text(args.tools.iter().map(PathBuf::as_path))?;
    let mut engine = Engine::new(context, &args.tools)?;
    if let Some(hosted) = &args.hosted {
        engine.serve(HostCall::of(hosted)?);
    }
    engine.lock = args.lock;
    if args.lasting {
        engine.policy.is_of_server = true;
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    if args.read_only {
        engine.policy.set_read_only();
    }
    begin(&mut engine, args.write.dry_run, context)?;
    if args.string.is_none() && args.command.is_empty() {
        requests(engine, args, context)
    } else if args.write.dry_run {
        let command = command_of(&engine.policy, args);
        context.out.answer(&check::preview(&engine.policy, &mut engine.hashes, command)?)
    } else {
        command(&mut engine, args, context)
    }
}

/// Warns about advisory approvals, and cleans up after killed runs.
pub(super) fn begin(engine: &mut Engine, dry_run: bool, context: &mut Context) -> Result<()> {
    if engine.policy.approvals_are_advisory() {
        let message = "approvals are advisory: the user who asks can read the key that signs them";
        context.out.notice("approvals_advisory", Severity::Warning, message);
    }
    if dry_run { Ok(()) } else { report_killed_runs(engine, context) }
}

/// Cleans up after killed runs.
pub(crate) fn report_killed_runs(engine: &mut Engine, context: &mut Context) -> Result<()> {
    engine.settle_killed_runs()?.into_iter().for_each(|message| say("killed_run", message, context));
    Ok(())
}

/// Warns on standard error and in the answer.
pub(super) fn say(kind: &'static str, message: String, context: &mut Context) {
    context.warn(&message);
    context.out.notice(kind, Severity::Warning, message);
}

/// Says that the project is a part of a repository that a run does not see.
pub(super) fn notice_of_repository(engine: &Engine, context: &mut Context) {
    let base = &engine.policy.base;
    let is_repository = |directory: &&Path| directory.join(".git").exists();
    let Some(root) = base.ancestors().find(is_repository).filter(|root| root != base) else { return };
    if engine.policy.bounds.lists(Access::Read, &root.join(".git")) {
        return;
    }
    let shown = |path: &Path| quoted(&path.display().to_string());
    let (below, root) = (shown(base.strip_prefix(root).unwrap_or(base)), shown(root));
    let message = format!("the repository {root} is not visible from here; cd {root}; cp-exec -C {below} ... shows it");
    say("below_repository", message, context);
}

/// Answers every request on standard input.
fn requests(engine: Engine, args: &Args, context: &mut Context) -> Result<()> {
    let of_command = [
        (args.stdin.is_some(), "--stdin", "a request carries its own input in `stdin`"),
        (args.write.request_id.is_some(), "--request-id", "give the command after --"),
        (args.write.confirm.is_some(), "--confirm", "give each request its own token as `confirm`"),
    ];
    if let Some((_, option, hint)) = of_command.iter().find(|(is_given, ..)| *is_given) {
        let message = format!("{option} applies to one command, not to requests on standard input");
        return Err(Error::usage(message).hint(*hint));
    }
    let preview = args.write.dry_run.then_some(check::preview as _);
    let mut requests = Requests { engine, args, env: variables(&args.env)?, preview };
    filter::run(&mut requests, Source::Input, args.stream, context)
}

/// Runs the command of the command line, and answers or exits with its status.
pub(super) fn command(engine: &mut Engine, args: &Args, context: &mut Context) -> Result<()> {
    let is_ignored = args.input(context).is_none() && args.hosted.is_none();
    if is_ignored {
        refuse_unread_file(READ_INPUT)?;
    }
    context.out.filtering();
    context.out.outlive_reader();
    let outcome = once(engine, args, context);
    if !outcome.as_ref().is_ok_and(|done| done.failure.is_none()) {
        notice_of_repository(engine, context);
    }
    if is_ignored {
        note_unread_input(READ_INPUT, context);
    }
    let refused = if may_ask(engine, args, context) { allow::refused(&outcome) } else { Vec::new() };
    let answered = answer(outcome, context.out.format() == Format::Raw, context);
    context.out.flush()?;
    allow::offer(&refused, context)?;
    answered
}

/// True for a person who types the command and sees what it writes.
fn may_ask(engine: &Engine, args: &Args, context: &Context) -> bool {
    let is_typed = args.hosted.is_none() && engine.policy.actor.call.is_none() && args.write.request_id.is_none();
    let is_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    is_typed && is_terminal && context.out.format() != Format::Json
}

/// The way to pass standard input to a command.
const READ_INPUT: &str = "use --stdin - to pass it to the command";

impl Args {
    /// The standard input of the command: a file, or `-` for that of this process. In the raw format a command gets it
    /// without an option, as from env and nice, unless it comes from a terminal or would have to be compared with an
    /// earlier request.
    fn input(&self, context: &Context) -> Option<&str> {
        let hands_on = context.out.format() == Format::Raw && self.hosted.is_none() && self.write.request_id.is_none();
        self.stdin.as_deref().or_else(|| (hands_on && !std::io::stdin().is_terminal()).then_some("-"))
    }
}

/// Answers with a run, or exits with its status if its output was passed on.
pub(super) fn answer(outcome: Result<FinishedRun>, is_passed: bool, context: &mut Context) -> Result<()> {
    if is_passed {
        exit_with_status(&outcome, context);
        return Ok(());
    }
    let done = outcome?;
    let output = done.result.text();
    // The output of the command explains its failure; in JSON the error has it.
    if done.failure.is_some() && context.out.format() == Format::Text && !output.is_empty() {
        context.out.piece(&format!("{output}\n"))?;
    }
    context.out.record(Kind::ExecResult, &done.into_answer()?)
}

/// True unless the caller explicitly asks for JSON: the output of an agent is passed on, also into a pipe.
pub(super) fn is_live(context: &Context) -> bool {
    !context.options.json && context.options.format != Some(Format::Json)
}

/// Replaces this process by a program. Returns only on failure.
pub(super) fn replaced_by<T>(
    program: impl AsRef<OsStr>,
    words: &[impl AsRef<OsStr>],
    variables: &BTreeMap<&str, String>,
) -> Result<T> {
    let failed = replace(&program, words, variables);
    let code = if failed.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Forbidden };
    Err(Error::new(code, format!("{}: {failed}", program.as_ref().display())).with("rule", "not_executable"))
}

/// Exits with the status of the command, as a chain loader does. If another failure counts more, standard error has it,
/// and the status is that of the failure.
pub(super) fn exit_with_status(outcome: &Result<FinishedRun>, context: &mut Context) {
    let (failure, is_ended) = match outcome {
        Ok(done) => (done.failure.as_ref(), done.is_ended),
        Err(error) => (Some(error), true),
    };
    if let Some(error) = failure.filter(|_| is_ended) {
        let hint = error.hint_text().map(|hint| format!("\n  Hint: {}", hint.replace('\n', "\n  ")));
        let hint = hint.unwrap_or_default();
        to_stderr(&format!("cp-exec: {error}{hint}\n"));
    }
    let status = match (failure.map(Error::code), outcome) {
        (Some(Code::Timeout), _) => 124,
        (Some(Code::Interrupted), _) => 130,
        (code, Ok(done)) if !is_ended || code == Some(Code::CommandFailed) => {
            let of_signal = || 128 + done.result.signal.unwrap_or_default();
            u8::try_from(done.result.return_code.map_or_else(of_signal, |code| code & 0xff)).unwrap_or(125)
        }
        (Some(Code::NotFound), _) => 127,
        (Some(Code::Forbidden | Code::ConfirmationRequired | Code::HumanRequired | Code::Conflict), _) => 126,
        _ => 125,
    };
    context.out.ended_with(status);
}

/// Runs the command, or returns the stored result of its request id.
fn once(engine: &mut Engine, args: &Args, context: &mut Context) -> Result<FinishedRun> {
    let id = args.write.request_id.as_deref();
    let asked = id.map(|_| request_identity(args, context)).transpose()?;
    let request = match idempotency::begin::<(ExecResult, Option<Value>, bool)>(id, &asked, context)? {
        Begun::Again(kept) => {
            let (result, failure, is_ended) = kept?;
            if context.out.format() == Format::Raw {
                context.out.raw(result.stdout.as_bytes())?;
                std::io::stderr().write_all(result.stderr.as_bytes())?;
            }
            return Ok(FinishedRun { result, failure: failure.as_ref().map(Error::from_value), is_ended });
        }
        Begun::First(request) => request,
    };
    let prepared = match prepare(engine, args, context) {
        Ok(prepared) => prepared,
        // Nothing ran, so the same request may be repeated after the cause is removed.
        Err(error) => return request.release().and(Err(error)),
    };
    // From here on the command may have had an effect. If no result is stored, a repeated request reports that the
    // first one did not finish.
    let done = supervise(prepared, engine, args, context)?;
    if done.failure.as_ref().is_some_and(|error| error.code() == Code::Interrupted) {
        return Ok(done);
    }
    let failure = done.failure.as_ref().map(Error::to_value);
    let (result, ..) = request.keep(Ok((done.result, failure, done.is_ended)), context)?;
    Ok(FinishedRun { result, ..done })
}

/// The parts of the command line that identify the command.
fn request_identity(args: &Args, context: &Context) -> Result<impl Serialize + use<>> {
    let input = match args.stdin.as_deref() {
        None => None,
        Some("-") => {
            return Err(Error::usage("--request-id needs an input that can be compared").hint("give --stdin a file"));
        }
        Some(path) => {
            let bytes = std::fs::read(path).map_err(|e| unreadable(e, "file", path.as_ref()))?;
            Some((std::path::absolute(path)?, sha256(&bytes)))
        }
    };
    let base = context.base()?;
    let cwd = args.cwd.as_ref().map(|cwd| base.join(cwd));
    let tools = args.tools.iter().map(std::path::absolute).collect::<std::io::Result<Vec<_>>>()?;
    let place = (base, cwd, context.options.root.clone(), tools);
    let words: Vec<String> = args.command.iter().map(word_text).collect();
    Ok(("run", words, args.string.clone(), variables(&args.env)?, args.timeout, place, input))
}

/// Decides about the command of the command line, and records its intent.
fn prepare(engine: &mut Engine, args: &Args, context: &mut Context) -> Result<Prepared> {
    let asked = (args.command.iter().map(word_text).collect::<Vec<_>>(), &args.string);
    let read = command_of(&engine.policy, args);
    let command = on_record(engine, &asked, read)?;
    let input = args.input(context);
    let stdin = || match input {
        None => Ok(None),
        Some("-") => streams::copy_own_stdin().map(Some),
        Some(path) => streams::stdin_from_file(path.as_ref()).map(Some),
    };
    let ready = until_answered(engine, command.typed, |engine| ready(engine, &command, stdin));
    on_record(engine, &asked, ready)
}

/// Decides about a command, and records its intent.
fn ready(engine: &mut Engine, command: &Command, stdin: impl Fn() -> Result<Option<OwnedFd>>) -> Result<Prepared> {
    if let Some(token) = &command.confirm {
        inspect(&engine.policy.cp_home, token)?;
    }
    let decision = decision::decide(&engine.policy, &mut engine.hashes, command)?;
    let mut ruling = decision::plan(&engine.policy, decision)?;
    let by_person = command.typed && terminal::is_there();
    confirm::confirm_ruling(&engine.policy, &mut ruling, command.confirm.as_deref(), by_person)?;
    Prepared::new(engine, "shell", ruling, stdin()?)
}

/// Runs a command.
fn supervise(mut prepared: Prepared, engine: &mut Engine, args: &Args, context: &mut Context) -> Result<FinishedRun> {
    let copy = prepared.stdin.as_ref().filter(|_| args.input(context) == Some("-"));
    let copy = copy.map(OwnedFd::try_clone).transpose()?;
    let is_raw = context.out.format() == Format::Raw;
    let (ran, passed) = pass_on(is_raw, &mut prepared, engine, context);
    if let Some(copy) = copy {
        streams::advance_own_stdin(copy);
    }
    let finished = prepared.settle(engine, ran)?;
    passed.map(|()| finished)
}

/// Runs a command, and passes its output on as it arrives if it is `live`. Also returns the first failure to write it.
pub(super) fn pass_on(
    live: bool,
    prepared: &mut Prepared,
    engine: &mut Engine,
    context: &mut Context,
) -> (RunResult, Result<()>) {
    let mut passed = Ok(());
    let mut pass = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Out => {
            if passed.is_ok() {
                passed = context.out.raw(bytes).and_then(|()| context.out.flush());
            }
            passed.is_ok() && !has_lost_reader()
        }
        Stream::Err => std::io::stderr().write_all(bytes).is_ok(),
    };
    let ran = prepared.run(engine, if live { Some(&mut pass) } else { None });
    (ran, passed)
}

fn command_of(policy: &Policy, args: &Args) -> Result<Command> {
    let mut command = Command {
        cwd: args.cwd.clone(),
        timeout: args.timeout,
        confirm: args.write.confirm.clone(),
        shell_text: args.shell_text.clone(),
        typed: args.hosted.is_none() && policy.actor.call.is_none(),
        ..Command::of(args.string.as_deref(), &args.command)
    };
    command.env.extend(variables(&args.env)?);
    command.check().map(|()| command)
}

/// The variables of `--env`. One without a value is passed on.
pub(super) fn variables(given: &[String]) -> Result<Vec<(String, String)>> {
    let one = |pair: &String| {
        let wrong = |why: &str| Error::usage(format!("--env {pair}: {why}")).hint("write --env NAME=VALUE");
        let (name, value) = match pair.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => (pair.as_str(), std::env::var(pair).map_err(|e| wrong(&e.to_string()))?),
        };
        if name.is_empty() || value.contains('\0') {
            return Err(wrong("not a valid variable"));
        }
        Ok((name.to_owned(), value))
    };
    given.iter().map(one).collect()
}

/// Records a refusal before it is answered.
pub(super) fn on_record<T>(engine: &mut Engine, asked: &impl Serialize, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error) if !error.is_fatal() && paused(&error).is_none() => {
            engine.journal.refused(asked, &error)?;
            Err(error)
        }
        other => other,
    }
}
