//! An agent: another run of this program that works on one call, and what came of it.

use std::io::Write as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess;
use cp_common::stream::lines::{Lines, Next};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Message, Prompt, Usage};
use cp_common::{Code, Context, Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plan::{ModelCommand, Plan};
use crate::tally::Spent;

/// How long an agent that is told to stop has until it is made to.
const PATIENCE: Duration = Duration::from_secs(5);

/// What the model asks for.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Task {
    /// What is to be done.
    #[serde(rename = "task")]
    pub(crate) text: String,
    /// What the agent is told of itself.
    pub(crate) system: Option<String>,
    /// The tools it may use; all if not given.
    pub(crate) tools: Option<Vec<String>>,
    /// The most turns it may take.
    pub(crate) max_iterations: Option<u64>,
}

/// The part of a budget that an agent gets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    /// Turns of its model.
    pub(crate) iterations: u64,
    /// Tokens.
    pub(crate) tokens: Option<u64>,
    /// Dollars.
    pub(crate) usd: Option<f64>,
}

/// What an agent came to.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    /// The last thing it said.
    pub(crate) words: String,
    /// What it used.
    pub(crate) spent: Spent,
    /// Why it is not done.
    pub(crate) failure: Option<Failure>,
}

/// Why an agent is not done.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The code.
    pub(crate) code: Code,
    /// In words.
    pub(crate) message: String,
    /// More.
    pub(crate) details: Map<String, Value>,
}

/// An agent that was started, or is over already.
pub(crate) struct Agent {
    /// Its run.
    pub(crate) run: String,
    state: State,
}

enum State {
    Runs(Process),
    Over(Ended),
}

struct Process {
    child: Child,
    lines: Lines<ChildStdout>,
}

#[derive(Serialize)]
struct Question<'a> {
    ok: bool,
    schema_version: &'static str,
    r#type: &'static str,
    data: &'a Prompt,
    meta: Meta,
}

#[derive(Serialize)]
struct Meta {
    duration_ms: u64,
}

/// The counts of a closing line, which has them in its data or in its error's details.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Counts {
    iterations: u64,
    agent_iterations: u64,
    usage: Usage,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Told {
    message: String,
    details: Map<String, Value>,
}

impl Agent {
    /// One that ended while nobody listened.
    pub(crate) fn over(run: String, ended: Ended) -> Self {
        Self { run, state: State::Over(ended) }
    }

    /// Starts this program with some arguments. What an agent has to say to people, it says to us.
    pub(crate) fn start(run: String, arguments: &[String], prompt: Option<&Prompt>) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io("starting an agent", e).fatal();
        let mut child = Command::new(coprocess::find("cp-toolloop")?)
            .args(arguments)
            .stdin(if prompt.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| Error::new(Code::Io, "the agent has no output").fatal())?;
        if let (Some(mut stdin), Some(prompt)) = (child.stdin.take(), prompt) {
            let data = Question {
                ok: true,
                schema_version: cp_common::wire::record::SCHEMA_VERSION,
                r#type: Kind::Prompt.name(),
                data: prompt,
                meta: Meta { duration_ms: 0 },
            };
            let mut line = serde_json::to_vec(&data).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
            line.push(b'\n');
            // One that could not start says why in its answer.
            let _ = stdin.write_all(&line);
        }
        Ok(Self { run, state: State::Runs(Process { child, lines: Lines::new(stdout) }) })
    }

    /// Waits for its end, or until then.
    pub(crate) fn ended(self, until: Option<Instant>) -> Result<Option<Ended>> {
        match self.state {
            State::Over(ended) => Ok(Some(ended)),
            State::Runs(mut process) => process.ended(until),
        }
    }
}

impl Process {
    fn ended(&mut self, until: Option<Instant>) -> Result<Option<Ended>> {
        let (mut words, mut failed) = (String::new(), None);
        loop {
            if let Some(until) = until
                && !self.lines.wait_line(until.saturating_duration_since(Instant::now()))?
            {
                return Ok(None);
            }
            let line = match self.lines.next(&mut || Ok(()))? {
                Next::Line(line) => self.lines.bytes(&line),
                Next::TooLong(_) => continue,
                Next::End => return Err(Error::new(Code::Io, "the agent ended without a closing line").fatal()),
            };
            let record = Record::parse(line).map_err(Error::fatal)?;
            if record.kind == Some(Kind::Message) {
                words = record.read::<Message>().map_err(Error::fatal)?.content.text();
            }
            if record.closed {
                return Ok(Some(closing(&record, words, failed)));
            }
            if !record.ok {
                failed = Some(told(&record));
            }
        }
    }
}

impl Drop for Process {
    /// An agent never outlives its run. It stops as if a person had interrupted it, so it can go on.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while asked.elapsed() < PATIENCE {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn told(record: &Record<'_>) -> Told {
    record.error.and_then(|error| serde_json::from_str(error.get()).ok()).unwrap_or_default()
}

/// What a closing line says. Why its one task failed, the line of the task may have said before it.
fn closing(record: &Record<'_>, words: String, failed: Option<Told>) -> Ended {
    let told = told(record);
    let counts: Counts = if record.ok {
        record.read().unwrap_or_default()
    } else {
        serde_json::from_value(Value::Object(told.details.clone())).unwrap_or_default()
    };
    let spent = Spent { iterations: counts.iterations + counts.agent_iterations, usage: counts.usage };
    let why = failed.unwrap_or(told);
    let failure = (!record.ok).then(|| Failure { code: record.code(), message: why.message, details: why.details });
    Ended { words, spent, failure }
}

/// The arguments that every start of an agent has.
fn always(plan: &Plan, context: &Context) -> Vec<String> {
    let flags = context.handed_on();
    let mut arguments = Vec::new();
    let mut words = flags.into_iter();
    // It has a ledger and a run of its own.
    while let Some(word) = words.next() {
        if matches!(word.as_str(), "--ledger" | "--run") {
            words.next();
        } else {
            arguments.push(word);
        }
    }
    arguments.extend(["--format", "json", "--parent", plan.run.as_str()].map(str::to_owned));
    if let Some(approver) = &plan.approver {
        arguments.extend(["--approver".to_owned(), approver.clone()]);
    }
    arguments
}

impl Share {
    fn options(&self, deadline: Option<Duration>) -> Vec<String> {
        let mut options = vec![format!("--max-iterations={}", self.iterations)];
        options.extend(self.tokens.map(|tokens| format!("--budget-tokens={tokens}")));
        options.extend(self.usd.map(|usd| format!("--budget-usd={usd}")));
        options.extend(deadline.map(|left| format!("--deadline={}", left.as_secs_f64())));
        options
    }
}

/// The arguments that start an agent, with the tools of these names.
pub(crate) fn to_start(
    plan: &Plan,
    run: &str,
    names: &[String],
    share: &Share,
    deadline: Option<Duration>,
    context: &Context,
) -> Vec<String> {
    let mut arguments = always(plan, context);
    arguments.push(format!("--as={run}"));
    arguments.extend(plan.places.iter().map(|place| format!("--tools={}", place.display())));
    arguments.extend(plan.mcp.iter().map(|server| format!("--mcp={}={}", server.name, quoted(&server.argv))));
    arguments.push(format!("--allow={}", names.join(",")));
    let ModelCommand { argv, drives } = &plan.model;
    arguments.push(format!("--{}={}", if *drives { "tool-backend" } else { "llm" }, quoted(argv)));
    arguments.push(format!("--agent-depth={}", plan.agent_depth.saturating_sub(1)));
    arguments.push(format!("--parallel={}", plan.parallel));
    // Its result is kept until it is on our record too.
    let kept = crate::journal::recording_of(&crate::plan::ledger_of(run, context));
    arguments.push(format!("--record={}", kept.display()));
    if plan.fail_on_tool_error {
        arguments.push("--fail-on-tool-error".to_owned());
    }
    arguments.extend(share.options(deadline));
    arguments
}

/// The arguments that let an agent go on.
pub(crate) fn to_resume(
    plan: &Plan,
    run: &str,
    decisions: Vec<String>,
    share: &Share,
    deadline: Option<Duration>,
    context: &Context,
) -> Vec<String> {
    let mut arguments = vec!["resume".to_owned(), run.to_owned()];
    arguments.extend(always(plan, context));
    arguments.extend(decisions);
    arguments.extend(share.options(deadline));
    arguments
}

/// Words as the strict tokenizer takes them.
fn quoted(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}
