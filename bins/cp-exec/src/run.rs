//! `cp-exec`: run one command, or every request that comes in.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::value::RawValue;

use cp_common::filter::{self, Body, Filter, Source};
use cp_common::options::{InputKind, StreamOptions};
use cp_common::output::{Format, Severity};
use cp_common::record::Kind;
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Code, Context, Error, Result};

use crate::engine::{self, Stream, Watch};
use crate::execute::{Done, Manner, execute, pipeline};
use crate::governor::Governor;
use crate::names::refuse;
use crate::request::{self, Command, Request};
use crate::{check, confirm, decide, files, journal, machine, tools};

/// Run a command, or the requests on standard input
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where to run it
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Seconds it may take, at most 600
    #[arg(long, value_name = "S")]
    timeout: Option<f64>,
    /// Seconds before the deadline at which it is asked to end
    #[arg(long, value_name = "S")]
    grace: Option<f64>,
    /// A variable to set; once for each
    #[arg(long, value_name = "K=V")]
    env: Vec<String>,
    /// A directory of executable tools that requests may call; once for each
    #[arg(long, value_name = "DIR")]
    tools: Vec<PathBuf>,
    /// What the command reads: a file, or `-` for our own standard input
    #[arg(long, value_name = "FILE")]
    stdin: Option<String>,
    /// One string, split into words by the strict rules, never by a shell
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "command")]
    string: Option<String>,
    /// Decide and show, and run nothing
    #[arg(long)]
    dry_run: bool,
    /// The token of a dry run, for what needs to be confirmed
    #[arg(long, value_name = "TOKEN")]
    confirm: Option<String>,
    #[command(flatten)]
    stream: StreamOptions,
    /// The command and its arguments, after `--`
    #[arg(value_name = "COMMAND")]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let raw = context.out.format() == Format::Raw;
    let mut governor = Governor::new(context, &args.tools)?;
    if args.dry_run {
        return preview(&mut governor, args, context);
    }
    if args.string.is_none() && args.command.is_empty() {
        let mut requests = Requests { governor, grace: args.grace };
        return filter::run(&mut requests, Source::Input, args.stream, context);
    }
    context.out.filtering();
    context.out.outlive_reader();
    let outcome = one(&mut governor, args, context);
    if !raw {
        return outcome.and_then(|done| {
            let result = done.into_answer()?;
            context.out.record(Kind::ExecResult, &result)
        });
    }
    let status = match &outcome {
        Ok(done) => raw_status(done),
        Err(error) => raw_refusal(error),
    };
    if let Err(error) = outcome {
        let hint = error.cure().map(|cure| format!("\n  Hint: {cure}")).unwrap_or_default();
        let _ = writeln!(std::io::stderr(), "cp-exec: {error}{hint}");
    }
    context.out.ended_with(status);
    Ok(())
}

/// Says what would run, with the token that confirms it where one is needed.
fn preview(governor: &mut Governor, args: &Args, context: &mut Context) -> Result<()> {
    let command = command_of(governor, args)?;
    let decision = check::preview(governor, &command)?;
    context.out.answer(&decision)
}

/// Runs the one command of the command line.
fn one(governor: &mut Governor, args: &Args, context: &mut Context) -> Result<Done> {
    let read = command_of(governor, args);
    let command = on_record(governor, &(&args.command, &args.string), read)?;
    let words = command.stages[0].clone();
    let decided = decide::decide(governor, &command, &words);
    let ruling = on_record(governor, &words, decided)?;
    let settled = confirm::settle(governor, &ruling, command.confirm.as_deref());
    on_record(governor, &words, settled)?;
    for notice in &ruling.notices {
        context.out.notice("command", Severity::Info, notice.clone());
    }
    let stdin = match args.stdin.as_deref() {
        None => None,
        Some("-") => Some(engine::own_stdin()?),
        Some(path) => {
            Some(std::fs::File::open(path).map_err(|e| Error::io("--stdin", e).in_file(path.as_ref()))?.into())
        }
    };
    let raw = context.out.format() == Format::Raw;
    let mut pass = |stream: Stream, bytes: &[u8]| match stream {
        Stream::Out => drop(context.out.raw(bytes).and_then(|()| context.out.flush())),
        Stream::Err => drop(std::io::stderr().write_all(bytes)),
    };
    let grace = seconds("--grace", args.grace)?;
    let watch: Option<Watch<'_>> = if raw { Some(&mut pass) } else { None };
    execute(governor, &ruling, Manner { tool: "shell", stdin, grace, watch })
}

fn command_of(governor: &Governor, args: &Args) -> Result<Command> {
    let mut command = Command {
        cwd: args.cwd.clone(),
        timeout: args.timeout,
        confirm: args.confirm.clone(),
        stages: vec![args.command.clone()],
        ..Command::default()
    };
    for pair in &args.env {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Error::usage(format!("--env {pair}: there is no `=`")).hint("write --env NAME=VALUE"));
        };
        command.env.insert(name.to_owned(), value.to_owned());
    }
    if let Some(string) = &args.string {
        command.take_string(string, &governor.tilde())?;
    }
    command.check()?;
    Ok(command)
}

fn seconds(option: &str, value: Option<f64>) -> Result<Option<Duration>> {
    value
        .map(|value| {
            Duration::try_from_secs_f64(value)
                .map_err(|_| Error::usage(format!("{option} {value}: not a time in seconds")))
        })
        .transpose()
}

/// Puts a refusal on the ledger before it is answered.
fn on_record<T>(governor: &mut Governor, asked: &impl serde::Serialize, outcome: Result<T>) -> Result<T> {
    match outcome {
        Err(error) if !error.is_fatal() => {
            journal::refused(governor, asked, &error)?;
            Err(error)
        }
        other => other,
    }
}

/// A chain loader leaves with its child's own status.
fn raw_status(done: &Done) -> u8 {
    match (&done.failure, done.result.return_code, done.result.signal) {
        (Some((Code::Timeout, _)), ..) => 124,
        (Some((Code::Interrupted, _)), ..) => 130,
        (_, Some(code), _) => u8::try_from(code & 0xff).unwrap_or(125),
        (_, None, signal) => u8::try_from(128 + signal.unwrap_or(0)).unwrap_or(125),
    }
}

fn raw_refusal(error: &Error) -> u8 {
    match error.code() {
        Code::NotFound => 127,
        Code::Forbidden | Code::ConfirmationRequired | Code::HumanRequired | Code::Conflict => 126,
        _ => 125,
    }
}

/// The requests on standard input, answered one by one.
struct Requests {
    governor: Governor,
    grace: Option<f64>,
}

impl Filter for Requests {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::ToolCall]
    }

    fn bare_json(&self) -> InputKind {
        InputKind::Rows
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        context.out.outlive_reader();
        match body {
            Body::Text(_) => Err(Error::validation("requests are JSON objects, one a line")
                .hint("for a command line use -c STRING or -- COMMAND ARG…")),
            Body::Row(row) => self.row(row, context),
            Body::Record(record) => {
                let call: ToolCall = record.read()?;
                let result = self.call(&call)?;
                context.out.record(Kind::ToolResult, &result)
            }
        }
    }
}

/// Decides about every stage before any runs.
fn rule(governor: &mut Governor, command: &Command) -> Result<Vec<decide::Ruling>> {
    let mut rulings = Vec::new();
    for argv in &command.stages {
        let ruling = decide::decide(governor, command, argv)?;
        if command.stages.len() > 1 && ruling.confirm.is_some() {
            return Err(refuse("pipeline", format!("`{}` must be confirmed, and a pipeline cannot be", argv[0]))
                .hint("send this stage as a request of its own"));
        }
        confirm::settle(governor, &ruling, command.confirm.as_deref())?;
        rulings.push(ruling);
    }
    Ok(rulings)
}

/// What answers a request.
enum Answer {
    Done(Box<Done>),
    Item(files::Item),
}

impl Requests {
    fn row(&mut self, row: &RawValue, context: &mut Context) -> Result<()> {
        let asked = request::of_row(row, &self.governor.tilde());
        let request = on_record(&mut self.governor, &row, asked)?;
        match self.answer(&request, &row, context.out.format())? {
            Answer::Done(done) => context.out.record(Kind::ExecResult, &done.into_answer()?),
            Answer::Item(item) => context.out.record(Kind::Item, &item),
        }
    }

    /// Answers a tool call: a refusal or a failure is a result too, for the model to read.
    fn call(&mut self, call: &ToolCall) -> Result<ToolResult> {
        let started = std::time::Instant::now();
        let asked = request::of_call(&call.name, &call.input, &self.governor.tilde());
        let outcome = on_record(&mut self.governor, &(&call.name, &call.input), asked)
            .and_then(|request| self.answer(&request, &(&call.name, &call.input), Format::Json));
        let mut result = ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            content: String::new(),
            is_error: false,
            exit_code: None,
            duration_ms: 0,
            receipt: None,
            untrusted: vec!["/content".to_owned()],
        };
        match outcome {
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                result.is_error = true;
                let hint = error.cure().map(|cure| format!("\nHint: {cure}")).unwrap_or_default();
                result.content = format!("{error}{hint}");
            }
            Ok(Answer::Item(item)) => {
                result.content = item.content();
                result.receipt = Some(item.receipt);
            }
            Ok(Answer::Done(done)) => {
                result.exit_code = done.result.return_code;
                result.receipt = done.result.receipt;
                result.content = done.result.stdout;
                if let Some((_, message)) = done.failure {
                    result.is_error = true;
                    for part in [done.result.stderr, message] {
                        if !result.content.is_empty() && !result.content.ends_with('\n') {
                            result.content.push('\n');
                        }
                        result.content.push_str(&part);
                    }
                }
            }
        }
        result.duration_ms = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(result)
    }

    fn answer(&mut self, request: &Request, asked: &impl serde::Serialize, _format: Format) -> Result<Answer> {
        let governor = &mut self.governor;
        match request {
            Request::Command(command) => {
                let decided = rule(governor, command);
                let mut rulings = on_record(governor, asked, decided)?;
                let stdin = command.stdin.as_ref().map(|text| engine::stdin_of(text.as_bytes())).transpose()?;
                if rulings.len() > 1 {
                    return pipeline(governor, &rulings, stdin).map(|done| Answer::Done(Box::new(done)));
                }
                let grace = seconds("--grace", self.grace)?;
                let ruling = rulings.remove(0);
                let done = execute(governor, &ruling, Manner { tool: "shell", stdin, grace, watch: None })?;
                Ok(Answer::Done(Box::new(done)))
            }
            Request::Tool(call) => {
                let ruled = tools::rule(governor, call);
                let (ruling, stdin) = on_record(governor, asked, ruled)?;
                let done =
                    execute(governor, &ruling, Manner { tool: "tool", stdin: Some(stdin), grace: None, watch: None })?;
                Ok(Answer::Done(Box::new(done)))
            }
            Request::File(operation) => {
                let item = files::operate(governor, operation);
                on_record(governor, asked, item).map(Answer::Item)
            }
            Request::System(operation) => machine::answer(governor, *operation).map(Answer::Item),
        }
    }
}
