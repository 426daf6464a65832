//! The context of a turn: where the person is, what they did before, what the hub answered, what is remembered. Nothing else goes along
//! with what they say, and `:explain` shows all of it.

use cp_common::Context;
use cp_redact::Redactor;

use crate::agent::Piece;
use crate::interactive::assessment::explained::Size;
use crate::interactive::hub::Loaded;
use crate::interactive::memory::{self, Remembered};
use crate::interactive::state::Setup;

/// What goes along with a turn.
#[derive(Clone, Debug, Default)]
pub(super) struct Envelope {
    pub(super) pieces: Vec<Piece>,
    /// How many secrets were taken out.
    pub(super) redactions: u32,
    pub(super) recalled: Vec<Remembered>,
    /// What could not be had.
    pub(super) errors: Vec<String>,
}

impl Envelope {
    /// Gathers what goes along with what is said.
    pub(super) fn gather(said: &str, setup: &Setup<'_>, hub: &Loaded, context: &Context) -> Self {
        let Setup { redactor, shell_history, .. } = setup;
        let mut envelope = Self::default();
        if let Ok(directory) = std::env::current_dir() {
            envelope.add("place", &format!("working directory: {}", directory.display()), redactor);
        }
        if !shell_history.lines.is_empty() {
            let lines: Vec<&str> = shell_history.lines.iter().map(|line| line.command.as_str()).collect();
            envelope.add("shell_history", &lines.join("\n"), redactor);
            envelope.redactions += shell_history.redactions;
        }
        if let Some(brief) = hub.brief.as_ref().filter(|brief| brief.goes_along) {
            envelope.add("brief", &brief.text, redactor);
            envelope.redactions += brief.redactions;
        }
        let answers = hub.answers();
        if !answers.is_empty() {
            envelope.add("hub", &answers, redactor);
        }
        envelope.recall(said, setup, context);
        let recalled: Vec<String> = envelope.recalled.iter().map(|it| format!("{}: {}", it.kind, it.text)).collect();
        if !recalled.is_empty() {
            envelope.add("memory", &recalled.join("\n"), redactor);
        }
        envelope
    }

    pub(super) fn sizes(&self) -> Vec<Size> {
        self.pieces.iter().map(|piece| Size { name: piece.name.clone(), bytes: piece.text.len() }).collect()
    }

    fn add(&mut self, name: &str, text: &str, redactor: &Redactor) {
        let (text, redactions) = redactor.redact_text(text);
        self.redactions += redactions;
        self.pieces.push(Piece { name: name.to_owned(), text });
    }

    fn recall(&mut self, said: &str, setup: &Setup<'_>, context: &Context) {
        for kind in &setup.settings.memory.kinds {
            let room = setup.settings.memory.limit.saturating_sub(self.recalled.len());
            if room == 0 {
                return;
            }
            match memory::recall(kind, said, room, context) {
                Ok(found) => self.recalled.extend(found),
                Err(e) => self.errors.push(format!("memory/{kind}.jsonl: {}", e.message())),
            }
        }
    }
}
