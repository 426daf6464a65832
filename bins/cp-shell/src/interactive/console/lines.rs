//! Lines that belong together: a line that ends with a backslash, or in an open fence, continues on the next.

use std::sync::Arc;

use rustyline::completion::Completer;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};

/// Returns where the word at a position of a line begins, and its completions.
pub(crate) type Completions = Arc<dyn Fn(&str, usize) -> (usize, Vec<String>) + Send + Sync>;

/// The helper of the line editor: completion, and whether a line is continued.
pub(super) struct Helper {
    pub(super) completions: Completions,
}

impl Completer for Helper {
    type Candidate = String;

    fn complete(&self, line: &str, at: usize, _: &rustyline::Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        Ok((self.completions)(line, at))
    }
}

impl Validator for Helper {
    fn validate(&self, context: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(context.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Hinter for Helper {
    type Hint = String;
}

impl Highlighter for Helper {}

impl rustyline::Helper for Helper {}

/// Whether more lines belong to it: it ends with a backslash, or a fence of three backquotes or quotes is open.
pub(crate) fn goes_on(text: &str) -> bool {
    let is_open = |fence: &str| text.matches(fence).count() % 2 == 1;
    let backslashes = text.len() - text.trim_end_matches('\\').len();
    backslashes % 2 == 1 || is_open("```") || is_open("\"\"\"")
}

/// The text of one or more lines: a backslash at the end of a line, and quotes that only hold the lines together, are gone.
pub(crate) fn joined(text: &str) -> String {
    let text = text.replace("\\\n", "\n");
    let inside = text.trim().strip_prefix("\"\"\"").and_then(|text| text.strip_suffix("\"\"\""));
    inside.map_or_else(|| text.clone(), |inside| inside.trim_matches('\n').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backslash_and_an_open_fence_ask_for_more() {
        assert!(goes_on("one \\") && goes_on("```sh\nls") && goes_on("\"\"\"a"));
        assert!(!goes_on("one \\\\") && !goes_on("```sh\nls\n```") && !goes_on("\"\"\"a\"\"\"") && !goes_on("x"));
        assert_eq!(joined("one \\\ntwo"), "one \ntwo");
        assert_eq!(joined("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
    }
}
