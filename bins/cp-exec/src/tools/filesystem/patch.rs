//! The patch of `*** Begin Patch`, parsed to changes of files.

use cp_common::{Error, Result};

use super::place::Hunk;

/// A change of one file, as a patch describes it.
#[derive(Debug)]
pub(super) enum Action {
    Create { content: String },
    Remove,
    Update { hunks: Vec<Hunk>, moved_to: Option<String> },
}

const HINT: &str = "send `old` and `new`, or `*** Begin Patch`, `*** Update File: FILE`, hunks that begin with `@@` and \
     have lines that begin with a blank, `-` or `+`, and `*** End Patch`";

/// Parses a patch to paths with their changes. Lines before its first section are ignored, because models wrap it in a
/// fence or a shell line.
pub(super) fn parse(patch: &str) -> Result<Vec<(String, Action)>> {
    let fault = |message: String| Error::validation(message).with("rule", "patch").hint(HINT);
    let mut changes: Vec<(String, Action)> = Vec::new();
    // Blank lines belong to a hunk only if another line of it follows, because models put some between sections.
    let mut blank = 0;
    for line in patch.split_inclusive('\n') {
        let of = |prefix: &str| line.trim().strip_prefix(prefix).map(|path| path.trim().to_owned());
        if let Some(path) = of("*** Add File: ") {
            changes.push((path, Action::Create { content: String::new() }));
        } else if let Some(path) = of("*** Delete File: ") {
            changes.push((path, Action::Remove));
        } else if let Some(path) = of("*** Update File: ") {
            changes.push((path, Action::Update { hunks: Vec::new(), moved_to: None }));
        } else if line.trim() == "*** End Patch" {
            return checked(changes).map_err(fault);
        } else if let Some((path, action)) = changes.last_mut() {
            let text = line.trim_end_matches(['\r', '\n']);
            match action {
                Action::Create { content } => match line.strip_prefix('+') {
                    Some(added) => content.push_str(added),
                    None if line.trim().is_empty() => content.push_str(line),
                    None => return Err(fault(format!("a line of the new file {path} does not begin with `+`"))),
                },
                Action::Update { hunks, moved_to } if hunks.is_empty() && line.starts_with("*** Move to: ") => {
                    *moved_to = of("*** Move to: ");
                }
                Action::Update { .. } if text.is_empty() => {
                    blank += 1;
                    continue;
                }
                Action::Update { hunks, .. } => {
                    if !add(hunks, text, blank) {
                        return Err(fault(format!("the patch has a line after the hunks of {path}: `{text}`")));
                    }
                }
                Action::Remove => {}
            }
        }
        blank = 0;
    }
    // A patch that was cut would be applied in part.
    Err(fault("the patch has no `*** End Patch`".to_owned()))
}

/// The changes without hunks that have no lines.
fn checked(mut changes: Vec<(String, Action)>) -> std::result::Result<Vec<(String, Action)>, String> {
    for (path, action) in &mut changes {
        if let Action::Update { hunks, moved_to } = action {
            hunks.retain(|hunk| !is_empty(hunk));
            if hunks.is_empty() && moved_to.is_none() {
                return Err(format!("the patch has no hunk for `{path}`"));
            }
        }
    }
    if changes.is_empty() { Err("the patch names no file".to_owned()) } else { Ok(changes) }
}

fn is_empty(hunk: &Hunk) -> bool {
    hunk.old.is_empty() && hunk.new.is_empty()
}

/// Adds a line, after blank ones, to the last hunk, or begins another. A header without lines is an outer anchor of
/// the next. False if the last hunk has ended.
fn add(hunks: &mut Vec<Hunk>, line: &str, blank: usize) -> bool {
    let is_header = line.starts_with("@@");
    if hunks.last().is_none_or(|last| is_header && !is_empty(last)) {
        hunks.push(Hunk::default());
    }
    let Some(hunk) = hunks.last_mut() else { return false };
    if is_header {
        // Ranges of lines are no anchor: the lines of a hunk decide where it belongs.
        let anchor = line.trim_matches(['@', ' ']);
        let is_anchor = anchor.contains(|c: char| c.is_alphanumeric()) && !anchor.starts_with('-');
        hunk.anchors.extend(is_anchor.then(|| anchor.to_owned()));
        return true;
    }
    if hunk.at_end {
        return false;
    }
    if line.trim_end() == "*** End of File" {
        hunk.at_end = true;
        return true;
    }
    // A line with none of ` `, `-` and `+` in front is an unchanged line that lost its blank.
    let (in_old, in_new, text) = match line.as_bytes().first() {
        Some(b'+') => (false, true, &line[1..]),
        Some(b'-') => (true, false, &line[1..]),
        Some(b' ') => (true, true, &line[1..]),
        _ => (true, true, line),
    };
    for (side, has_line) in [(&mut hunk.old, in_old), (&mut hunk.new, in_new)] {
        side.push_str(&"\n".repeat(blank));
        if has_line {
            side.push_str(text);
            side.push('\n');
        }
    }
    true
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
