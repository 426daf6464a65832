//! What a session remarks on a turn before it is sent: its risk, the hints that its words get, and how `:explain` shows both later.
//! Values in, values out.

#[cfg(test)]
mod corpus;
pub(crate) mod hints;
mod intent;
mod lexicon;
pub(crate) mod risk;

use std::fmt::Write as _;

use crate::interactive::assessment::hints::Hint;
use crate::interactive::assessment::risk::Risk;
use crate::interactive::console::render::{Style, cut, harmless};

#[derive(Clone, Debug)]
pub(crate) struct Explained {
    /// Its number on the screen and on record.
    pub(crate) turn: u64,
    /// What the person said, without secrets.
    pub(crate) said: String,
    pub(crate) risk: Risk,
    pub(crate) hints: Vec<Hint>,
    pub(crate) pieces: Vec<Size>,
    pub(crate) recalled: Vec<String>,
    /// How many secrets were left out of what is kept and sent along.
    pub(crate) redactions: u32,
    pub(crate) isolated: bool,
    pub(crate) agent: String,
    /// Whether the person approved it.
    pub(crate) confirmed: bool,
    pub(crate) fate: Fate,
}

/// What became of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    NotSent,
    Sent,
    Answered,
    Interrupted,
    Failed,
}

/// The size of a piece that was attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    /// Where it came from.
    pub(crate) name: String,
    pub(crate) bytes: usize,
}

impl Explained {
    pub(crate) fn text(&self, style: Style) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(
                text,
                "{name:<11} {}",
                cut(&harmless(value).replace('\n', " "), style.width.saturating_sub(12).max(20))
            );
        };
        line("turn", &self.turn.to_string());
        line("said", &self.said);
        line("agent", &self.agent);
        line("risk", &format!("{}: {}", self.risk.level.name(), self.risk.reason));
        let asked = match (self.fate, self.confirmed) {
            (Fate::NotSent, _) => "no",
            (_, true) => "yes, by the person",
            (_, false) => "no approval was required",
        };
        line("confirmed", asked);
        let fate = match self.fate {
            Fate::NotSent => "nothing was sent",
            Fate::Sent => "sent, and not answered",
            Fate::Answered => "sent, and answered",
            Fate::Interrupted => "sent, and stopped by the person: what had come stays in the conversation",
            Fate::Failed => "sent, and failed",
        };
        line("sent", fate);
        let mode = match (self.fate, self.isolated) {
            (Fate::NotSent, true) => "isolated",
            (Fate::NotSent, false) => "persistent",
            (_, true) => "isolated: only these words were sent",
            (_, false) => "persistent: the conversation was sent along",
        };
        line("mode", mode);
        if self.pieces.is_empty() {
            line("context", "nothing attached");
        }
        for piece in &self.pieces {
            line("context", &format!("{}, {} bytes", piece.name, piece.bytes));
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
