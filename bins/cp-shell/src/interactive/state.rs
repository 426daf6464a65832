//! What an open session holds: what was settled at its start, and what its lines change. A command takes the parts that it needs.

use std::path::Path;
use std::time::Duration;

use cp_common::output::Output;
use cp_common::{Context, Result};
use cp_redact::Redactor;

use crate::agent::{self, Agent, ModelOptions};
use crate::interactive::assessment::explained::Explained;
use crate::interactive::console::Console;
use crate::interactive::console::render::{count, show, style};
use crate::interactive::hub::Hub;
use crate::interactive::options::Options;
use crate::interactive::settings::Settings;
use crate::interactive::shell_history::ShellHistory;
use crate::interactive::transcript::Transcript;
use crate::journal::Journal;
use crate::plane::Plane;
use crate::signals::{CONTEXT_LIMIT, Signals, Strip, Tracker};

/// What the command line asks of a session with a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The control plane tree; without it the home.
    pub(crate) root: Option<&'a Path>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) options: Options,
    pub(crate) model: &'a ModelOptions,
}

/// What does not change while the session is open.
pub(crate) struct Setup<'a> {
    pub(crate) request: Request<'a>,
    pub(crate) settings: Settings,
    pub(crate) redactor: Redactor,
    pub(crate) shell_history: ShellHistory,
}

/// The tree, and the signals that are computed from it and from what happened.
pub(crate) struct Standing {
    pub(crate) plane: Plane,
    pub(crate) tracker: Tracker,
    /// How many tokens the conversation takes.
    pub(crate) used: u64,
}

impl Standing {
    pub(crate) fn signals(&self) -> Signals {
        self.tracker.signals(&self.plane)
    }

    /// The signals in a line.
    pub(crate) fn strip(&self) -> String {
        Strip { signals: &self.signals(), used: self.used, limit: CONTEXT_LIMIT }.to_string()
    }
}

/// The ledgers of the session: its turns as the control plane reads them, and its conversation.
pub(crate) struct Ledgers {
    pub(crate) journal: Journal,
    pub(crate) transcript: Transcript,
}

/// The conversation so far.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    /// Whether it stays here and the model sees only the turn.
    pub(crate) isolated: bool,
    /// Whether each turn so far was destructive or a mass edit.
    pub(crate) heavy: Vec<bool>,
    /// The names of the tools that the model may use after a yes, once they were looked up.
    pub(crate) tools: Option<String>,
    /// The last turn, for `:explain`.
    pub(crate) last: Option<Explained>,
    /// What was said and answered, without secrets: what may be remembered at the end of the session.
    pub(crate) rounds: Vec<(String, String)>,
}

/// An open session.
pub(crate) struct State<'a> {
    pub(crate) setup: Setup<'a>,
    pub(crate) context: &'a mut Context,
    pub(crate) console: Console,
    pub(crate) agent: Box<dyn Agent>,
    pub(crate) ledgers: Ledgers,
    pub(crate) standing: Standing,
    pub(crate) hub: Hub,
    pub(crate) conversation: Conversation,
}

impl State<'_> {
    /// Shows text now.
    pub(crate) fn show(&mut self, text: &str) -> Result<()> {
        show(&mut self.context.out, text)
    }

    /// Lets another agent answer from now on. The one that is there stays where the other cannot be had.
    pub(crate) fn switch_agent(&mut self, name: &str) -> Result<()> {
        self.agent = agent::named(name, &self.standing.plane, self.setup.request.model, self.context)?;
        self.ledgers.transcript.switch_agent(name)
    }

    /// Takes the hub's answer if it has come, records it, and reports it to a person at a terminal.
    pub(crate) fn look_at_hub(&mut self) -> Result<()> {
        if !self.hub.take(Duration::ZERO) {
            return Ok(());
        }
        record_hub(&mut self.hub, &mut self.ledgers.transcript)?;
        if self.console.is_terminal() { report_hub(&self.hub, &mut self.context.out) } else { Ok(()) }
    }
}

/// Records what the hub answered, once.
pub(crate) fn record_hub(hub: &mut Hub, transcript: &mut Transcript) -> Result<()> {
    match hub.unrecorded() {
        Some(loaded) => transcript.note("session_hub", &loaded),
        None => Ok(()),
    }
}

fn report_hub(hub: &Hub, out: &mut Output) -> Result<()> {
    let loaded = hub.loaded();
    let lists = loaded.lists().map(|(name, entries)| (name, entries.len()));
    let counts: Vec<String> =
        lists.into_iter().filter(|(_, many)| *many > 0).map(|(name, many)| count(many, name)).collect();
    let line = match (counts.is_empty(), loaded.errors.first()) {
        (false, _) => format!("hub: {} (:hub)\n", counts.join(", ")),
        (true, Some(_)) => "hub: not reached (:hub shows why)\n".to_owned(),
        (true, None) => return Ok(()),
    };
    show(out, &style().faint(&line))
}
