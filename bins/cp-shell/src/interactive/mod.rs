//! The interactive session: a prompt, commands, and turns that are sent to a model. The loop runs [`commands`] and
//! [`turn`]s, which change the [`state`]; below them are the [`console`], the [`hub`], memory and the transcript.

pub(crate) mod commands;
mod console;
mod history;
mod hub;
mod memory;
mod risk;
mod settings;
pub(crate) mod state;
mod transcript;
mod turn;

use std::time::Instant;

use cp_common::home::config::Origin;
use cp_common::output::Format;
use cp_common::program::{Class, VERSION};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::format::canonical::Form;
use cp_redact::Redactor;
use serde_json::json;

use crate::agent;
use crate::interactive::commands::{Input, parse};
use crate::interactive::console::join_lines;
use crate::interactive::console::render::{count, show, style};
use crate::interactive::console::{Console, Typed};
use crate::interactive::hub::Hub;
use crate::interactive::state::{Outcome, Request, State};
use crate::interactive::transcript::{Digest, Transcript, close_question};
use crate::journal::{self, Evidence, Joined, Journal};
use crate::plane::Plane;
use crate::signals::{CONTEXT_LIMIT, Tracker};

/// Holds an interactive session with a person or a script. An error that ends it is shown as text in every format.
pub(crate) fn run(request: &Request, context: &mut Context) -> Result<()> {
    // The session survives an interruption, and restores the terminal.
    let _effect = signals::effect();
    let held = hold(request, context).map_err(Error::without_secrets);
    if let Err(e) = &held
        && !e.is_reader_gone()
        && context.out.format() == Format::Json
    {
        let hint = e.hint_text().unwrap_or("`cp-shell doctor` checks the home and the programs");
        context.out.raw(style().error(e.message(), hint).as_bytes())?;
        context.out.ended_with(e.code().row().exit);
    }
    held
}

const PROMPT: &str = "cp> ";

/// Holds a session.
pub(crate) fn hold(request: &Request, context: &mut Context) -> Result<()> {
    signals::quit_ends();
    let mut repl = Repl::open(request, context)?;
    let mut held = repl.talk();
    if let Err(e) = repl.close(held.is_ok()) {
        held = held.and(Err(e));
    }
    let exit = repl.exit;
    let State { context, journal, tracker, console, agent, .. } = repl.state;
    // The agent's programs exit before the session that they write to ends.
    drop(agent);
    let (session, own, turns) = (journal.session.clone(), journal.own, tracker.turns);
    let ended = journal.end(context);
    if held.is_err() && console.is_terminal() {
        // The editor may still be reading, so its bracketed paste mode is switched off.
        context.out.raw(b"\x1b[?2004l\n")?;
    }
    drop(console);
    held?;
    ended?;
    let left = if own { "ended" } else { "left open" };
    let rounds = count(usize::try_from(turns).unwrap_or(usize::MAX), "round");
    let again = style().faint("· cp-shell -c continues it");
    context.out.raw(format!("{session} {left} after {rounds} {again}\n").as_bytes())?;
    context.out.ended_with(exit);
    context.out.flush()
}

struct Repl<'a> {
    state: State<'a>,
    /// True if the lines of a script are shown.
    echo: bool,
    /// The exit status of a script: that of the first line that failed.
    exit: u8,
}

impl<'a> Repl<'a> {
    fn open(request: &Request, context: &'a mut Context) -> Result<Self> {
        let settings = settings::load(&context.home.path("config/shell.toml"))?;
        let plane = Plane::of_context(context)?;
        if request.continues && context.session().is_none() {
            context.options.session = Some(memory::last_session(context)?);
        }
        let joined = journal::joined(true, context)?;
        let id = agent_id(request.agent.as_deref(), joined.as_ref(), context);
        let console = Console::open(commands::candidates)?;
        let agent = agent::named(&id, &plane, &request.model, context)?;
        let hint = style().faint("· :help lists the commands, :quit ends");
        show(&mut context.out, &format!("cp-shell {VERSION} {hint}\n"))?;
        if joined.is_some() {
            close_question(&id, context)?;
            let recap = memory::recap(context)?;
            show(&mut context.out, &recap)?;
        }
        // The person can type while the session is being prepared.
        console.ask(PROMPT);
        let journal = Journal::open(joined.as_ref(), &id, context)?;
        memory::remember_session(&journal.session, context)?;
        let redactor = Redactor::from_environment();
        let shell_history = history::collect(&settings.shell_history, request.with_history, &redactor);
        let hub = Hub::start(&settings.hub, request.closed(), &std::env::current_dir()?);
        let mut transcript = Transcript::open(&journal.directory, &journal.session, &id)?;
        transcript.note("session_history", &shell_history)?;
        if !hub.is_pending() {
            transcript.note("session_hub", &hub.loaded)?;
        }
        let turns = Digest::of(&journal.directory)?.turns;
        let tracker = Tracker::new(plane.tier().unwrap_or_else(|| context.tier()), turns);
        let isolated = joined.is_some_and(|joined| joined.is_isolated());
        let echo = !console.is_terminal() && !context.options.quiet;
        let state = State {
            offline: request.offline,
            settings,
            redactor,
            shell_history,
            context,
            console,
            agent,
            journal,
            transcript,
            plane,
            tracker,
            used: 0,
            window: CONTEXT_LIMIT,
            hub,
            isolated,
            allows_tools: false,
            turns: Vec::new(),
            model: request.model.clone(),
            is_stopped: false,
        };
        Ok(Self { state, echo, exit: 0 })
    }

    /// Reads and runs lines until the input ends or the person quits.
    fn talk(&mut self) -> Result<()> {
        loop {
            match self.state.console.wait() {
                Typed::Line(line) => {
                    // An editor has already shown its input.
                    if self.echo {
                        self.state.show(&format!("{PROMPT}{}\n", line.replace('\n', "\n... ")))?;
                    }
                    let leaves = self.line(&line)?;
                    if self.state.is_stopped {
                        return Err(ended_by_signal());
                    }
                    if leaves {
                        return Ok(());
                    }
                }
                Typed::Interrupted if self.state.console.is_terminal() => {
                    self.state.show(&format!("{}\n", style().faint("(:quit ends the session)")))?;
                }
                // The signal arrived while no command was running, and the editor still has its line.
                Typed::Signalled if self.state.console.is_terminal() => continue,
                Typed::Interrupted | Typed::Signalled | Typed::Terminated => return Err(ended_by_signal()),
                Typed::Wrong(what, hint) => self.state.show(&style().error(&what, hint))?,
                Typed::End => return Ok(()),
            }
            self.state.poll_hub()?;
            // An editor that starts now could change the terminal after it is restored.
            if signals::ending() {
                return Err(ended_by_signal());
            }
            self.state.console.ask(PROMPT);
        }
    }

    /// Finishes the session. Questions are asked only if the person quit.
    fn close(&mut self, orderly: bool) -> Result<()> {
        let state = &mut self.state;
        state.hub.close(&mut state.transcript)?;
        state.context.name_page(&state.journal.session);
        let asks = state.settings.learning.ask && state.console.is_terminal();
        if orderly && asks { memory::offer_lesson(state) } else { Ok(()) }
    }

    /// Runs and records one line. True if it was the last.
    fn line(&mut self, line: &str) -> Result<bool> {
        let started = Instant::now();
        let whole = join_lines(line);
        let state = &mut self.state;
        let input = parse(&whole);
        let class = match &input {
            Input::Nothing => return Ok(false),
            Input::Command(command, _) => command.class,
            Input::Run(_) => Class::Governed,
            Input::Say(_) => Class::Append,
            Input::Unknown(_) => Class::Query,
        };
        // A query shows the signals that the last turn or command left.
        if !matches!(class, Class::Query) {
            state.tracker.begin(class);
        }
        let mut leaves = false;
        let mut is_slip = matches!(input, Input::Unknown(_));
        let mut about = "`:help` lists the commands, `:state` shows the state of the session".to_owned();
        let carried_out = match input {
            Input::Nothing => return Ok(false),
            Input::Command(command, argument) => {
                leaves = command.name() == "quit";
                about = format!("`:help {}` describes the command", command.name());
                commands::perform(state, command, argument)
            }
            Input::Run(command) => commands::run::run(state, command),
            Input::Say(text) => turn::take(state, text),
            Input::Unknown(name) => commands::unlisted(state, &whole, name),
        };
        let outcome = match carried_out {
            Ok(outcome) => {
                is_slip = false;
                outcome
            }
            Err(error) if error.is_reader_gone() => return Err(error),
            Err(error) => {
                is_slip &= error.code() == Code::Usage;
                state.forget_interrupt();
                let text = style().error(error.message(), error.hint_text().unwrap_or(&about));
                let exit = error.code().row().exit;
                Outcome { result: json!({"error": error.message()}), text, exit, ..Outcome::default() }
            }
        };
        if self.exit == 0 && !self.state.console.is_terminal() {
            self.exit = outcome.exit;
        }
        let leaves = leaves && outcome.exit == 0;
        // A mistyped name does not count as a failure.
        self.state.tracker.end(outcome.exit == 0 || is_slip);
        self.conclude(whole.trim(), outcome, started)?;
        Ok(leaves)
    }

    /// Shows and records the outcome of a line.
    fn conclude(&mut self, line: &str, outcome: Outcome, started: Instant) -> Result<()> {
        let state = &mut self.state;
        let strip = || style().faint(&state.strip()) + "\n";
        let strip = if outcome.has_strip { strip() } else { String::new() };
        state.show(&(outcome.text + &strip))?;
        let files = [state.plane.take_reads(), outcome.writes];
        let evidence = Evidence::new(Form::Cmd, line, started, &outcome.result, files);
        let journal = &mut state.journal;
        let staged = journal.stage(Form::Cmd, line, outcome.exit == 0, &evidence, &outcome.calls);
        let recorded = staged.and_then(|()| journal.commit());
        state.tracker.synced = recorded.is_ok() && journal.synced();
        recorded.or_else(|e| {
            let message = format!("this turn was not recorded in the ledger: {}", e.message());
            state.show(&style().error(&message, e.hint_text().unwrap_or("`cp-log verify` checks the ledgers")))
        })
    }
}

fn ended_by_signal() -> Error {
    Error::new(Code::Interrupted, "interrupted by a signal").hint("`cp-shell -c` continues the session")
}

/// The requested agent, or the agent of the joined session.
fn agent_id(asked: Option<&str>, joined: Option<&Joined>, context: &Context) -> String {
    let asked = context.config.get("agent", asked);
    let theirs = joined.and_then(|joined| joined.agent.as_deref()).filter(|agent| !agent.is_empty());
    match (asked, theirs) {
        (Some(asked), None) => asked.text,
        (Some(asked), Some(_)) if asked.origin != Origin::Default => asked.text,
        (_, theirs) => theirs.unwrap_or("default").to_owned(),
    }
}
