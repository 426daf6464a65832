//! The display of the model's reasoning: on standard error, in deltas, or as an indicator.

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Context, Result};

use crate::wire_api::thoughts;

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
    /// True to show all reasoning that the provider sends, false for an indicator on a terminal.
    is_full: bool,
    line: Line,
}

impl ReasoningDisplay {
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, line: Line::None }
    }

    /// Shows new reasoning text.
    pub(super) fn thinking(&mut self, text: &str, context: &mut Context) -> Result<()> {
        let format = context.out.format();
        match (self.is_full, format) {
            (true, Format::Json) => {
                context.out.streaming()?;
                context.out.record(Kind::Delta, &Delta::of_thinking(text))?;
                return context.out.flush();
            }
            (true, Format::Text | Format::Raw) => {
                context.out.aside(text);
                self.line = Line::Thoughts { is_ended: text.ends_with('\n') };
            }
            (false, Format::Text) if self.line == Line::None && context.out.can_erase() => {
                context.out.aside("thinking…");
                self.line = Line::Announcement;
            }
            (false, _) => {}
        }
        Ok(())
    }

    /// Shows the reasoning of an answer that was not streamed.
    pub(super) fn whole(&mut self, message: &Message, context: &mut Context) {
        if self.is_full && context.out.format() != Format::Json {
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
