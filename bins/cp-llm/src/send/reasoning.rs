//! The display of the model's reasoning: on standard error, in deltas, or as an indicator.

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Context, Result};

use crate::wire_api::thoughts;

/// The part of the reasoning that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReasoningMode {
    /// All reasoning text that the provider sends.
    Full,
    /// On a terminal, an indicator.
    Indicator,
}

/// The unfinished line on standard error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    None,
    /// Reasoning text, and true if its last line is complete.
    Thoughts {
        is_ended: bool,
    },
    /// The indicator, which is erased before the next output.
    Announcement,
}

/// Displays reasoning.
pub(super) struct ReasoningDisplay {
    reasoning: ReasoningMode,
    line: Line,
}

impl ReasoningDisplay {
    pub(super) fn new(reasoning: ReasoningMode) -> Self {
        Self { reasoning, line: Line::None }
    }

    /// Shows new reasoning text.
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
            (ReasoningMode::Indicator, _) => {}
        }
        Ok(())
    }

    /// Shows the reasoning of an answer that was not streamed.
    pub(super) fn whole(&mut self, message: &Message, context: &mut Context) {
        if self.reasoning == ReasoningMode::Full && context.out.format() != Format::Json {
            for thought in thoughts(&message.blocks).filter(|thought| !thought.is_empty()) {
                context.out.aside(&thought);
                self.line = Line::Thoughts { is_ended: thought.ends_with('\n') };
                self.end(context);
            }
        }
    }

    /// Completes or erases the line before other output.
    pub(super) fn end(&mut self, context: &Context) {
        match std::mem::replace(&mut self.line, Line::None) {
            Line::Thoughts { is_ended: false } => context.out.aside("\n"),
            Line::Announcement => context.out.erase_aside(),
            Line::Thoughts { is_ended: true } | Line::None => {}
        }
    }
}
