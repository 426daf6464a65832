//! The session with a person: a prompt, commands, and turns that go to a model. Arrows point down: the loop ([`repl`]) carries out
//! [`commands`] and takes [`turn`]s, which change the [`state`]; below it are the [`console`], the [`hub`], memory and the transcript.

mod assessment;
mod commands;
mod console;
mod history;
mod hub;
mod memory;
mod settings;
pub(crate) mod state;
mod transcript;
mod turn;

use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::home::config::Origin;
use cp_common::output::Format;
use cp_common::program::{Class, VERSION};
use cp_common::{Code, Context, Error, Result, signals};
use cp_ledger::format::canonical::hash_value;
use cp_ledger::format::claims::{self, Form};
use cp_redact::Redactor;
use serde_json::json;

use crate::agent::{self, ModelOptions, load_agents};
use crate::interactive::commands::completion::{Ids, candidates};
use crate::interactive::commands::{Input, parse};
use crate::interactive::console::joined;
use crate::interactive::console::render::{Page, count, show, style};
use crate::interactive::console::{Console, Typed};
use crate::interactive::history::PromptHistory;
use crate::interactive::hub::Hub;
use crate::interactive::state::{Conversation, Ledgers, Outcome, Request, Setup, Standing, State, record_hub};
use crate::interactive::transcript::{Transcript, close_question};
use crate::journal::{self, Joined, Journal};
use crate::plane::Plane;
use crate::signals::{CONTEXT_LIMIT, Tracker};

/// Holds a session with a person, or with a script that stands in for one, from its start to its end. What ends it before is shown as
/// text, whatever the format: a person reads here.
pub(crate) fn run(request: Request<'_>, context: &mut Context) -> Result<()> {
    // A person's session outlives an interruption, and gives the terminal back as it was.
    let _effect = signals::effect();
    let held = hold(request, context).map_err(Error::without_secrets);
    if let Err(e) = &held
        && !e.is_reader_gone()
        && context.out.format() == Format::Json
    {
        context.out.raw(style().error(e.message(), e.hint_text()).as_bytes())?;
        context.out.ended_with(e.code().row().exit);
    }
    held
}

const PROMPT: &str = "cp> ";
/// How long the end of a session waits for a hub that was asked at its beginning.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// Holds a session from its start to its end.
pub(crate) fn hold(request: Request<'_>, context: &mut Context) -> Result<()> {
    signals::quit_ends();
    let mut repl = Repl::open(request, context)?;
    let mut held = repl.talk();
    if let Err(e) = repl.close(held.is_ok()) {
        held = held.and(Err(e));
    }
    let exit = repl.exit;
    let State { context, ledgers, standing, console, agent, .. } = repl.state;
    // Its programs leave before the session ends that they write to.
    drop(agent);
    let journal = ledgers.journal;
    let (session, own, turns) = (journal.session().to_owned(), journal.owns_session(), standing.tracker.turns());
    let ended = journal.end(context);
    if held.is_err() && console.is_terminal() {
        // The editor may be reading still: pasted text is to come as it is again.
        context.out.raw(b"\x1b[?2004l\n")?;
    }
    drop(console);
    held?;
    ended?;
    let left = if own { "ended" } else { "left open" };
    let turns = count(usize::try_from(turns).unwrap_or(usize::MAX), "turn");
    let again = style().faint("· cp-shell -c goes on with it");
    context.out.raw(format!("{session} {left} after {turns} {again}\n").as_bytes())?;
    context.out.ended_with(exit);
    context.out.flush()
}

struct Repl<'a> {
    state: State<'a>,
    prompt_history: PromptHistory,
    /// Whether the lines of a script are shown.
    echo: bool,
    /// The exit status: of the first turn of a script that failed, or of the first line that required approval.
    exit: u8,
}

impl<'a> Repl<'a> {
    fn open(request: Request<'a>, context: &'a mut Context) -> Result<Self> {
        let settings = settings::load(&context.home.path("config/shell.toml"))?;
        let plane = Plane::named(request.root, context.home.root())?;
        if request.goes_on && context.session().is_none() {
            context.options.session = Some(commands::sessions::last(context)?);
        }
        let joined = if context.session().is_some() { Some(journal::resumed(context)?) } else { None };
        let id = agent_id(request.agent, joined.as_ref(), context);
        let prompt_history = PromptHistory::new(context.home.state("prompt_history"), &settings.history);
        let agents = load_agents(&context.home.agents_file())?.keys().cloned().collect();
        let ids = Ids { root: plane.root().to_owned(), agents };
        let completions = Arc::new(move |line: &str, at: usize| candidates(line, at, &ids));
        let console = Console::open(completions, prompt_history.load())?;
        let reasoning = settings.show.reasoning && console.is_terminal() && Page::of_terminal().is_some();
        let model = ModelOptions { reasoning, ..request.model.clone() };
        let agent = agent::named(&id, &plane, &model, context)?;
        let hint = style().faint("· :help lists the commands, :quit ends");
        show(&mut context.out, &format!("cp-shell {VERSION} {hint}\n"))?;
        if joined.is_some() {
            close_question(&id, context)?;
            let recap = commands::sessions::recap(context, style())?;
            show(&mut context.out, &recap)?;
        }
        // The person can type while the rest is made ready.
        console.ask(PROMPT);
        let journal = Journal::open(joined.as_ref(), &id, context)?;
        commands::sessions::remember(journal.session(), context)?;
        let redactor = Redactor::from_environment();
        let shell_history = history::collect(&settings.shell_history, request.options.with_history, &redactor);
        let mut hub = Hub::start(&settings.hub, request.options.reach(), &std::env::current_dir()?);
        let mut transcript = Transcript::open(journal.directory(), journal.session(), &id)?;
        transcript.note("session_history", &shell_history)?;
        if !hub.is_pending() {
            record_hub(&mut hub, &mut transcript)?;
        }
        let tracker = Tracker::new(plane.tier().unwrap_or_else(|| context.tier()), None, journal.turns());
        let isolated = joined.is_some_and(|joined| joined.is_isolated());
        let echo = !console.is_terminal() && !context.options.quiet;
        let state = State {
            setup: Setup { request, settings, redactor, shell_history },
            context,
            console,
            agent,
            ledgers: Ledgers { journal, transcript },
            standing: Standing { plane, tracker, used: 0, window: CONTEXT_LIMIT },
            hub,
            conversation: Conversation { isolated, ..Conversation::default() },
            model,
        };
        Ok(Self { state, prompt_history, echo, exit: 0 })
    }

    /// The lines, until there is none or the person leaves.
    fn talk(&mut self) -> Result<()> {
        loop {
            let typed = self.state.console.wait();
            // The editor has shown what was typed at it.
            let is_unseen = self.echo || matches!(typed, Typed::Ahead(_));
            match typed {
                Typed::Line(line) | Typed::Ahead(line) => {
                    if is_unseen {
                        self.state.show(&format!("{PROMPT}{}\n", line.replace('\n', "\n... ")))?;
                    }
                    if self.line(&line)? {
                        return Ok(());
                    }
                }
                Typed::Interrupted if self.state.console.is_terminal() => {
                    self.state.show(&format!("{}\n", style().faint("(:quit ends the session)")))?;
                }
                // It came while nothing was under way, and the editor still has its line.
                Typed::Signalled if self.state.console.is_terminal() => continue,
                Typed::Interrupted | Typed::Signalled | Typed::Terminated => {
                    return Err(Error::new(Code::Interrupted, "interrupted by a signal"));
                }
                Typed::Wrong(what) => self.state.show(&style().error(&what, None))?,
                Typed::End => return Ok(()),
            }
            self.state.look_at_hub()?;
            self.state.console.ask(PROMPT);
        }
    }

    /// What comes after the last line. What a person could still be asked is asked only of one who left by themselves.
    fn close(&mut self, orderly: bool) -> Result<()> {
        let state = &mut self.state;
        state.hub.take(LAST_WAIT);
        record_hub(&mut state.hub, &mut state.ledgers.transcript)?;
        state.context.name_page("--session", state.ledgers.journal.session());
        let asks = state.setup.settings.learning.ask && state.console.is_terminal();
        if orderly && asks { commands::memory::offer_lesson(state) } else { Ok(()) }
    }

    /// One line, from its text to its record. True when it was the last.
    fn line(&mut self, line: &str) -> Result<bool> {
        let started = Instant::now();
        let whole = joined(line);
        let state = &mut self.state;
        if let Err(e) = self.prompt_history.add(line, &state.setup.redactor) {
            state.show(&style().error(e.message(), None))?;
        }
        let input = parse(&whole);
        let class = match &input {
            Input::Nothing => return Ok(false),
            Input::Command(command, _) => command.class,
            Input::Run(_) => Class::Governed,
            Input::Say(_) => Class::Append,
            Input::Unknown(..) => Class::Query,
        };
        state.standing.tracker.begin(class);
        let (mut leaves, is_turn) = (false, matches!(input, Input::Say(_)));
        let mut is_slip = matches!(input, Input::Unknown(..));
        let carried_out = match input {
            Input::Nothing => return Ok(false),
            Input::Command(command, argument) => {
                leaves = command.name() == "quit";
                commands::perform(state, command, argument)
            }
            Input::Run(command) => commands::run::run(state, command, false),
            Input::Say(text) => turn::take(state, text),
            Input::Unknown(name, near) => commands::unknown(&mut state.standing, &whole, name, near),
        };
        let outcome = match carried_out {
            Ok(outcome) => {
                is_slip = false;
                outcome
            }
            Err(error) if error.is_reader_gone() => return Err(error),
            Err(error) => {
                is_slip &= error.code() == Code::Usage;
                // A signal was for the line, and it has ended.
                signals::forget_interrupt();
                let hint =
                    error.hint_text().unwrap_or("`:help` lists the commands, `:state` shows where the session is");
                let text = style().error(error.message(), Some(hint));
                let exit = error.code().row().exit;
                Outcome { result: json!({"error": error.message()}), text, exit, ..Outcome::default() }
            }
        };
        let requires_approval = outcome.exit == Code::ConfirmationRequired.row().exit;
        if self.exit == 0 && !self.state.console.is_terminal() && (is_turn || requires_approval) {
            self.exit = outcome.exit;
        }
        let leaves = leaves && outcome.exit == 0;
        // A name that was mistyped says nothing about how the session is doing.
        self.state.standing.tracker.end(outcome.exit == 0 || is_slip);
        self.conclude(whole.trim(), outcome, started.elapsed())?;
        Ok(leaves)
    }

    /// Shows the outcome of a line, and puts it on the record.
    fn conclude(&mut self, line: &str, outcome: Outcome, took: Duration) -> Result<()> {
        let state = &mut self.state;
        let strip = outcome.has_strip.then(|| format!("{}\n", style().faint(&state.standing.strip())));
        state.show(&format!("{}{}", outcome.text, strip.unwrap_or_default()))?;
        let journal = &mut state.ledgers.journal;
        let recorded = journal.record(journal::Turn {
            command_hash: claims::command_hash(Form::Cmd, line),
            form: Form::Cmd,
            command: line.to_owned(),
            result_hash: hash_value(&outcome.result),
            succeeded: outcome.exit == 0,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            reads: state.standing.plane.take_reads(),
            writes: outcome.writes,
            calls: outcome.calls,
        });
        state.standing.tracker.synced(recorded.is_ok() && journal.synced());
        recorded.or_else(|e| {
            state.show(&style().error(&format!("this turn is not on the ledger: {}", e.message()), e.hint_text()))
        })
    }
}

/// The agent that is asked for, else the one of the session that was joined.
fn agent_id(asked: Option<&str>, joined: Option<&Joined>, context: &Context) -> String {
    let asked = context.config.get("agent", asked);
    let theirs = joined.and_then(|joined| joined.agent.as_deref()).filter(|agent| !agent.is_empty());
    match (asked, theirs) {
        (Some(asked), None) => asked.text,
        (Some(asked), Some(_)) if asked.origin != Origin::Default => asked.text,
        (_, theirs) => theirs.unwrap_or("default").to_owned(),
    }
}
