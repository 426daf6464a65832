//! What an open session holds: what was settled at its start, and what its lines change. A command takes the parts that it needs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::output::Output;
use cp_common::wire::{Approval, Message, Scope, Usage};
use cp_common::{Context, Result};
use cp_redact::Redactor;
use serde_json::{Value, json};

use crate::agent::{self, Agent, ModelOptions};
use crate::interactive::assessment::Explained;
use crate::interactive::console::Console;
use crate::interactive::console::render::{count, show, style};
use crate::interactive::history::ShellHistory;
use crate::interactive::hub::{Hub, Reach};
use crate::interactive::settings::Settings;
use crate::interactive::transcript::{Transcript, close_question};
use crate::journal::{self, Journal};
use crate::plane::{Plane, Read};
use crate::signals::{Signals, Strip, Tracker};

/// What the command line asks of a session with a person.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    /// The control plane tree; without it the home.
    pub(crate) root: Option<&'a Path>,
    pub(crate) agent: Option<&'a str>,
    pub(crate) options: Options,
    /// Whether to go on with the last session.
    pub(crate) goes_on: bool,
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
    /// How many the model that answered last can hold.
    pub(crate) window: u64,
}

impl Standing {
    pub(crate) fn signals(&self) -> Signals {
        self.tracker.signals(&self.plane)
    }

    /// The signals in a line.
    pub(crate) fn strip(&self) -> String {
        Strip { signals: &self.signals(), used: self.used, limit: self.window }.to_string()
    }
}

/// The ledgers of the session: its turns as the control plane reads them, and its conversation.
pub(crate) struct Ledgers {
    pub(crate) journal: Journal,
    pub(crate) transcript: Transcript,
}

/// What a person allowed for the session: whatever the same rule asks about the same program or tool.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) rule: String,
    program: Option<String>,
    pub(crate) tool: String,
}

impl Allowed {
    /// What a yes for the session would allow, where an answer may go that far: it may not for deletions and publications.
    pub(crate) fn of(approval: &Approval) -> Option<Self> {
        let Approval { shown, binds, scopes, .. } = approval;
        scopes.contains(&Scope::Run).then(|| Self {
            rule: shown.rule.clone(),
            program: binds.program.clone(),
            tool: shown.tool.clone().or_else(|| shown.argv.first().cloned()).unwrap_or_default(),
        })
    }
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
    /// What was said last, whatever came of it, and the last answer, both as they were.
    pub(crate) said: String,
    pub(crate) answer: String,
    /// The files that go with the next turn.
    pub(crate) attached: Vec<PathBuf>,
    /// Those that went with the last one.
    pub(crate) went_along: Vec<PathBuf>,
    /// What the model may do until the session is over.
    pub(crate) allowed: Vec<Allowed>,
    /// What the answers took, and how many there were.
    pub(crate) usage: Usage,
    pub(crate) answers: usize,
}

impl Conversation {
    /// Counts what answers took.
    pub(crate) fn count(&mut self, messages: &[Message]) {
        for Message { usage, .. } in messages {
            let sum = &mut self.usage;
            sum.input_tokens += usage.input_tokens;
            sum.output_tokens += usage.output_tokens;
            sum.cache_read_tokens += usage.cache_read_tokens;
            sum.cache_write_tokens += usage.cache_write_tokens;
            sum.cost_usd = match (self.answers, sum.cost_usd, usage.cost_usd) {
                (0, _, cost) => cost,
                (_, Some(sum), Some(cost)) => Some(sum + cost),
                // What is not known makes the sum unknown.
                _ => None,
            };
            self.answers += 1;
        }
    }
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
    /// Which model answers, and what it may use: what the command line says, until a command changes it.
    pub(crate) model: ModelOptions,
}

impl State<'_> {
    /// Shows text now.
    pub(crate) fn show(&mut self, text: &str) -> Result<()> {
        show(&mut self.context.out, text)
    }

    /// Lets another agent answer from now on. The one that is there stays where the other cannot be had.
    pub(crate) fn switch_agent(&mut self, name: &str) -> Result<()> {
        self.agent = agent::named(name, &self.standing.plane, &self.model, self.context)?;
        self.ledgers.transcript.switch_agent(name)
    }

    /// The id of the agent that answers.
    pub(crate) fn agent_id(&self) -> &str {
        self.ledgers.transcript.agent()
    }

    /// Goes on in another session, one that was made for this or not. The one that is open is left as it is when the shell is quit.
    pub(crate) fn go_on_in(&mut self, session: &str, is_ours: bool) -> Result<()> {
        let here = self.context.options.session.replace(session.to_owned());
        match self.joined_there() {
            Ok((mut journal, transcript, agent, isolated)) => {
                if is_ours {
                    journal.own();
                }
                let left = std::mem::replace(&mut self.ledgers, Ledgers { journal, transcript });
                let tier = self.standing.plane.tier().unwrap_or_else(|| self.context.tier());
                self.standing.tracker = Tracker::new(tier, None, self.ledgers.journal.turns());
                self.standing.used = 0;
                self.agent = agent;
                let before = std::mem::take(&mut self.conversation);
                let Conversation { tools, usage, answers, said, answer, attached, .. } = before;
                let kept = Conversation { tools, said, answer, attached, usage, answers, ..Conversation::default() };
                self.conversation = Conversation { isolated, ..kept };
                left.journal.end(self.context)
            }
            Err(e) => {
                self.context.options.session = here;
                Err(e)
            }
        }
    }

    fn joined_there(&mut self) -> Result<(Journal, Transcript, Box<dyn Agent>, bool)> {
        let joined = journal::resumed(self.context)?;
        let id = joined.agent.clone().filter(|agent| !agent.is_empty()).unwrap_or_else(|| "default".to_owned());
        let agent = agent::named(&id, &self.standing.plane, &self.model, self.context)?;
        close_question(&id, self.context)?;
        let journal = Journal::open(Some(&joined), &id, self.context)?;
        let transcript = Transcript::open(journal.directory(), journal.session(), &id)?;
        Ok((journal, transcript, agent, joined.is_isolated()))
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

/// What may be reached and read.
#[derive(clap::Args, Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Open no socket
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) offline: bool,
    /// Leave the hub alone
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) no_hub: bool,
    /// Let the history of the person's shell be context
    #[arg(long, help_heading = "What it may reach")]
    pub(crate) with_history: bool,
}

impl Options {
    /// Whether the hub may be used.
    pub(crate) fn reach(self) -> Reach {
        match (self.offline, self.no_hub) {
            (_, true) => Reach::Left,
            (true, false) => Reach::Offline,
            (false, false) => Reach::Open,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// What to show.
    pub(crate) text: String,
    /// What its hash on the ledger is of.
    pub(crate) result: Value,
    /// The files that were written.
    pub(crate) writes: Vec<Read>,
    /// The programs and services that were called.
    pub(crate) calls: Vec<Value>,
    /// Whether the signals of the session are shown below it.
    pub(crate) has_strip: bool,
    /// The exit status that fits it: 0 unless it failed, though what there is to show is shown already.
    pub(crate) exit: u8,
}

impl Outcome {
    /// An outcome that is only text.
    pub(crate) fn of_text(text: impl Into<String>) -> Self {
        let text = text.into();
        Self { result: json!({"text": text}), text, ..Self::default() }
    }
}
