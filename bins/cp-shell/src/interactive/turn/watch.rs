//! Shows a turn while it is answered: text as it arrives, a line for each tool call, and questions to the person.

use std::collections::HashSet;
use std::ffi::OsString;

use cp_common::Result;
use cp_common::coprocess::ask_with;
use cp_common::output::Output;
use cp_common::program::approval::{Verdict, description, prompt};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Approval, Delta, Scope, ToolCall, ToolResult};
use serde_json::{Value, json};

use crate::agent::Observer;
use crate::interactive::console::Console;
use crate::interactive::console::render::{Style, count, cut, escaped, show, style};
use crate::signals::Tracker;

pub(super) struct Watch<'a> {
    console: &'a Console,
    out: &'a mut Output,
    tracker: &'a mut Tracker,
    style: Style,
    /// The flags for cp-toolloop.
    flags: Vec<OsString>,
    /// The ids of the open calls that were shown.
    open: HashSet<String>,
    seen: Seen,
}

/// The part of an answer that was shown, and its tool run.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) partial: String,
    /// The tools that were called.
    pub(super) called: Vec<Value>,
    pub(super) run: Option<String>,
    /// The number of operations that changed files.
    pub(super) changes: usize,
}

impl<'a> Watch<'a> {
    pub(super) fn new(
        console: &'a Console,
        out: &'a mut Output,
        tracker: &'a mut Tracker,
        flags: Vec<OsString>,
    ) -> Self {
        let style = style();
        Self { console, out, tracker, style, flags, open: HashSet::new(), seen: Seen::default() }
    }

    /// Ends the output.
    pub(super) fn end(mut self) -> Result<Seen> {
        self.settle()?;
        Ok(self.seen)
    }

    /// Ends the shown answer with a line feed.
    fn settle(&mut self) -> Result<()> {
        let end = self.ended();
        show(self.out, &end)
    }

    fn ended(&mut self) -> String {
        let mut end = String::new();
        let partial = &mut self.seen.partial;
        if !partial.is_empty() && !partial.ends_with('\n') {
            partial.push('\n');
            end.push('\n');
        }
        end
    }

    /// The differences of the files that a call changed.
    fn changed(&mut self, result: &ToolResult) -> String {
        // A command has an exit status, and its changes have no difference.
        let Some(run) = self.seen.run.as_deref().filter(|_| result.exit_code.is_none()) else { return String::new() };
        let changes = changes(run, self.flags.clone()).unwrap_or_default();
        let differences: Vec<&str> = changes.iter().filter_map(difference).collect();
        let new = differences.get(self.seen.changes..).unwrap_or_default();
        self.seen.changes = differences.len();
        new.iter().map(|difference| painted(difference, SHOWN, self.style)).collect()
    }

    /// A line about a tool, after the shown text.
    fn line(&mut self, line: &str) -> String {
        let start = self.ended();
        let line = cut(&escaped(line).replace('\n', " "), self.style.width);
        format!("{start}{}\n", self.style.faint(&line))
    }
}

impl Observer for Watch<'_> {
    fn record(&mut self, record: &Record<'_>) -> Result<()> {
        let shown = match record.kind {
            Some(Kind::Delta) => {
                let Delta { text, .. } = record.read()?;
                self.seen.partial.push_str(&text);
                escaped(&text)
            }
            Some(Kind::ToolCall) => {
                let ToolCall { id, name, input, .. } = record.read()?;
                if !self.open.insert(id) {
                    // A resumed run reports its open calls again.
                    return Ok(());
                }
                self.seen.called.push(json!({"tool": name}));
                self.line(&format!("→ {name} {}", input.get()))
            }
            Some(Kind::ToolResult) => {
                let result: ToolResult = record.read()?;
                self.tracker.called(is_denied(&result));
                self.open.remove(&result.id);
                let changed = self.changed(&result);
                if changed.is_empty() {
                    let first = result.content.lines().next().unwrap_or_default();
                    let mark = if result.is_error { "✗" } else { "←" };
                    self.line(&format!("{mark} {}: {first}", result.name))
                } else {
                    self.ended() + &changed
                }
            }
            _ => return Ok(()),
        };
        show(self.out, &shown)
    }

    fn begins(&mut self, run: &str) {
        self.seen.run.get_or_insert_with(|| run.to_owned());
    }

    fn release_terminal(&mut self) -> Result<()> {
        self.settle()
    }

    fn answers(&mut self, approval: &Approval) -> Option<Verdict> {
        let _ = self.settle();
        if !self.console.is_terminal() || show(self.out, &format!("\n{}\n", description(approval))).is_err() {
            return None;
        }
        let letters = if approval.scopes.contains(&Scope::Run) { "y, n or a" } else { "y or n" };
        self.console.choose(&prompt(approval), letters, |typed| Verdict::of(typed, approval))
    }
}

/// Returns true if a call was refused before its tool ran: by the list of tools, by a person or by policy.
///
/// A refusal has no exit status, and its content begins with the marker that `cp-toolloop` or `cp-exec` writes. The
/// words of a tool are not searched, because a tool may report that an option is not allowed.
fn is_denied(result: &ToolResult) -> bool {
    const MARKERS: [&str; 3] = ["Denied: ", "Capability denied: ", "E_FORBIDDEN: "];
    let is_refusal = |content: &str| {
        content
            .strip_prefix("Tool not permitted: ")
            .is_some_and(|name| name.lines().next() == Some(result.name.as_str()))
            || MARKERS.iter().any(|marker| content.starts_with(marker))
    };
    result.is_error && result.exit_code.is_none() && is_refusal(&result.content)
}

/// The entries of a run about changed files.
pub(crate) fn changes(run: &str, flags: Vec<OsString>) -> Result<Vec<Value>> {
    let shown: Value = ask_with("cp-toolloop", &["show", run], b"", flags)?;
    let steps = shown["steps"].as_array().into_iter().flatten();
    // A ledger that the command line names has the entries of other runs, too.
    let is_its = |step: &&Value| step["event"] == "exec.changes" && step["run"].as_str().is_none_or(|id| id == run);
    Ok(steps.filter(is_its).cloned().collect())
}

/// The difference of the files that an operation changed; those of a command have none.
pub(crate) fn difference(change: &Value) -> Option<&str> {
    change["difference"].as_str()
}

/// The number of lines of a difference that are shown during a turn.
const SHOWN: usize = 40;

/// The first lines of a difference in colour, and the number of the others.
pub(crate) fn painted(difference: &str, most: usize, style: Style) -> String {
    let mut text: String = difference.lines().take(most).map(|line| painted_line(line, style)).collect();
    let more = difference.lines().count().saturating_sub(most);
    if more > 0 {
        text.push_str(&style.faint(&format!("… {}, which :diff shows", count(more, "more line"))));
        text.push('\n');
    }
    text
}

fn painted_line(line: &str, style: Style) -> String {
    let line_text = escaped(line);
    let shown = match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => style.strong(&line_text),
        [b'+', ..] => style.painted("32", &line_text),
        [b'-', ..] => style.painted("31", &line_text),
        _ => style.faint(&line_text),
    };
    format!("{shown}\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn denial_is_read_from_the_markers_of_our_programs_only() {
        let denied = |content: &str, exit_code: Option<i32>| {
            let result = json!({"id": "1", "name": "rm", "content": content, "is_error": true, "exit_code": exit_code, "duration_ms": 1});
            is_denied(&serde_json::from_value(result).unwrap())
        };
        for content in ["Tool not permitted: rm", "Denied: a person denied it", "Capability denied: execute on /bin/rm"]
        {
            assert!(denied(content, None), "{content}");
            assert!(!denied(content, Some(1)), "{content}");
        }
        for content in
            ["flag --foo is not allowed together with --bar", "Tool not permitted: by me", "it was Denied: no"]
        {
            assert!(!denied(content, None), "{content}");
        }
    }
}
