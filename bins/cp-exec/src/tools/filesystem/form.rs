//! The patch of `*** Begin Patch`, parsed to changes of files.

use cp_common::{Error, Result};

use super::hunk::{Hunk, hunks};

/// A change of one file, as a patch describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileChange {
    pub path: String,
    pub action: Action,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create { content: String },
    Remove,
    Update { hunks: Vec<Hunk>, moved_to: Option<String> },
}

const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";

/// Parses a patch. Lines before its first section are ignored, because models wrap it in a fence or a shell line.
pub(super) fn parse(patch: &str) -> Result<Vec<FileChange>> {
    let mut lines = patch.split_inclusive('\n').peekable();
    let mut changes: Vec<FileChange> = Vec::new();
    while let Some(line) = lines.next() {
        let line = line.trim_end();
        let of = |prefix: &str| line.trim_start().strip_prefix(prefix).map(|path| path.trim().to_owned());
        if let Some(path) = of(ADD) {
            let mut content = String::new();
            while let Some(line) = lines.next_if(|line| !is_section(line)) {
                let added = line.strip_prefix('+').or(line.trim().is_empty().then_some(line));
                let added =
                    added.ok_or_else(|| fault(format!("a line of the new file {path} does not begin with `+`")))?;
                content.push_str(added);
            }
            changes.push(FileChange { path, action: Action::Create { content } });
        } else if let Some(path) = of(DELETE) {
            changes.push(FileChange { path, action: Action::Remove });
        } else if let Some(path) = of(UPDATE) {
            let moved_to =
                lines.next_if(|line| line.starts_with(MOVE)).map(|line| line[MOVE.len()..].trim().to_owned());
            let hunks = hunks(&mut lines, is_section);
            if hunks.is_empty() && moved_to.is_none() {
                return Err(fault(format!("the patch has no hunk for `{path}`")));
            }
            changes.push(FileChange { path, action: Action::Update { hunks, moved_to } });
        } else if line.trim() == "*** End Patch" && !changes.is_empty() {
            return Ok(changes);
        } else if let (Some(FileChange { path, action: Action::Update { .. } }), false) =
            (changes.last(), line.trim().is_empty())
        {
            return Err(fault(format!("the patch has a line after the hunks of {path}: `{line}`")));
        }
    }
    // A patch that was cut would be applied in part.
    Err(fault("the patch has no `*** End Patch`"))
}

/// True if a line begins another file or ends the patch.
fn is_section(line: &str) -> bool {
    let line = line.trim();
    [ADD, DELETE, UPDATE, "*** End Patch"].iter().any(|start| line.starts_with(start.trim_end())) || line == "```"
}

fn fault(message: impl Into<String>) -> Error {
    Error::validation(message).with("rule", "patch").hint(concat!(
        "send `old` and `new`, or `*** Begin Patch`, `*** Update File: FILE`, hunks that begin with `@@` and have lines ",
        "that begin with a blank, `-` or `+`, and `*** End Patch`"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(@@|-|\\+| |\n|a|\\*\\*\\* |Begin Patch|End Patch|Update File: |Add File: |End of File|```|\\\\|é){0,40}"
        ) {
            let _ = parse(&text);
        }
    }
}
