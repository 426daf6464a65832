//! What a model thinks, beside its words: on standard error, as members of the deltas, or only that it does.

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Context, Result};

use crate::wire_api::thoughts;

/// What is shown of what a model thinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningMode {
    /// All that the provider gives.
    Full,
    /// On a terminal, that it thinks.
    Indicator,
    Hidden,
}

/// The line on standard error, if one has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    None,
    /// What the model thinks, and whether its last line has ended.
    Thoughts {
        is_ended: bool,
    },
    /// What is taken back when there is something to read.
    Announcement,
}

/// Where what a model thinks goes.
pub(super) struct ReasoningDisplay {
    reasoning: ReasoningMode,
    line: Line,
}

impl ReasoningDisplay {
    pub(super) fn new(reasoning: ReasoningMode) -> Self {
        Self { reasoning, line: Line::None }
    }

    /// Takes what a model thinks, as it comes.
    pub(super) fn thinking(&mut self, text: &str, context: &mut Context) -> Result<()> {
        let format = context.out.format();
        match (self.reasoning, format) {
            (ReasoningMode::Full, Format::Json) => {
                context.out.streaming()?;
                context.out.record(Kind::Delta, &Delta::of_thinking(text))?;
                return context.out.flush();
            }
            (ReasoningMode::Full, Format::Text | Format::Raw) => {
                context.out.aside(text);
                self.line = Line::Thoughts { is_ended: text.ends_with('\n') };
            }
            (ReasoningMode::Indicator, Format::Text) if self.line == Line::None && context.out.can_erase() => {
                context.out.aside("thinking…");
                self.line = Line::Announcement;
            }
            (ReasoningMode::Indicator | ReasoningMode::Hidden, _) => {}
        }
        Ok(())
    }

    /// Shows what a model thought before an answer that is printed whole.
    pub(super) fn whole(&mut self, message: &Message, context: &mut Context) {
        if self.reasoning == ReasoningMode::Full && context.out.format() != Format::Json {
            for thought in thoughts(&message.blocks).filter(|thought| !thought.is_empty()) {
                context.out.aside(&thought);
                self.line = Line::Thoughts { is_ended: thought.ends_with('\n') };
                self.end(context);
            }
        }
    }

    /// Ends the line, for whatever comes next.
    pub(super) fn end(&mut self, context: &Context) {
        match std::mem::replace(&mut self.line, Line::None) {
            Line::Thoughts { is_ended: false } => context.out.aside("\n"),
            Line::Announcement => context.out.erase_aside(),
            Line::Thoughts { is_ended: true } | Line::None => {}
        }
    }
}
