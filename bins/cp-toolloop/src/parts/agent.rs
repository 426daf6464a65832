//! An agent: another run of this program that works on one call.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{self, Child, Grace};
use cp_common::wire::record::{self, Kind, Record};
use cp_common::wire::{Message, Prompt};
use cp_common::{Context, Error, Result};
use rustix::process::{Signal, set_parent_process_death_signal};
use serde::Deserialize;
use serde_json::Value;

use crate::mcp::Spec;
use crate::state::conversation::Conversation;
use crate::state::plan::{ModelCommand, Plan, RunFiles};
use crate::state::tally::Tally;

/// An agent is stopped by SIGTERM, and stops its own coprocesses first.
const GRACE: Grace = Grace { after_input: Duration::ZERO, after_term: Duration::from_secs(5) };

/// The arguments of a call of the agent tool.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Task {
    #[serde(rename = "task")]
    pub(crate) text: String,
    pub(crate) system: Option<String>,
    /// The tools that it may use; all if not given.
    pub(crate) tools: Option<Vec<String>>,
    pub(crate) max_iterations: Option<u64>,
}

/// The share of the budget for an agent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Share {
    pub(crate) iterations: u64,
    pub(crate) tokens: Option<u64>,
    pub(crate) usd: Option<f64>,
}

/// The result of an agent.
#[derive(Debug)]
pub(crate) struct Ended {
    /// The text of its last message.
    pub(crate) text: String,
    pub(crate) tally: Tally,
    /// The error that stopped it.
    pub(crate) failure: Option<Error>,
}

/// An agent that was started, or has ended already.
pub(crate) struct Agent {
    pub(crate) run: String,
    state: State,
}

enum State {
    Runs(Child),
    Over(Ended),
}

impl Agent {
    /// An agent that ended while no process waited for it.
    pub(crate) fn over(run: String, ended: Ended) -> Self {
        Self { run, state: State::Over(ended) }
    }

    /// Starts this program with these arguments. The standard error of an agent is discarded, because its records have the errors.
    pub(crate) fn start(run: String, arguments: &[OsString], prompt: Option<&Prompt>) -> Result<Self> {
        let mut command = Command::new(coprocess::find("cp-toolloop")?);
        let mut child = Child::start(command.args(arguments).stderr(Stdio::null()), GRACE)?.called("the agent");
        if let Some(prompt) = prompt {
            // An agent that could not start reports the reason in its records.
            let _ = child.write(&record::closed_line(Kind::Prompt.name(), prompt)?);
        }
        child.close_input();
        Ok(Self { run, state: State::Runs(child) })
    }

    /// Waits until the agent ends, or until `until`, and passes each earlier record to `pass`.
    pub(crate) fn ended(
        self,
        until: Option<Instant>,
        pass: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<Option<Ended>> {
        match self.state {
            State::Over(ended) => Ok(Some(ended)),
            State::Runs(child) => wait(child, until, pass),
        }
    }
}

/// An agent does not outlive its parent: after the deadline it is stopped by a signal and can be resumed.
fn wait(mut child: Child, until: Option<Instant>, pass: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Option<Ended>> {
    let (mut text, mut failed) = (String::new(), None);
    loop {
        if let Some(until) = until
            && !child.wait_line(until.saturating_duration_since(Instant::now()))?
        {
            return Ok(None);
        }
        let Some(line) = child.next_line()? else { return Err(child.gone()) };
        let record = Record::parse(line).map_err(Error::fatal)?;
        if record.kind == Some(Kind::Message) {
            text = record.read::<Message>().map_err(Error::fatal)?.content.text();
        }
        if record.closed {
            return Ok(Some(closing(&record, text, failed)));
        }
        pass(line)?;
        if !record.ok {
            failed = Some(record.failure());
        }
    }
}

/// The end in a closing record. An earlier record may have the error of the task.
fn closing(record: &Record<'_>, text: String, failed: Option<Error>) -> Ended {
    let failure = (!record.ok).then(|| record.failure());
    // The counts are in its data, or in the details of its error.
    let tally: Tally = match &failure {
        None => record.read().unwrap_or_default(),
        Some(failure) => serde_json::from_value(Value::Object(failure.details())).unwrap_or_default(),
    };
    Ended { text, tally, failure: failure.map(|failure| failed.unwrap_or(failure)) }
}

impl Ended {
    /// The result of an agent that ended while no process waited for it. Its recording is kept until the parent has recorded the result.
    pub(crate) fn kept(files: &RunFiles, context: &Context) -> Result<Option<Self>> {
        let Some(conversation) = Conversation::kept(files, &context.home)? else { return Ok(None) };
        let text = conversation.answer.as_ref().map(|message| message.content.text()).unwrap_or_default();
        Ok(Some(Self { text, tally: conversation.tally, failure: None }))
    }
}

/// Stops this agent when its parent process exits; a resume of the parent resumes the agent.
pub(crate) fn stop_with_parent() -> Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|e| Error::io("watching the process of the parent run", e).fatal())
}

/// The arguments of every start of an agent.
fn shared_arguments(plan: &Plan, context: &Context) -> Vec<OsString> {
    let flags = context.handed_on();
    let mut arguments = Vec::new();
    let mut words = flags.into_iter();
    // An agent has its own ledger and run.
    while let Some(word) = words.next() {
        if word == "--ledger" || word == "--run" {
            words.next();
        } else {
            arguments.push(word);
        }
    }
    arguments.extend(["--format", "json", "--parent", plan.run.as_str()].map(OsString::from));
    arguments.extend(plan.approver.iter().flat_map(|program| ["--approver", program]).map(OsString::from));
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
) -> Vec<OsString> {
    let mut arguments: Vec<String> = Vec::new();
    arguments.push(format!("--run-id={run}"));
    arguments.extend(plan.places.iter().map(|place| format!("--tools={}", place.display())));
    let (files, servers): (Vec<&Spec>, Vec<&Spec>) = plan.mcp.iter().partition(|server| server.config.is_some());
    arguments.extend(servers.iter().map(|server| format!("--mcp={}={}", server.name, quoted(&server.argv))));
    let files: BTreeSet<&PathBuf> = files.iter().filter_map(|server| server.config.as_ref()).collect();
    arguments.extend(files.iter().map(|file| format!("--mcp-config={}", file.display())));
    arguments.push(format!("--allow={}", names.join(",")));
    let ModelCommand { argv, drives } = &plan.model;
    arguments.push(format!("--{}={}", if *drives { "tool-backend" } else { "llm" }, quoted(argv)));
    arguments.push(format!("--agent-depth={}", plan.agent_depth.saturating_sub(1)));
    arguments.push(format!("--parallel={}", plan.parallel));
    if plan.read_only {
        arguments.push("--read-only".to_owned());
    }
    if plan.fail_on_tool_error {
        arguments.push("--fail-on-tool-error".to_owned());
    }
    arguments.extend(plan.limits.context_tokens.map(|tokens| format!("--context-tokens={tokens}")));
    arguments.extend(plan.budget_file.iter().map(|file| format!("--budget-file={}", file.display())));
    let hooks = [("before", &plan.before_tool), ("after", &plan.after_tool)];
    let given = hooks.into_iter().filter_map(|(when, program)| Some((when, program.as_ref()?)));
    arguments.extend(given.map(|(when, program)| format!("--{when}-tool={program}")));
    arguments.extend(share.options(deadline));
    // The recording is kept until the parent has recorded the result.
    let record = ["--record".into(), RunFiles::of(run, context).recording().into()];
    shared_arguments(plan, context).into_iter().chain(arguments.into_iter().map(OsString::from)).chain(record).collect()
}

/// The arguments that resume an agent.
pub(crate) fn to_resume(
    plan: &Plan,
    run: &str,
    decisions: Vec<String>,
    share: &Share,
    deadline: Option<Duration>,
    context: &Context,
) -> Vec<OsString> {
    let mut arguments = vec!["resume".into(), run.into()];
    arguments.extend(shared_arguments(plan, context));
    arguments.extend(decisions.into_iter().chain(share.options(deadline)).map(OsString::from));
    arguments
}

/// Words quoted for the strict tokenizer.
fn quoted(argv: &[String]) -> String {
    let quoted: Vec<String> = argv.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
    quoted.join(" ")
}
