//! The context of a turn: where the person is, what they did before, what the hub says, what is remembered. Nothing else goes along
//! with what they say, and `:explain` shows all of it.

use cp_common::Context;
use cp_redact::Redactor;
use serde::Serialize;

use crate::agent::Piece;
use crate::interactive::history::History;
use crate::interactive::hub::Loaded;
use crate::interactive::recall::{self, Remembered};
use crate::interactive::settings::Memory;

/// What goes along with a turn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Envelope {
    /// The parts.
    pub(crate) pieces: Vec<Piece>,
    /// How many secrets were taken out.
    pub(crate) redactions: u32,
    /// What was remembered.
    pub(crate) recalled: Vec<Remembered>,
    /// What could not be had.
    pub(crate) errors: Vec<String>,
}

/// A part, as it is told of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Told {
    /// Where it comes from.
    pub(crate) name: String,
    /// How long it is.
    pub(crate) bytes: usize,
}

impl Envelope {
    /// The parts with their sizes.
    pub(crate) fn told(&self) -> Vec<Told> {
        self.pieces.iter().map(|piece| Told { name: piece.name.clone(), bytes: piece.text.len() }).collect()
    }

    fn add(&mut self, name: &str, text: &str, redactor: &Redactor) {
        let (text, redactions) = redactor.redact_text(text);
        self.redactions += redactions;
        self.pieces.push(Piece { name: name.to_owned(), text });
    }
}

/// What the session knows that can go along.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Known<'a> {
    /// The history of the shell.
    pub(crate) history: &'a History,
    /// What the hub said.
    pub(crate) hub: &'a Loaded,
    /// What is to be recalled.
    pub(crate) memory: &'a Memory,
}

/// Gathers what goes along with these words.
pub(crate) fn gather(said: &str, known: Known<'_>, redactor: &Redactor, context: &Context) -> Envelope {
    let mut envelope = Envelope::default();
    if let Ok(directory) = std::env::current_dir() {
        envelope.add("place", &format!("working directory: {}", directory.display()), redactor);
    }
    if !known.history.lines.is_empty() {
        let lines: Vec<&str> = known.history.lines.iter().map(|line| line.command.as_str()).collect();
        envelope.add("shell_history", &lines.join("\n"), redactor);
        envelope.redactions += known.history.redactions;
    }
    if !known.hub.is_empty() {
        envelope.add("hub", &known.hub.text(), redactor);
    }
    remembered(said, known.memory, &mut envelope, context);
    let recalled: Vec<String> = envelope.recalled.iter().map(|it| format!("{}: {}", it.kind, it.text)).collect();
    if !recalled.is_empty() {
        envelope.add("memory", &recalled.join("\n"), redactor);
    }
    envelope
}

fn remembered(said: &str, memory: &Memory, envelope: &mut Envelope, context: &Context) {
    for kind in &memory.kinds {
        let room = memory.limit.saturating_sub(envelope.recalled.len());
        if room == 0 {
            return;
        }
        match recall::recall(kind, said, room, context) {
            Ok(found) => envelope.recalled.extend(found),
            Err(e) => envelope.errors.push(format!("memory/{kind}.jsonl: {}", e.message())),
        }
    }
}
