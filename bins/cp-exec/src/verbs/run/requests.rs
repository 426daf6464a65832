//! The requests on standard input: each is decided about, run and answered before the next.

use std::time::Instant;

use cp_common::context::options::InputKind;
use cp_common::stream::filter::{Body, Filter};
use cp_common::wire::ToolResult;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, signals};

use super::{Args, check, on_record, ready};
use crate::decision::{HashCache, confirm};
use crate::policy::Policy;
use crate::request::{Command, Request, Source, of_line};
use crate::run::{Engine, FinishedRun, Prepared, milliseconds, until_answered};
use crate::tools::{self, Item, executable, filesystem};

/// Answers about a command, or about a request that is none.
type Preview = fn(&Policy, &mut HashCache, Result<Command>) -> Result<check::Answer>;

/// The filter over requests.
pub(crate) struct Requests<'a> {
    pub engine: Engine,
    /// The command line, whose options override members of requests.
    pub args: &'a Args,
    /// Its variables.
    pub env: Vec<(String, String)>,
    /// The answer about a command that does not run.
    pub preview: Option<Preview>,
}

/// A request that was decided about: answered without a process, or a command that is ready to run or has run.
enum Work<Run> {
    Item(Box<Item>),
    Run(Box<Run>),
}

impl Filter for Requests<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::ToolCall]
    }

    fn bare_json(&self) -> InputKind {
        InputKind::Rows
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        signals::check()?;
        let began = Instant::now();
        let (asked, mut request) = of_line(body, &self.engine.policy.home_text())?;
        if let Ok(Request::Command(command)) = &mut request {
            command.cwd = self.args.cwd.clone().or_else(|| command.cwd.take());
            command.timeout = self.args.timeout.or(command.timeout);
            command.env.extend(self.env.iter().cloned());
        }
        if let Some(preview) = self.preview {
            let Engine { policy, hashes, .. } = &mut self.engine;
            let answer = preview(policy, hashes, request.and_then(Request::into_command))?;
            return context.out.record(Kind::Item, &answer);
        }
        context.out.outlive_reader();
        let outcome = self.run(&asked, request);
        match answer(asked, outcome, began, context) {
            // The output so far belongs to this request; the closing line reports the end of the stream.
            Err(error) if error.code() == Code::Interrupted && error.details().contains_key("argv") => {
                context.out.defer_item();
                context.out.item_failed(error)
            }
            answered => answered,
        }
    }
}

impl Requests<'_> {
    /// Decides about a request, records its intent or its refusal, and runs it.
    fn run(&mut self, asked: &Source, request: Result<Request>) -> Result<Work<FinishedRun>> {
        let engine = &mut self.engine;
        engine.policy.actor.call = asked.call.as_ref().map(|[id, _]| id.clone());
        let work = request.and_then(|request| until_answered(engine, false, |engine| prepare(engine, &request)));
        let mut prepared = match on_record(engine, asked, work)? {
            Work::Item(item) => return Ok(Work::Item(item)),
            Work::Run(prepared) => prepared,
        };
        let ran = prepared.run(engine, None);
        Ok(Work::Run(Box::new(prepared.settle(engine, ran)?)))
    }
}

/// Decides about a request.
fn prepare(engine: &mut Engine, request: &Request) -> Result<Work<Prepared>> {
    let prepared = match request {
        Request::File(operation) => return Ok(Work::Item(Box::new(filesystem::operate(engine, operation)?))),
        Request::System(operation) => {
            return Ok(Work::Item(Box::new(tools::answer_system(engine, *operation)?)));
        }
        Request::Command(command) => ready(engine, command, || Ok(None))?,
        Request::Tool(call) => {
            let mut ruling = executable::rule(&engine.policy, &mut engine.hashes, call)?;
            confirm::confirm_ruling(&engine.policy, &mut ruling, None, true)?;
            Prepared::new(engine, "tool", ruling, None)?
        }
    };
    Ok(Work::Run(Box::new(prepared)))
}

/// Answers in the form of the request.
fn answer(asked: Source, outcome: Result<Work<FinishedRun>>, began: Instant, context: &mut Context) -> Result<()> {
    match (asked.call, outcome) {
        (Some(call), outcome) => context.out.record(Kind::ToolResult, &tool_result(call, outcome, began)?),
        (None, Ok(Work::Run(done))) => context.out.record(Kind::ExecResult, &done.into_answer()?),
        (None, Ok(Work::Item(item))) => context.out.record(Kind::Item, &*item),
        (None, Err(error)) => Err(error),
    }
}

/// The result of a tool call. A refusal or a failure is also a result for the model; a pending approval is not, because
/// only a person can act on it.
fn tool_result([id, name]: [String; 2], outcome: Result<Work<FinishedRun>>, began: Instant) -> Result<ToolResult> {
    let mut result =
        ToolResult { id, name, untrusted: vec!["/name".to_owned(), "/content".to_owned()], ..ToolResult::default() };
    let needs_person = |error: &Error| error.code() == Code::HumanRequired;
    let failure = match outcome {
        Err(error) if error.is_fatal() || needs_person(&error) => return Err(error),
        Err(error) => Some(error),
        Ok(Work::Item(item)) => {
            result.untrusted.extend((!item.images.is_empty()).then(|| "/images".to_owned()));
            result.content = item.content();
            result.images = item.images;
            result.receipt = Some(item.receipt);
            None
        }
        Ok(Work::Run(done)) if done.failure.as_ref().is_some_and(needs_person) => {
            return done.into_answer().map(|_| result);
        }
        Ok(Work::Run(done)) => {
            let FinishedRun { result: ran, failure, .. } = *done;
            (result.exit_code, result.receipt, result.content) = (ran.return_code, ran.receipt, ran.stdout);
            // What a command says there is for its caller; what a tool says there is for a person, unless it fails.
            if failure.is_some() || matches!(&*result.name, "bash" | "shell") {
                add_lines(&mut result.content, &ran.stderr);
            }
            failure
        }
    };
    if let Some(error) = failure {
        let hint = error.hint_text().map(|hint| format!("\nHint: {hint}")).unwrap_or_default();
        add_lines(&mut result.content, &format!("{error}{hint}"));
        result.is_error = true;
    }
    result.duration_ms = milliseconds(began.elapsed());
    Ok(result)
}

/// Adds lines that begin on a line of their own.
fn add_lines(text: &mut String, lines: &str) {
    if !text.is_empty() && !lines.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(lines);
}
