//! The requests on standard input: decided about in order, run one after the other or concurrently, and answered in
//! order.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use cp_common::context::options::{InputKind, StreamOptions};
use cp_common::output::{Place, Severity};
use cp_common::stream::filter::{Body, Filter};
use cp_common::stream::jobs::Jobs;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, signals};

use super::answers::{Task, Work, answer_at, work};
use super::ready;
use crate::decision::confirm;
use crate::policy::LONGEST;
use crate::request::{Command, Request, Source, of_line};
use crate::run::approvals::paused;
use crate::run::{Engine, Prepared, streams, until_answered};
use crate::tools::{self, executable, filesystem};
use crate::verbs::check;

/// The most notices about commands in a closing line.
const NOTICES: usize = 20;

/// Options of the command line for every command. They override members of requests.
#[derive(Default)]
pub(crate) struct Overrides {
    pub cwd: Option<String>,
    pub timeout: Option<f64>,
    /// The time before the deadline at which the command gets SIGTERM.
    pub grace: Option<Duration>,
    pub env: Vec<(String, String)>,
}

impl Overrides {
    pub(super) fn apply(&self, command: &mut Command) {
        command.cwd = self.cwd.clone().or_else(|| command.cwd.take());
        command.timeout = self.timeout.or(command.timeout);
        command.env.extend(self.env.iter().cloned());
    }
}

/// The filter over requests.
pub(crate) struct Requests {
    engine: Engine,
    overrides: Overrides,
    stream: StreamOptions,
    /// The pool for concurrent requests; `None` runs one after the other.
    jobs: Option<Jobs<Task, Task>>,
    /// True if requests are only decided about.
    dry_run: bool,
    noticed: usize,
}

impl Requests {
    /// Creates a filter that runs up to `jobs` requests at once.
    pub(crate) fn new(
        engine: Engine,
        overrides: Overrides,
        stream: StreamOptions,
        jobs: usize,
        dry_run: bool,
    ) -> Result<Self> {
        let jobs = if jobs > 1 && !dry_run { Some(Jobs::new(jobs, work)?) } else { None };
        Ok(Self { engine, overrides, stream, jobs, dry_run, noticed: 0 })
    }

    /// Decides about a request, and records its intent or its refusal.
    fn begin(&mut self, place: Place, asked: Source, request: Result<Request>, context: &mut Context) -> Result<Task> {
        let began = Instant::now();
        self.engine.policy.actor.call = asked.call().map(str::to_owned);
        let grace = self.overrides.grace;
        let prepared = request
            .and_then(|request| until_answered(&mut self.engine, false, |engine| prepare(engine, &request, grace)));
        let todo = match prepared {
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => {
                if paused(&error).is_none() {
                    self.engine.journal.refused(&asked, &error)?;
                }
                Work::Answered(Err(error))
            }
            Ok((todo, notices)) => {
                self.notice(place, notices, context);
                todo
            }
        };
        Ok(Task { place, asked, began, todo })
    }

    /// Reports the notices of a request that is about to run.
    fn notice(&mut self, place: Place, notices: Vec<String>, context: &mut Context) {
        for notice in notices {
            self.noticed += 1;
            if self.noticed <= NOTICES {
                let at = place.index.map(|index| format!("request {index}: ")).unwrap_or_default();
                context.out.notice("command", Severity::Info, format!("{at}{notice}"));
            }
        }
    }

    /// Starts a request in the pool, or runs it and answers.
    fn dispatch(&mut self, task: Task, context: &mut Context) -> Result<()> {
        let Some(jobs) = &mut self.jobs else {
            return answer_at(&mut self.engine, work(task), self.stream, context);
        };
        while !jobs.has_room() {
            let Some(finished) = jobs.wait()? else { break };
            answer_at(&mut self.engine, finished, self.stream, context)?;
        }
        jobs.give(task)?;
        self.take_finished(context)
    }

    /// Answers finished requests in order, without waiting.
    fn take_finished(&mut self, context: &mut Context) -> Result<()> {
        while let Some(finished) = self.jobs.as_mut().and_then(Jobs::take) {
            answer_at(&mut self.engine, finished, self.stream, context)?;
        }
        Ok(())
    }

    fn wait_for_all(&mut self, context: &mut Context) -> Result<()> {
        while let Some(jobs) = &mut self.jobs
            && let Some(finished) = jobs.wait()?
        {
            answer_at(&mut self.engine, finished, self.stream, context)?;
        }
        Ok(())
    }

    /// Handles running requests when the stream ends: requests that have not started are cancelled, and the others
    /// are awaited, recorded and answered. After a signal the engine ends them immediately.
    pub(crate) fn wind_down(&mut self, context: &mut Context) -> Result<()> {
        let Some(jobs) = &mut self.jobs else { return Ok(()) };
        // A run that is settled ends its own signal protection before its answer is written.
        let _effect = signals::effect();
        let mut outcome = Ok(());
        let never = Error::new(Code::Interrupted, "it did not start: the stream ended first");
        for task in jobs.take_back() {
            if let Work::Run(prepared, _) = task.todo {
                outcome = outcome.and(prepared.abandon(&mut self.engine, &never));
            }
            context.out.item_skipped();
        }
        for finished in jobs.drain(Duration::from_secs_f64(LONGEST)) {
            outcome = outcome.and(answer_at(&mut self.engine, finished, self.stream, context));
        }
        outcome.and_then(|()| context.out.flush())
    }
}

impl Filter for Requests {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::ToolCall]
    }

    fn bare_json(&self) -> InputKind {
        InputKind::Rows
    }

    fn wakes(&self) -> Result<Option<OwnedFd>> {
        self.jobs.as_ref().map(Jobs::wakes).transpose()
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        context.out.outlive_reader();
        let (asked, mut request) = of_line(body, &self.engine.policy.home_text())?;
        if let Ok(Request::Command(command)) = &mut request {
            self.overrides.apply(command);
        }
        if self.dry_run {
            let command = request.and_then(Request::into_command)?;
            let Engine { policy, hashes, .. } = &mut self.engine;
            return context.out.record(Kind::Item, &check::preview(policy, hashes, &command)?);
        }
        context.out.defer_item();
        let place = context.out.place;
        let task = self.begin(place, asked, request, context)?;
        self.dispatch(task, context)
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        self.take_finished(context)
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        self.wait_for_all(context)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        if signals::interrupted() {
            return self.wind_down(context);
        }
        self.wait_for_all(context)
    }
}

/// Decides about a request. Also returns its notices.
fn prepare(engine: &mut Engine, request: &Request, grace: Option<Duration>) -> Result<(Work, Vec<String>)> {
    let (ruling, stdin) = match request {
        Request::File(operation) => {
            return Ok((Work::Answered(Ok(Box::new(filesystem::operate(engine, operation)?))), Vec::new()));
        }
        Request::System(operation) => {
            return Ok((Work::Answered(Ok(Box::new(tools::answer_system(engine, *operation)?))), Vec::new()));
        }
        Request::Command(command) => {
            let stdin = || command.stdin.as_ref().map(|text| streams::stdin_from_bytes(text.as_bytes())).transpose();
            let (prepared, notices) = ready(engine, command, stdin, grace)?;
            return Ok((Work::Run(Box::new(prepared), None), notices));
        }
        Request::Tool(call) => {
            let (mut ruling, stdin) = executable::rule(&engine.policy, &mut engine.hashes, call)?;
            confirm::confirm_ruling(&engine.policy, &mut ruling, None, true)?;
            (ruling, stdin)
        }
    };
    let notices = ruling.decision.notices.clone();
    let prepared = Prepared::new(engine, "tool", ruling, Some(stdin), None)?;
    Ok((Work::Run(Box::new(prepared), None), notices))
}
