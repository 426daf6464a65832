//! The state of an open session, and the outcome of a line.

use std::time::Duration;

use cp_common::output::Output;
use cp_common::{Code, Context, Error, Result, signals};
use cp_redact::Redactor;
use serde_json::{Value, json};

use crate::agent::{self, Agent, ModelOptions};
use crate::interactive::console::Console;
use crate::interactive::console::render::{count, show, style};
use crate::interactive::history::ShellHistory;
use crate::interactive::hub::{Hub, NO_HUB};
use crate::interactive::settings::Settings;
use crate::interactive::transcript::{Exchange, Transcript};
use crate::journal::Journal;
use crate::plane::{Plane, Read};
use crate::signals::{Signals, Tracker};

/// An open session.
pub(crate) struct State<'a> {
    pub(crate) offline: bool,
    pub(crate) settings: Settings,
    pub(crate) redactor: &'static Redactor,
    pub(crate) shell_history: ShellHistory,
    pub(crate) context: &'a mut Context,
    pub(crate) console: Console,
    pub(crate) agent: Box<dyn Agent>,
    /// The turns for the control plane.
    pub(crate) journal: Journal,
    /// The conversation.
    pub(crate) transcript: Transcript,
    pub(crate) plane: Plane,
    pub(crate) tracker: Tracker,
    /// The tokens that the conversation takes.
    pub(crate) used: u64,
    /// The context window of the model that answered last.
    pub(crate) window: u64,
    pub(crate) hub: Hub,
    /// True if only the turn is sent to the model.
    pub(crate) isolated: bool,
    /// True if the person allowed the use of tools in all turns without risk.
    pub(crate) allows_tools: bool,
    /// The turns of this shell, in all its sessions.
    pub(crate) turns: Vec<Exchange>,
    /// The model options of the command line, until a command changes them.
    pub(crate) model: ModelOptions,
    /// The exit status of a script: that of the first line that failed.
    pub(crate) exit: u8,
    /// How the session ends, after the person quit or stopped a script.
    pub(crate) end: Option<Result<()>>,
}

impl State<'_> {
    pub(crate) fn signals(&self) -> Signals {
        self.tracker.signals(&self.plane)
    }

    /// The signals on one line.
    pub(crate) fn strip(&self) -> String {
        self.signals().strip(self.used, self.window)
    }

    /// Writes and flushes text.
    pub(crate) fn show(&mut self, text: &str) -> Result<()> {
        show(&mut self.context.out, text)
    }

    /// Forgets a signal that was for the current line. It ends a script, whose later lines may rely on that line.
    pub(crate) fn forget_interrupt(&mut self) {
        if signals::interrupted() && !self.console.is_terminal() {
            self.end = Some(Err(ended_by_signal()));
        }
        signals::forget_interrupt();
    }

    /// Asks a person to confirm a change. Without a terminal it is refused.
    pub(crate) fn confirm(&mut self, question: &str, refusal: &str, hint: &str) -> Result<()> {
        if self.console.confirm(question) {
            self.tracker.confirmed();
            return Ok(());
        }
        self.tracker.denied();
        let hint = if self.console.is_terminal() { "repeat the command to confirm it with y" } else { hint };
        Err(Error::new(Code::ConfirmationRequired, refusal).hint(hint))
    }

    /// Switches to another agent. The current agent stays if the other one is not available.
    pub(crate) fn switch_agent(&mut self, name: &str) -> Result<()> {
        self.agent = agent::named(name, &self.plane, &self.model, self.context)?;
        self.transcript.switch_agent(name)
    }

    /// Receives and records the answer of the hub, if it has arrived, and reports it at a terminal.
    pub(crate) fn poll_hub(&mut self) -> Result<()> {
        let arrived = self.hub.receive(Duration::ZERO, &mut self.transcript)?;
        if arrived && self.console.is_terminal() { report_hub(&self.hub, &mut self.context.out) } else { Ok(()) }
    }
}

fn report_hub(hub: &Hub, out: &mut Output) -> Result<()> {
    let loaded = &hub.loaded;
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

/// The error of a session that a signal ends.
pub(crate) fn ended_by_signal() -> Error {
    Error::new(Code::Interrupted, "interrupted by a signal").hint("`cp-shell -c` continues the session")
}

/// The request for an interactive session.
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
#[derive(clap::Args, Debug)]
pub(crate) struct Request {
    /// Open no network connection
    #[arg(long, help_heading = "Network and history")]
    pub(crate) offline: bool,
    /// Do not contact the hub or read the brief
    #[arg(long, help_heading = "Network and history")]
    pub(crate) no_hub: bool,
    /// Send the history of the person's shell as context
    #[arg(long, help_heading = "Network and history")]
    pub(crate) with_history: bool,
    #[command(flatten)]
    pub(crate) model: ModelOptions,
    /// Continue the last interactive session
    #[arg(short = 'c', long = "continue", help_heading = "Session")]
    pub(crate) continues: bool,
    /// The agent that answers: an id in config/agents.json, or default
    #[arg(long, value_name = "ID", help_heading = "Session")]
    pub(crate) agent: Option<String>,
}

impl Request {
    /// Why the hub is not contacted, if it is not.
    pub(crate) fn closed(&self) -> Option<&'static str> {
        let offline = self.offline.then_some("not asked: --offline");
        if self.no_hub { Some(NO_HUB) } else { offline }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The text to show.
    pub(crate) text: String,
    /// The value that is hashed for the ledger.
    pub(crate) result: Value,
    /// The files that were written.
    pub(crate) writes: Vec<Read>,
    /// The programs and services that were called.
    pub(crate) calls: Vec<Value>,
    /// True if the signals of the session are shown below it.
    pub(crate) has_strip: bool,
    /// The exit status; 0 unless the line failed.
    pub(crate) exit: u8,
}

impl Outcome {
    /// An outcome that is only text.
    pub(crate) fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { result: json!({"text": text}), text, ..Self::default() }
    }
}
