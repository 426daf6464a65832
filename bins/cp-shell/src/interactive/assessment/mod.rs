//! The assessment of a turn before it is sent: its risk and hints, and the record that `:explain` shows.

pub(crate) mod hints;
pub(crate) mod risk;

use std::fmt::Write as _;

use crate::interactive::assessment::hints::Hint;
use crate::interactive::assessment::risk::Risk;
use crate::interactive::console::render::{Style, cut, escaped};

#[derive(Clone, Debug)]
pub(crate) struct Explained {
    /// The number of the turn.
    pub(crate) turn: u64,
    /// The text of the person, without secrets.
    pub(crate) text: String,
    pub(crate) risk: Risk,
    pub(crate) hints: Vec<Hint>,
    /// The parts of the context, with their sizes in bytes.
    pub(crate) pieces: Vec<(String, usize)>,
    pub(crate) recalled: Vec<String>,
    /// The number of secrets that were removed.
    pub(crate) redactions: u32,
    pub(crate) isolated: bool,
    pub(crate) agent: String,
    /// True if the person confirmed the turn.
    pub(crate) confirmed: bool,
    pub(crate) outcome: TurnOutcome,
}

/// The outcome of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnOutcome {
    NotSent,
    Sent,
    Answered,
    Interrupted,
    Failed,
}

impl Explained {
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(
                text,
                "{name:<11} {}",
                cut(&escaped(value).replace('\n', " "), style.width.saturating_sub(12).max(20))
            );
        };
        line("turn", &self.turn.to_string());
        line("said", &self.text);
        line("agent", &self.agent);
        line("risk", &format!("{}: {}", self.risk.level.name(), self.risk.reason));
        let asked = match (self.outcome, self.confirmed) {
            (TurnOutcome::NotSent, _) => "no",
            (_, true) => "yes, by the person",
            (_, false) => "no approval was required",
        };
        line("confirmed", asked);
        let outcome = match self.outcome {
            TurnOutcome::NotSent => "nothing was sent",
            TurnOutcome::Sent => "sent, and not answered",
            TurnOutcome::Answered => "sent, and answered",
            TurnOutcome::Interrupted => "sent, and stopped by the person: the partial answer stays in the conversation",
            TurnOutcome::Failed => "sent, and failed",
        };
        line("sent", outcome);
        let mode = match (self.outcome, self.isolated) {
            (TurnOutcome::NotSent, true) => "isolated",
            (TurnOutcome::NotSent, false) => "persistent",
            (_, true) => "isolated: only this text was sent",
            (_, false) => "persistent: the conversation was sent too",
        };
        line("mode", mode);
        if self.pieces.is_empty() {
            line("context", "nothing attached");
        }
        for (name, bytes) in &self.pieces {
            line("context", &format!("{name}, {bytes} bytes"));
        }
        for recalled in &self.recalled {
            line("memory", recalled);
        }
        line("redactions", &self.redactions.to_string());
        if self.hints.is_empty() {
            line("hints", "none");
        }
        for hint in &self.hints {
            line("hints", &format!("{}: {}", hint.rule, hint.message));
        }
        text
    }
}
