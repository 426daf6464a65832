//! A session with a person, open: what it holds, and how a line goes through it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use cp_common::home::config::Origin;
use cp_common::output::Format;
use cp_common::program::{Class, VERSION};
use cp_common::{Code, Context, Error, Result};
use cp_redact::Redactor;
use serde_json::{Value, json};

use crate::agent::Agent;
use crate::interactive::completion::Ids;
use crate::interactive::desk::{Desk, Typed};
use crate::interactive::explain::Explained;
use crate::interactive::history::{self, History};
use crate::interactive::hub::{Hub, Reach};
use crate::interactive::kept::Kept;
use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::parse::{self, Input};
use crate::interactive::record::Record;
use crate::interactive::render::count;
use crate::interactive::settings::{self, Settings};
use crate::interactive::{agent_of, commands, learning, run, style, turn};
use crate::journal::{self, Journal};
use crate::plane::Plane;
use crate::plane::canonical::hash_value;
use crate::session::Args;
use crate::signals::Tracker;

const PROMPT: &str = "cp> ";
/// How long the end of a session waits for a hub that was asked at its beginning.
const LAST_WAIT: Duration = Duration::from_millis(200);

/// A session that is open.
pub(crate) struct Shell<'a> {
    pub(crate) args: &'a Args,
    pub(crate) context: &'a mut Context,
    pub(crate) desk: Rc<Desk>,
    pub(crate) settings: Settings,
    pub(crate) agent: Box<dyn Agent>,
    pub(crate) journal: Journal,
    pub(crate) record: Record,
    pub(crate) plane: Plane,
    pub(crate) tracker: Tracker,
    pub(crate) hub: Hub,
    pub(crate) history: History,
    pub(crate) redactor: Redactor,
    kept: Kept,
    /// Whether the conversation so far stays with us.
    pub(crate) isolated: bool,
    /// Whether each turn so far was destructive or a mass edit.
    pub(crate) heavy: Vec<bool>,
    /// The tools that the model may use after a yes, once they were looked up.
    pub(crate) tools: Option<String>,
    /// The last turn, for `:explain`.
    pub(crate) last: Option<Explained>,
    /// Rounds of this session, without secrets: what may be remembered at its end.
    pub(crate) rounds: Vec<(String, String)>,
    /// How many tokens the conversation takes.
    pub(crate) used: u64,
    own: bool,
    echo: bool,
}

/// Holds a session from its start to its end. What ends it before is told in words: a person reads here, whatever the format.
pub(crate) fn hold(args: &Args, context: &mut Context) -> Result<()> {
    let held = from_start_to_end(args, context);
    if let Err(e) = &held
        && !e.is_reader_gone()
        && context.out.format() == Format::Json
    {
        context.out.raw(style().error(e.message(), e.hint_text()).as_bytes())?;
        context.out.ended_with(e.code().row().exit);
    }
    held
}

fn from_start_to_end(args: &Args, context: &mut Context) -> Result<()> {
    let mut shell = Shell::open(args, context)?;
    let mut held = shell.talk();
    if let Err(e) = shell.close(held.is_ok()) {
        held = held.and(Err(e));
    }
    let Shell { context, journal, own, tracker, desk, agent, .. } = shell;
    // Its parts leave before the session ends that they write to.
    drop(agent);
    let (session, turns) = (journal.session().to_owned(), tracker.turns());
    let ended = journal.end(context);
    if held.is_err() && desk.is_terminal() {
        // The editor may be reading still: pasted text is to come as it is again.
        context.out.raw(b"\x1b[?2004l\n")?;
    }
    drop(desk);
    held?;
    ended?;
    let left = if own { "ended" } else { "left open" };
    let turns = count(usize::try_from(turns).unwrap_or(usize::MAX), "turn");
    context.out.raw(format!("{session} {left} after {turns}\n").as_bytes())?;
    context.out.ended_with(0);
    context.out.flush()
}

impl<'a> Shell<'a> {
    fn open(args: &'a Args, context: &'a mut Context) -> Result<Self> {
        let settings = settings::load(&context.home.path("config/shell.toml"))?;
        let plane = Plane::open(args.root.as_deref().unwrap_or(context.home.root()))?;
        let own = context.session().is_none();
        let joined = if own { Value::Null } else { joined(context)? };
        let id = speaker(args, &joined, context);
        let kept = Kept::new(context.home.state("prompt_history"), &settings.history);
        let agents = crate::agents::load(&context.home.agents_file())?.keys().cloned().collect();
        let desk = Rc::new(Desk::open(Ids { root: plane.root().to_owned(), agents }, kept.load())?);
        let agent = agent_of(&id, &plane, &desk, args, context)?;
        let echo = !desk.is_terminal() && !context.options.quiet;
        let style = style();
        context.out.raw(
            format!("cp-shell {VERSION} {}\n", style.faint("· :help lists the commands, :quit ends")).as_bytes(),
        )?;
        context.out.flush()?;
        // The person can type while the rest is made ready.
        desk.ask(PROMPT);
        let journal = Journal::open(context, &id)?;
        let isolated = joined["mode"] == "isolated";
        let redactor = Redactor::from_environment();
        let history = history::collect(&settings.shell_history, args.with_history, &redactor);
        let reach = match (args.offline, args.no_hub) {
            (_, true) => Reach::Left,
            (true, false) => Reach::Offline,
            (false, false) => Reach::Open,
        };
        let hub = Hub::start(&settings.hub, reach, &std::env::current_dir()?);
        let mut record = Record::open(journal.directory(), journal.session(), &id)?;
        record.note("session_history", &history)?;
        let tracker = Tracker::new(plane.tier().unwrap_or_else(|| context.tier()), None, journal.turns());
        let mut shell = Self {
            args,
            context,
            desk,
            settings,
            agent,
            journal,
            record,
            plane,
            tracker,
            hub,
            history,
            redactor,
            kept,
            isolated,
            heavy: Vec::new(),
            tools: None,
            last: None,
            rounds: Vec::new(),
            used: 0,
            own,
            echo,
        };
        if !shell.hub.is_pending() {
            shell.record_hub()?;
        }
        Ok(shell)
    }

    /// The lines, until there is none or the person leaves.
    fn talk(&mut self) -> Result<()> {
        loop {
            match self.desk.wait() {
                Typed::Line(line) => {
                    if self.echo {
                        self.say(&format!("{PROMPT}{}\n", line.replace('\n', "\n... ")))?;
                    }
                    if self.line(&line)? {
                        return Ok(());
                    }
                }
                Typed::Interrupted if self.desk.is_terminal() => {
                    self.say(&format!("{}\n", style().faint("(:quit ends the session)")))?;
                }
                // It came while nothing was under way, and the editor still has its line.
                Typed::Signalled if self.desk.is_terminal() => continue,
                Typed::Interrupted | Typed::Signalled | Typed::Terminated => {
                    return Err(Error::new(Code::Interrupted, "interrupted by a signal"));
                }
                Typed::Wrong(what) => self.say(&style().error(&what, None))?,
                Typed::End => return Ok(()),
            }
            self.look_at_hub()?;
            self.desk.ask(PROMPT);
        }
    }

    /// What comes after the last line. What a person could still be asked is asked only of one who left by themselves.
    fn close(&mut self, orderly: bool) -> Result<()> {
        self.hub.take(LAST_WAIT);
        self.record_hub()?;
        if orderly && self.desk.is_terminal() {
            learning::offer(self)?;
        }
        Ok(())
    }

    /// One line, from its text to its record. True when it was the last.
    fn line(&mut self, line: &str) -> Result<bool> {
        let started = Instant::now();
        let whole = parse::joined(line);
        if let Err(e) = self.kept.add(line, &self.redactor) {
            self.say(&style().error(e.message(), None))?;
        }
        let input = parse::parse(&whole);
        let class = match &input {
            Input::Nothing => return Ok(false),
            Input::Command(command, _) => command.class,
            Input::Run(_) => Class::Governed,
            Input::Say(_) => Class::Append,
            Input::Unknown(..) => Class::Query,
        };
        self.tracker.begin(class);
        let mut leaves = false;
        let done = match input {
            Input::Nothing => return Ok(false),
            Input::Command(command, argument) => {
                leaves = command.act == crate::interactive::table::Act::Quit;
                commands::perform(self, command, argument)
            }
            Input::Run(command) => run::run(self, command),
            Input::Say(text) => turn::take(self, text),
            Input::Unknown(name, near) => commands::unknown(self, &whole, name, near),
        };
        self.over(whole.trim(), done, started.elapsed())?;
        Ok(leaves)
    }

    /// Shows what a line came to, and puts it on the record.
    fn over(&mut self, line: &str, done: Done, took: Duration) -> Result<()> {
        let outcome = match done {
            Ok(outcome) => outcome,
            Err(Problem { end: Some(error), .. }) => return Err(error),
            Err(problem) => {
                let text = style().error(&problem.message, problem.cure.as_deref());
                Outcome { result: json!({"error": problem.message}), text, failed: true, ..Outcome::default() }
            }
        };
        self.tracker.end(!outcome.failed);
        self.say(&outcome.text)?;
        let (command, _) = self.redactor.redact_text(line);
        let reads = self.plane.take_reads();
        let recorded = self.journal.record(&journal::Turn {
            command: &command,
            command_hash: &hash_value(&json!({"cmd": command})),
            result_hash: &hash_value(&outcome.result),
            fine: !outcome.failed,
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            reads: &reads,
            writes: &outcome.writes,
            calls: &outcome.calls,
        });
        self.tracker.synced(recorded.is_ok() && self.journal.synced());
        recorded.or_else(|e| {
            self.say(&style().error(&format!("this turn is not on the ledger: {}", e.message()), e.hint_text()))
        })
    }

    /// Shows something now.
    pub(crate) fn say(&mut self, text: &str) -> Result<()> {
        self.context.out.raw(text.as_bytes())?;
        self.context.out.flush()
    }

    /// Takes the hub's answer if it has come, records it, and tells a person at a terminal.
    pub(crate) fn look_at_hub(&mut self) -> Result<()> {
        if !self.hub.take(Duration::ZERO) {
            return Ok(());
        }
        self.record_hub()?;
        if !self.desk.is_terminal() {
            return Ok(());
        }
        let loaded = self.hub.loaded();
        let things = loaded.parts().map(|(name, things)| (name, things.len()));
        let told: Vec<String> =
            things.into_iter().filter(|(_, many)| *many > 0).map(|(name, many)| count(many, name)).collect();
        let told = match (told.is_empty(), loaded.errors.first()) {
            (false, _) => format!("hub: {} (:hub)\n", told.join(", ")),
            (true, Some(_)) => "hub: not reached (:hub tells why)\n".to_owned(),
            (true, None) => return Ok(()),
        };
        self.say(&style().faint(&told))
    }

    /// Records what the hub said, once.
    pub(crate) fn record_hub(&mut self) -> Result<()> {
        match self.hub.unrecorded() {
            Some(loaded) => self.record.note("session_hub", &loaded),
            None => Ok(()),
        }
    }
}

/// The session that was named, as it is. One that has ended takes nothing more.
fn joined(context: &Context) -> Result<Value> {
    let shown = journal::ask(context, "cp-session", &["show"])?;
    if shown["ended"] == true {
        let id = shown["session_id"].as_str().unwrap_or_default().to_owned();
        return Err(Error::new(Code::Conflict, format!("{id} has ended"))
            .with("session", id.clone())
            .hint(format!("leave --session out for a new one, or go on from a copy: cp-session fork {id}")));
    }
    Ok(shown)
}

/// Who speaks: the one that is asked for, else the one of the session that was named.
fn speaker(args: &Args, joined: &Value, context: &Context) -> String {
    let asked = context.config.get("agent", args.agent.as_deref());
    let theirs = joined["agent"].as_str().filter(|agent| !agent.is_empty());
    match (asked, theirs) {
        (Some(asked), None) => asked.text,
        (Some(asked), Some(_)) if asked.origin != Origin::Default => asked.text,
        (_, theirs) => theirs.unwrap_or("default").to_owned(),
    }
}
