//! What `:explain` shows: the last turn's risk and why, what went along with it and where that came from, and what was remarked on.

use std::fmt::Write as _;

use crate::interactive::gather::{Envelope, Told};
use crate::interactive::hints::Hint;
use crate::interactive::history::History;
use crate::interactive::hub::Loaded;
use crate::interactive::render::{Style, count, cut, harmless};
use crate::interactive::risk::Risk;
use crate::interactive::shell::Shell;
use crate::interactive::style;

/// A turn, as it is explained.
#[derive(Clone, Debug)]
pub(crate) struct Explained {
    said: String,
    risk: Risk,
    hints: Vec<Hint>,
    pieces: Vec<Told>,
    recalled: Vec<String>,
    redactions: u32,
    isolated: bool,
    agent: String,
    /// Whether the person said yes to it.
    pub(crate) confirmed: bool,
    /// Whether it was not sent, or stopped.
    pub(crate) cancelled: bool,
}

impl Explained {
    /// A turn that is about to be sent.
    pub(crate) fn new(said: &str, risk: &Risk, hints: &[Hint], envelope: &Envelope, shell: &Shell<'_>) -> Self {
        Self {
            said: shell.redactor.redact_text(said).0,
            risk: risk.clone(),
            hints: hints.to_vec(),
            pieces: envelope.told(),
            recalled: envelope.recalled.iter().map(|it| format!("{} ({}): {}", it.kind, it.at, it.text)).collect(),
            redactions: envelope.redactions,
            isolated: shell.isolated,
            agent: shell.agent.name().to_owned(),
            confirmed: false,
            cancelled: false,
        }
    }

    /// It was answered; so many secrets were left out of what is kept and sent along.
    pub(crate) fn answered(&mut self, redactions: u32) {
        self.redactions = redactions;
    }

    fn text(&self, style: Style) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(
                text,
                "{name:<11} {}",
                cut(&harmless(value).replace('\n', " "), style.width.saturating_sub(12).max(20))
            );
        };
        line("said", &self.said);
        line("agent", &self.agent);
        line("risk", &format!("{}: {}", self.risk.level.name(), self.risk.reason));
        let asked = match (self.cancelled, self.confirmed) {
            (true, _) => "not sent, or stopped",
            (false, true) => "yes, by the person",
            (false, false) => "no yes was needed",
        };
        line("confirmed", asked);
        line(
            "mode",
            if self.isolated { "isolated: only these words went" } else { "persistent: the conversation went along" },
        );
        if self.pieces.is_empty() {
            line("context", "nothing went along");
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

/// The last turn, the history of the shell and the hub.
pub(crate) fn explained(shell: &Shell<'_>) -> String {
    let style = style();
    let mut text = match &shell.last {
        Some(last) => last.text(style),
        None => "no turn was taken yet\n".to_owned(),
    };
    text.push_str(&told_history(&shell.history, style));
    text.push_str(&told_hub(shell.hub.loaded(), shell.hub.is_pending(), style));
    text
}

fn told_history(history: &History, style: Style) -> String {
    if !history.enabled {
        return "history     off: --with-history, or enabled in [shell_history] of config/shell.toml\n".to_owned();
    }
    let mut text = String::new();
    let source = history.source.unwrap_or("nowhere");
    let lines = count(history.lines.len(), "line");
    let _ = writeln!(text, "history     on: {lines} from {source}, {} redacted", history.redactions);
    if let Some(error) = &history.error {
        let _ = writeln!(text, "            {}", harmless(error));
    }
    let path = history.path.as_deref().unwrap_or_default();
    for line in &history.lines {
        let shown = format!("            {}:{} [{source}] {}", path, line.line, line.command.replace('\n', " "));
        let _ = writeln!(text, "{}", cut(&harmless(&shown), style.width));
    }
    text
}

/// What the hub said, in a few lines.
pub(crate) fn told_hub(hub: &Loaded, pending: bool, style: Style) -> String {
    let status = if pending { "asked, no answer yet" } else { hub.status };
    let mut text = format!("hub         {status}\n");
    if let Some(brief) = &hub.brief {
        let _ = writeln!(
            text,
            "  brief     {} ({} bytes, {} redacted)",
            harmless(&brief.path),
            brief.text.len(),
            brief.redactions
        );
    }
    for (name, things) in hub.parts() {
        for thing in things {
            let line = format!("  {name:<10} {} {} ({})", thing.id, thing.title, thing.note);
            let _ = writeln!(text, "{}", cut(&harmless(&line).replace('\n', " "), style.width));
        }
    }
    for error in &hub.errors {
        let _ = writeln!(text, "  error      {}", harmless(error));
    }
    text
}
