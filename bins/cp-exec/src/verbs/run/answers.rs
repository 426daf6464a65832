//! Runs decided requests on any thread, and answers them in the form of their requests.

use std::time::Instant;

use cp_common::context::options::StreamOptions;
use cp_common::output::Place;
use cp_common::stream::filter;
use cp_common::wire::ToolResult;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};

use crate::request::{Call, Source};
use crate::run::{Engine, FinishedRun, Prepared, RunResult};
use crate::tools::Item;

/// A request in progress, until its entry on the ledger and its answer.
pub(crate) struct Task {
    pub place: Place,
    pub asked: Source,
    pub began: Instant,
    pub todo: Work,
}

pub(crate) enum Work {
    /// Answered without a process, or refused.
    Answered(Result<Box<Item>>),
    /// Ready to run, and its result after the run.
    Run(Box<Prepared>, Option<Box<RunResult>>),
}

pub(super) enum Answer {
    Done(Box<FinishedRun>),
    Item(Box<Item>),
}

/// Runs the parts of a request that need neither policy nor ledger, on any thread.
pub(crate) fn work(mut task: Task) -> Task {
    if let Work::Run(prepared, ran) = &mut task.todo {
        *ran = Some(Box::new(prepared.run(None)));
    }
    task
}

/// Records the outcome of a request and answers it, with the position of its line.
pub(crate) fn answer_at(
    engine: &mut Engine,
    finished: Task,
    stream: StreamOptions,
    context: &mut Context,
) -> Result<()> {
    let place = finished.place;
    let mut stopped = None;
    let outcome = filter::settle(place, stream, context, |context| match answer(engine, finished, context) {
        // The output so far belongs to this request; the closing line reports the end of the stream.
        Err(error) if error.code() == Code::Interrupted && error.details().contains_key("argv") => {
            stopped = Some(error);
            Err(Error::new(Code::Interrupted, "stopped"))
        }
        outcome => outcome,
    });
    let Some(error) = stopped else { return outcome };
    let here = std::mem::replace(&mut context.out.place, place);
    let answered = context.out.item_failed(error);
    context.out.place = here;
    answered
}

fn answer(engine: &mut Engine, finished: Task, context: &mut Context) -> Result<()> {
    let outcome = match finished.todo {
        Work::Answered(answer) => answer.map(Answer::Item),
        Work::Run(prepared, ran) => {
            let ran = ran.map_or_else(|| Err(Error::new(Code::Interrupted, "it did not start")), |ran| *ran);
            prepared.settle(engine, ran).map(|done| Answer::Done(Box::new(done)))
        }
    };
    finished.asked.answer(outcome, finished.began, context)
}

impl Source {
    /// Answers in the form of the request.
    pub(super) fn answer(self, outcome: Result<Answer>, began: Instant, context: &mut Context) -> Result<()> {
        match self {
            Self::Row(_) => match outcome? {
                Answer::Done(done) => context.out.record(Kind::ExecResult, &done.into_answer()?),
                Answer::Item(item) => context.out.record(Kind::Item, &*item),
            },
            Self::Call(call) => context.out.record(Kind::ToolResult, &call.result(outcome, began)?),
        }
    }
}

impl Call {
    /// The result of a tool call. A refusal or a failure is also a result for the model; a pending approval is not,
    /// because only a person can act on it.
    fn result(self, outcome: Result<Answer>, began: Instant) -> Result<ToolResult> {
        let mut result = ToolResult {
            id: self.id,
            name: self.name,
            content: String::new(),
            images: Vec::new(),
            is_error: false,
            exit_code: None,
            duration_ms: 0,
            receipt: None,
            untrusted: vec!["/name".to_owned(), "/content".to_owned()],
        };
        match outcome {
            Err(error) if error.is_fatal() || error.code() == Code::HumanRequired => return Err(error),
            Ok(Answer::Done(done)) if done.awaits_approval() => drop(done.into_answer()?),
            Err(error) => {
                result.is_error = true;
                let hint = error.hint_text().map(|hint| format!("\nHint: {hint}")).unwrap_or_default();
                result.content = format!("{error}{hint}");
            }
            Ok(Answer::Item(item)) => {
                result.untrusted.extend((!item.images.is_empty()).then(|| "/images".to_owned()));
                result.content = item.content();
                result.images = item.images;
                result.receipt = Some(item.receipt);
            }
            Ok(Answer::Done(done)) => {
                result.exit_code = done.result.return_code;
                result.receipt = done.result.receipt;
                result.content = done.result.stdout;
                let refused = || done.refusal.as_ref().map(|error| error.message().to_owned());
                if let Some(message) = done.failure.map(|(_, message)| message).or_else(refused) {
                    result.is_error = true;
                    let hint = done.refusal.as_ref().and_then(Error::hint_text);
                    let message = hint.map_or(message.clone(), |hint| format!("{message}\nHint: {hint}"));
                    for part in [done.result.stderr, message] {
                        if !result.content.is_empty() && !result.content.ends_with('\n') {
                            result.content.push('\n');
                        }
                        result.content.push_str(&part);
                    }
                }
            }
        }
        result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        Ok(result)
    }
}
