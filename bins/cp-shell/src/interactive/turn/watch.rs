//! Shows a turn while it is answered: words as they come, tools on a line of their own, and the questions that only a person answers.

use cp_common::Result;
use cp_common::output::Output;
use cp_common::program::approval::{Answer, description, prompt};
use cp_common::wire::Approval;
use serde_json::{Value, json};

use crate::agent::{Event, Observer};
use crate::interactive::console::Console;
use crate::interactive::console::render::harmless;
use crate::interactive::console::render::{Style, cut, show};
use crate::signals::Tracker;

pub(super) struct Watch<'a> {
    console: &'a Console,
    out: &'a mut Output,
    tracker: &'a mut Tracker,
    style: Style,
    /// What was shown of the answer.
    pub(super) partial: String,
    /// The tools that were called.
    pub(super) called: Vec<Value>,
}

impl<'a> Watch<'a> {
    pub(super) fn new(console: &'a Console, out: &'a mut Output, tracker: &'a mut Tracker, style: Style) -> Self {
        Self { console, out, tracker, style, partial: String::new(), called: Vec::new() }
    }

    /// A line about a tool, after the words that came before it.
    fn line(&mut self, line: &str) -> String {
        let start = if self.partial.is_empty() || self.partial.ends_with('\n') { "" } else { "\n" };
        self.partial.push_str(start);
        let line = cut(&harmless(line).replace('\n', " "), self.style.width);
        format!("{start}{}\n", self.style.faint(&line))
    }
}

impl Observer for Watch<'_> {
    fn event(&mut self, event: Event<'_>) -> Result<()> {
        let shown = match event {
            Event::Delta(words) => {
                self.partial.push_str(words);
                harmless(words)
            }
            Event::ToolCall(call) => {
                self.called.push(json!({"tool": call.name}));
                self.line(&format!("→ {} {}", call.name, call.input.get()))
            }
            Event::ToolResult(result) => {
                let denied = result.is_error && result.exit_code.is_none() && is_denial(&result.content);
                self.tracker.called(denied);
                if denied {
                    self.tracker.denied();
                }
                let first = result.content.lines().next().unwrap_or_default();
                let mark = if result.is_error { "✗" } else { "←" };
                self.line(&format!("{mark} {}: {first}", result.name))
            }
        };
        show(self.out, &shown)
    }

    fn answers(&mut self, approval: &Approval) -> Option<Answer> {
        if !self.console.is_terminal() || show(self.out, &format!("\n{}\n", description(approval))).is_err() {
            return None;
        }
        loop {
            let typed = self.console.answer(&prompt(approval))?;
            if let Some(answer) = Answer::of(&typed, approval) {
                return Some(answer);
            }
        }
    }
}

/// Whether a tool's answer says that it was kept from running: by the list of tools, by a person, or by policy.
fn is_denial(answer: &str) -> bool {
    let first = answer.lines().next().unwrap_or_default();
    first.starts_with("Tool not permitted") || first.starts_with("Denied:") || first.contains("is not allowed")
}
