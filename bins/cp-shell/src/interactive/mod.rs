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
use crate::interactive::state::{Outcome, Request, State, ended_by_signal};
use crate::interactive::transcript::{Digest, Transcript, close_question};
use crate::journal::{self, Journal};
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
    let mut state = State::open(request, context)?;
    let mut held = state.talk();
    if let Err(e) = state.close(held.is_ok()) {
        held = held.and(Err(e));
    }
    let State { context, journal, tracker, console, agent, exit, .. } = state;
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

impl<'a> State<'a> {
    fn open(request: &Request, context: &'a mut Context) -> Result<Self> {
        let settings = settings::load(&context.home.path("config/shell.toml"))?;
        let plane = Plane::of_context(context)?;
        if request.continues && context.session().is_none() {
            context.options.session = Some(memory::last_session(context)?);
        }
        let joined = journal::joined(true, context)?;
        let theirs = joined.as_ref().and_then(|joined| joined.agent.as_deref());
        let id = context.agent_of(request.agent.as_deref(), theirs);
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
        memory::remember_session(&journal.session, journal::known_agent(&id), context)?;
        let redactor = Redactor::from_environment();
        let shell_history = history::collect(&settings.shell_history, request.with_history, redactor);
        let hub = Hub::start(&settings.hub, request.closed(), &std::env::current_dir()?);
        let mut transcript = Transcript::open(&journal.directory, &journal.session, &id)?;
        transcript.note("session_history", &shell_history)?;
        if !hub.is_pending() {
            transcript.note("session_hub", &hub.loaded)?;
        }
        let turns = Digest::of(&journal.directory)?.turns;
        let tracker = Tracker::new(plane.tier().map_or_else(|| context.tier(None), Ok)?, turns);
        let isolated = joined.is_some_and(|joined| joined.is_isolated());
        Ok(Self {
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
            exit: 0,
            end: None,
        })
    }

    /// Reads and runs lines until the input ends or the person quits.
    fn talk(&mut self) -> Result<()> {
        loop {
            match self.console.wait() {
                Typed::Line(line) => {
                    // An editor has already shown its input.
                    if !self.console.is_terminal() && !self.context.options.quiet {
                        self.show(&format!("{PROMPT}{}\n", line.replace('\n', "\n... ")))?;
                    }
                    self.line(&line)?;
                    if let Some(end) = self.end.take() {
                        return end;
                    }
                }
                Typed::Interrupted if self.console.is_terminal() => {
                    self.show(&format!("{}\n", style().faint("(:quit ends the session)")))?;
                }
                // The signal arrived while no command was running, and the editor still has its line.
                Typed::Signalled if self.console.is_terminal() => continue,
                Typed::Interrupted | Typed::Signalled | Typed::Terminated => return Err(ended_by_signal()),
                Typed::Wrong(what, hint) => {
                    self.show(&style().error(&what, hint))?;
                    self.note_exit(Code::Validation.row().exit);
                }
                Typed::End => return Ok(()),
            }
            self.poll_hub()?;
            // An editor that starts now could change the terminal after it is restored.
            if signals::ending() {
                return Err(ended_by_signal());
            }
            self.console.ask(PROMPT);
        }
    }

    /// Finishes the session. Questions are asked only if the person quit.
    fn close(&mut self, orderly: bool) -> Result<()> {
        self.hub.close(&mut self.transcript)?;
        self.context.name_page(&self.journal.session);
        let asks = self.settings.learning.ask && self.console.is_terminal();
        if orderly && asks { memory::offer_lesson(self) } else { Ok(()) }
    }

    /// Runs and records one line.
    fn line(&mut self, line: &str) -> Result<()> {
        let started = Instant::now();
        let whole = join_lines(line);
        let input = parse(&whole);
        let class = match &input {
            Input::Nothing => return Ok(()),
            Input::Command(command, _) => command.class,
            Input::Run(_) => Class::Governed,
            Input::Say(_) => Class::Append,
            Input::Unknown(_) => Class::Query,
        };
        // A query shows the signals that the last turn or command left.
        if !matches!(class, Class::Query) {
            self.tracker.begin(class);
        }
        let carried_out = match input {
            Input::Nothing => return Ok(()),
            Input::Command(command, argument) => commands::perform(self, command, argument),
            Input::Run(command) => commands::run::run(self, command),
            Input::Say(text) => turn::take(self, text),
            Input::Unknown(name) => commands::unlisted(self, &whole, name),
        };
        let outcome = match carried_out {
            Ok(outcome) => outcome,
            Err(error) if error.is_reader_gone() => return Err(error),
            Err(error) => {
                self.forget_interrupt();
                let hint = "`:help` lists the commands, `:state` shows the state of the session";
                let text = style().error(error.message(), error.hint_text().unwrap_or(hint));
                let exit = error.code().row().exit;
                Outcome { result: json!({"error": error.message()}), text, exit, ..Outcome::default() }
            }
        };
        self.note_exit(outcome.exit);
        self.tracker.end(outcome.exit == 0);
        self.conclude(whole.trim(), outcome, started)
    }

    /// The exit status of a script is that of its first line that failed.
    fn note_exit(&mut self, exit: u8) {
        if self.exit == 0 && !self.console.is_terminal() {
            self.exit = exit;
        }
    }

    /// Shows and records the outcome of a line.
    fn conclude(&mut self, line: &str, outcome: Outcome, started: Instant) -> Result<()> {
        let strip = if outcome.has_strip { style().faint(&self.strip()) + "\n" } else { String::new() };
        self.show(&(outcome.text + &strip))?;
        let Self { journal, plane, .. } = self;
        let staged = journal.stage(
            (Form::Cmd, line),
            started,
            (outcome.exit == 0, &outcome.result),
            [plane.take_reads(), outcome.writes],
            &outcome.calls,
        );
        let recorded = staged.and_then(|_| journal.commit());
        self.tracker.synced = recorded.is_ok() && journal.synced();
        recorded.or_else(|e| {
            let message = format!("this turn was not recorded in the ledger: {}", e.message());
            self.show(&style().error(&message, e.hint_text().unwrap_or("`cp-log verify` checks the ledgers")))
        })
    }
}
