//! `cp-exec` inside the sandbox of another cp-exec: executes its command, and the commands of its requests.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use cp_common::context::options::InputKind;
use cp_common::output::Format;
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};

use super::answers::Answer;
use super::requests::Overrides;
use super::{Args, answer, duration_of, pass_on, variables};
use crate::request::{Command, Form, Request, of_line};
use crate::run::inside::{Inside, home};
use crate::run::streams;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    check_options(args, context)?;
    let overrides = Overrides { cwd: args.cwd.clone(), timeout: args.timeout, grace: None, env: variables(args)? };
    if args.string.is_none() && args.command.is_empty() {
        let mut requests = Requests { overrides, base: context.base()? };
        return filter::run(&mut requests, Source::Input, args.stream, context);
    }
    let form = Form::of(args.string.as_deref(), &args.command);
    let mut command = Command { form, ..Command::default() };
    overrides.apply(&mut command);
    context.out.filtering();
    context.out.outlive_reader();
    // The command may do everything that this process may do, so it gets the file itself.
    let stdin = match args.input(context) {
        None => Stdio::null(),
        Some("-") => Stdio::inherit(),
        Some(path) => File::open(path).map_err(|e| Error::io("--stdin", e).in_file(path.as_ref()))?.into(),
    };
    let base = context.base()?;
    let outcome = prepare(&command, stdin, &base).and_then(|prepared| {
        let is_raw = context.out.format() == Format::Raw;
        if is_raw && command.timeout.is_none() {
            return Err(prepared.replace_process());
        }
        let timeout = duration_of("timeout", command.timeout)?;
        let (ran, passed) = pass_on(is_raw, context, |watch| prepared.run(timeout, watch));
        passed.and(ran)
    });
    answer(outcome, context)
}

/// Refuses options that only the program outside can apply.
fn check_options(args: &Args, context: &Context) -> Result<()> {
    let unavailable = [
        ("--dry-run", args.write.dry_run),
        ("--confirm", args.write.confirm.is_some()),
        ("--request-id", args.write.request_id.is_some()),
        ("--tools", !args.tools.is_empty()),
        ("--root", context.options.root.is_some()),
        ("--read-only", args.read_only),
        ("--grace", args.grace.is_some()),
        ("--hosted", args.hosted.is_some()),
        ("--lasting", args.lasting),
        ("--lock", args.lock.is_some()),
    ];
    match unavailable.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(Error::usage(format!("`{option}` is not available inside a cp-exec sandbox"))
            .hint("give it to the cp-exec outside")),
        None => Ok(()),
    }
}

/// Prepares a command, and changes to its directory.
fn prepare(command: &Command, stdin: Stdio, base: &Path) -> Result<Inside> {
    command.check()?;
    let directory = base.join(command.cwd.as_deref().unwrap_or_default());
    std::env::set_current_dir(&directory).map_err(|e| Error::io("cwd", e).in_file(&directory))?;
    Inside::new(command.form.clone(), &command.env, stdin)
}

/// Answers the requests on standard input one after the other.
struct Requests {
    overrides: Overrides,
    /// The base of relative directories.
    base: PathBuf,
}

impl Filter for Requests {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::ToolCall]
    }

    fn bare_json(&self) -> InputKind {
        InputKind::Rows
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let began = Instant::now();
        let (asked, request) = of_line(body, &home())?;
        let outcome = request.and_then(|request| self.run(request));
        asked.answer(outcome, began, context)
    }
}

impl Requests {
    fn run(&self, asked: Request) -> Result<Answer> {
        let Request::Command(mut command) = asked else {
            let message = "this tool is not available inside a cp-exec sandbox: only `shell` and `bash` are";
            return Err(Error::new(Code::Forbidden, message).with("rule", "inside"));
        };
        self.overrides.apply(&mut command);
        let stdin = match &command.stdin {
            Some(text) => streams::stdin_from_bytes(text.as_bytes())?.into(),
            None => Stdio::null(),
        };
        let timeout = duration_of("timeout", command.timeout)?;
        let done = prepare(&command, stdin, &self.base)?.run(timeout, None)?;
        Ok(Answer::Done(Box::new(done)))
    }
}
