//! The display of the model's reasoning: on standard error or in deltas.

use cp_common::output::Format;
use cp_common::wire::record::Kind;
use cp_common::wire::{Delta, Message};
use cp_common::{Context, Result};

use crate::wire_api::thoughts;

/// Displays reasoning.
pub(super) struct ReasoningDisplay {
    /// True to show all reasoning that the provider sends.
    is_full: bool,
    /// True if the last line of the reasoning text is not complete.
    is_inside: bool,
}

impl ReasoningDisplay {
    pub(super) fn new(is_full: bool) -> Self {
        Self { is_full, is_inside: false }
    }

    /// Shows new reasoning text.
    pub(super) fn thinking(&mut self, text: &str, context: &mut Context) -> Result<()> {
        if self.is_full && context.out.format() == Format::Json {
            context.out.streaming()?;
            context.out.record(Kind::Delta, &Delta::of_thinking(text))?;
            return context.out.flush();
        }
        if self.is_full {
            context.out.aside(text);
            self.is_inside = !text.ends_with('\n');
        }
        Ok(())
    }

    /// Shows the reasoning of an answer that was not streamed.
    pub(super) fn whole(&mut self, message: &Message, context: &mut Context) {
        if self.is_full && context.out.format() != Format::Json {
            for thought in thoughts(&message.blocks).filter(|thought| !thought.is_empty()) {
                context.out.aside(&thought);
                self.is_inside = !thought.ends_with('\n');
                self.end(context);
            }
        }
    }

    /// Completes the line before other output.
    pub(super) fn end(&mut self, context: &Context) {
        if std::mem::take(&mut self.is_inside) {
            context.out.aside("\n");
        }
    }
}
