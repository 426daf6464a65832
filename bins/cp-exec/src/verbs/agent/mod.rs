//! `cp-exec agent`: runs a whole coding agent in the sandbox, with its private [`state`], its variables, and its network.

mod state;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum as _;
use cp_common::context::given::unreadable;
use cp_common::context::options::positive_seconds;
use cp_common::output::{Format, line_to_stderr, to_stderr};
use cp_common::program::{Class, Input, VerbDoc, require_text};
use cp_common::{Context, Error, Result};
use cp_egress::{Destination, Network};

use super::run::{answer, begin, is_live, notice_of_repository, on_record, pass_on, say, variables};
use crate::decision::{Ruling, decide_agent, unseen_files};
use crate::hosts::{AgentFacts, Host, SHELL_FILE};
use crate::policy::Policy;
use crate::run::{Engine, FinishedRun, Prepared, RunResult, has_terminal, streams};
use cp_common::glob::name_matches;

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-exec policy init --for . && {} agent --json -- bash -c 'echo inside'"],
    input: &[Input::Bytes],
    exits: &[124, 125, 126, 127],
    events: super::run::DOC.events,
    ..VerbDoc::new("agent", Class::Governed, "exec_result")
};

/// The time limit of an agent without one: ten years.
const UNLIMITED: Duration = Duration::from_hours(10 * 365 * 24);
/// The time that an agent gets to end by itself after a signal.
const PATIENCE: Duration = Duration::from_secs(3);
/// The variable of the user's shell, in which agents run command lines.
const SHELL: &str = "SHELL";
/// Variables of the user's terminal and language.
const TERMINAL: [&str; 7] = ["TERM", "COLORTERM", "TERM_PROGRAM", "LANG", "LC_*", "TZ", "NO_COLOR"];

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
    #[arg(long, value_name = "DURATION", value_parser = positive_seconds)]
    timeout: Option<f64>,
    /// The command that starts the agent, after `--`
    #[arg(value_name = "COMMAND", last = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    require_text(args.state.iter().map(PathBuf::as_path))?;
    if args.login && args.host().is_none() {
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
    let outcome = args.start(&mut engine, context).and_then(|prepared| supervise(prepared, &mut engine, context));
    let is_passed = context.out.format() == Format::Raw || outcome.is_ok() && is_live(context);
    answer(outcome, is_passed, context)
}

impl Args {
    /// The host: the one that is named, or that of the program.
    fn host(&self) -> Option<Host> {
        let name = self.command.first().and_then(|word| Path::new(word).file_name()?.to_str());
        self.host.or_else(|| Host::from_str(name?, false).ok())
    }

    /// Decides about the agent, and records its intent.
    fn start(&self, engine: &mut Engine, context: &mut Context) -> Result<Prepared> {
        for path in real(&self.read, &engine.policy)? {
            engine.policy.allow(&path, false);
        }
        let facts = self.host().map(|host| &host.facts().agent);
        let ruling = self.rule(facts, engine, context);
        let ruling = on_record(engine, &self.command, ruling)?;
        // A terminal that the agent does not get is not a source of input.
        let is_terminal = rustix::termios::isatty(rustix::stdio::stdin());
        let stdin = if is_terminal { None } else { Some(streams::copy_own_stdin()?) };
        let mut prepared = Prepared::new(engine, "agent", ruling, stdin)?;
        prepared.patience = PATIENCE;
        prepared.quiet = facts.map_or(&[], |facts| &facts.quiet);
        Ok(prepared)
    }

    /// Creates the state of the agent, collects its variables and names, and decides about it.
    fn rule(&self, facts: Option<&AgentFacts>, engine: &mut Engine, context: &mut Context) -> Result<Ruling> {
        let Engine { policy, hashes, .. } = engine;
        let argv = match facts {
            Some(facts) if self.command.is_empty() => facts.login.clone(),
            _ => self.command.clone(),
        };
        let has_terminal = is_live(context) && has_terminal();
        let mut env = self.environment(facts, has_terminal)?;
        let mut state = real(&self.state, policy)?;
        if let Some(host) = self.host() {
            let own = state::State::of(host, policy);
            own.create(context)?.into_iter().for_each(|message| say("state", message, context));
            env.extend(own.variables()?);
            state.push(own.directory);
        }
        let named = self.domains.iter().map(|domain| Destination::parse(domain));
        let named = named.collect::<std::result::Result<Vec<_>, _>>();
        let mut domains = named.map_err(|why| Error::usage(format!("--allow-host: {why}")))?;
        domains.extend(facts.into_iter().flat_map(|facts| facts.domains.iter().cloned()));
        // A login needs the loopback interface of this machine, to which the browser returns.
        let network = if self.login { Network::Host } else { policy.exec().network.with(&domains) };
        policy.loaded.settings.exec.network = network;
        let script = Some(policy.cp_home.root().join(SHELL_FILE)).filter(|script| script.is_file());
        for program in std::env::current_exe().into_iter().chain(script) {
            policy.allow(&program, true);
        }
        let timeout = self.timeout.map_or(UNLIMITED, Duration::from_secs_f64);
        let mut ruling = decide_agent(policy, hashes, argv, env, state, timeout)?;
        ruling.plan.has_terminal = has_terminal;
        for path in unseen_files(policy, &ruling.plan) {
            let message = format!("the agent cannot read {0}; --read {0} shows it", path.display());
            say("unseen_file", message, context);
        }
        Ok(ruling)
    }

    /// The variables that the agent gets from the environment of this program, those of its host, and its own.
    fn environment(&self, facts: Option<&AgentFacts>, has_terminal: bool) -> Result<BTreeMap<String, String>> {
        let of_terminal: &[&str] = if has_terminal { &TERMINAL } else { &[] };
        let of_host = facts.into_iter().flat_map(|facts| facts.environment.iter().map(String::as_str));
        let patterns: Vec<&str> = of_host.chain([SHELL]).chain(of_terminal.iter().copied()).collect();
        let text = |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let passes = |(name, _): &(String, String)| patterns.iter().any(|pattern| name_matches(pattern, name));
        let mut env: BTreeMap<String, String> = std::env::vars_os().filter_map(text).filter(passes).collect();
        env.extend(facts.into_iter().flat_map(|facts| facts.set.clone()));
        env.extend(variables(&self.env)?);
        Ok(env)
    }
}

fn real(paths: &[PathBuf], policy: &Policy) -> Result<Vec<PathBuf>> {
    let real = |path: &PathBuf| policy.base.join(path).canonicalize().map_err(|e| unreadable(e, "path", path));
    paths.iter().map(real).collect()
}

/// Runs the agent, and reports its end on standard error.
fn supervise(mut prepared: Prepared, engine: &mut Engine, context: &mut Context) -> Result<FinishedRun> {
    let (ran, passed) = pass_on(is_live(context), &mut prepared, engine, context);
    let summary = summary(&ran);
    // At a terminal these are the messages of this program, which the screen of the agent did not show.
    let kept = ran.as_ref().ok().filter(|_| prepared.ruling.plan.has_terminal).map(|outcome| outcome.stderr.bytes());
    let finished = prepared.settle(engine, ran)?;
    if let Some(summary) = summary {
        to_stderr(&String::from_utf8_lossy(&kept.unwrap_or_default()));
        if !context.options.quiet {
            line_to_stderr(&summary);
        }
    }
    passed.map(|()| finished)
}

/// The line at the end of an agent: each count that the sandbox knows.
fn summary(ran: &RunResult) -> Option<String> {
    let outcome = ran.as_ref().ok()?;
    let steps = &outcome.steps;
    let counted = |count: u64, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
    let decided = |count, refused: u64, one| format!("{} ({refused} refused)", counted(count, one));
    let mut parts = vec![
        decided(steps.calls, steps.calls_denied, "tool call"),
        decided(steps.line + steps.programs, steps.denied_count, "program"),
    ];
    let connections = outcome.connections.as_ref();
    parts.extend(connections.map(|all| decided(all.allowed + all.refused, all.refused, "connection")));
    parts.push(format!("{} quarantined", counted(outcome.enforcement.guard.len() as u64, "file")));
    let ended = outcome.ended.as_ref().and_then(|ended| serde_json::to_value(ended).ok()?.as_str().map(str::to_owned));
    parts.extend(ended.map(|ended| format!("ended ({ended})")));
    Some(format!("cp-exec agent: {}", parts.join(", ")))
}
