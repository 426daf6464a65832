//! The forms of a patch: unified differences, `*** Begin Patch` and SEARCH/REPLACE blocks, parsed to changes of files.
//! The numbers of a hunk are hints only, because models miscount: its lines decide where it belongs.

use cp_common::{Error, Result};

use super::hunk::{Hunk, hunks};

/// A change of one file, as a patch describes it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FileChange {
    /// The path in the patch; empty if the patch does not name it.
    pub path: String,
    pub action: Action,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    Create { content: String, is_executable: bool },
    Remove { hunks: Vec<Hunk> },
    Update { hunks: Vec<Hunk>, moved_to: Option<String> },
}

/// Parses a patch in any form.
pub(super) fn parse(patch: &str) -> Result<Vec<FileChange>> {
    let begins = |starts: &[&str]| patch.lines().any(|line| starts.iter().any(|start| line.trim().starts_with(start)));
    let changes = if begins(&["*** Begin Patch", ADD, DELETE, UPDATE]) {
        sections(patch)?
    } else if patch.lines().any(|line| marker(line) == Some(Marker::Search)) {
        blocks(patch)?
    } else {
        unified(&unfenced(patch))?
    };
    let has_hunks = |change: &FileChange| match &change.action {
        Action::Update { hunks, moved_to } => !hunks.is_empty() || moved_to.is_some(),
        Action::Create { .. } | Action::Remove { .. } => true,
    };
    match changes.iter().find(|change| !has_hunks(change)) {
        Some(change) => Err(fault(format!("the patch has no hunk for `{}`", change.path))),
        None if changes.is_empty() => Err(fault("the patch has no hunk")),
        None => Ok(changes),
    }
}

/// The content of the fenced blocks of a text; the text itself if no block begins before its first hunk.
fn unfenced(text: &str) -> String {
    let mut is_inside = false;
    let mut content = String::new();
    for line in text.split_inclusive('\n') {
        if line.starts_with("```") || line.starts_with("~~~") {
            is_inside = !is_inside;
        } else if is_inside {
            content.push_str(line);
        } else if content.is_empty()
            && (line.starts_with("@@") || line.starts_with("--- ") || line.starts_with("diff "))
        {
            return text.to_owned();
        }
    }
    if content.is_empty() { text.to_owned() } else { content }
}

const ADD: &str = "*** Add File: ";
const DELETE: &str = "*** Delete File: ";
const UPDATE: &str = "*** Update File: ";
const MOVE: &str = "*** Move to: ";

/// Parses the sections of `*** Begin Patch`.
fn sections(patch: &str) -> Result<Vec<FileChange>> {
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
            changes.push(FileChange { path, action: Action::Create { content, is_executable: false } });
        } else if let Some(path) = of(DELETE) {
            changes.push(FileChange { path, action: Action::Remove { hunks: Vec::new() } });
        } else if let Some(path) = of(UPDATE) {
            let moved_to =
                lines.next_if(|line| line.starts_with(MOVE)).map(|line| line[MOVE.len()..].trim().to_owned());
            let hunks = hunks(&mut lines, |line, _| is_section(line));
            changes.push(FileChange { path, action: Action::Update { hunks, moved_to } });
        } else if line.trim() == "*** End Patch" {
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

/// Parses a unified difference of any number of files.
fn unified(patch: &str) -> Result<Vec<FileChange>> {
    let mut lines = patch.split_inclusive('\n').peekable();
    let mut changes = Vec::new();
    let mut header = Header::default();
    while let Some(line) = lines.peek() {
        if line.starts_with("@@") {
            let hunks = hunks(&mut lines, |line, next| {
                line.starts_with("diff ")
                    || line.starts_with("--- ") && next.is_some_and(|next| next.starts_with("+++ "))
            });
            changes.push(std::mem::take(&mut header).change(hunks)?);
            continue;
        }
        let line = line.trim_end();
        if line.starts_with("diff ") && header.is_complete() {
            changes.push(std::mem::take(&mut header).change(Vec::new())?);
        }
        if line.starts_with("GIT binary patch") || line.starts_with("Binary files ") {
            return Err(
                fault("the patch has binary content").hint("write_file creates a file of text; bytes need a command")
            );
        }
        if line.starts_with("old mode ") {
            return Err(fault("the patch changes permissions").hint(
                "send the patch without the lines `old mode` and `new mode`, and change the permissions with chmod as a command",
            ));
        }
        header.read(line);
        lines.next();
    }
    if header.is_complete() {
        changes.push(header.change(Vec::new())?);
    }
    Ok(changes)
}

/// The name of a file that does not exist, in a unified difference.
const NO_FILE: &str = "/dev/null";

/// The lines before the hunks of a file.
#[derive(Default)]
struct Header {
    old: String,
    new: String,
    is_rename: bool,
    is_executable: bool,
}

impl Header {
    fn read(&mut self, line: &str) {
        // A time may follow the name, and names with blanks are quoted.
        let name = |text: &str| text.split('\t').next().unwrap_or(text).trim().trim_matches('"').to_owned();
        match line.split_once(' ').unwrap_or_default() {
            // The lines of a rename have the names without prefixes.
            ("---", old) if !self.is_rename => self.old = name(old),
            ("+++", new) if !self.is_rename => self.new = name(new),
            ("rename", names) => {
                self.is_rename = true;
                let (side, path) = names.split_once(' ').unwrap_or_default();
                *(if side == "from" { &mut self.old } else { &mut self.new }) = name(path);
            }
            ("diff", names) => {
                let names = names.trim_start_matches("--git ");
                (self.old, self.new) = names
                    .split_once(" b/")
                    .map_or_else(Default::default, |(old, new)| (old.to_owned(), format!("b/{new}")));
            }
            ("new", mode) if mode.starts_with("file ") => {
                NO_FILE.clone_into(&mut self.old);
                self.is_executable = mode == "file mode 100755";
            }
            ("deleted", _) => NO_FILE.clone_into(&mut self.new),
            _ => {}
        }
    }

    /// True if the lines alone change a file.
    fn is_complete(&self) -> bool {
        self.is_rename || self.old == NO_FILE || self.new == NO_FILE
    }

    fn change(self, hunks: Vec<Hunk>) -> Result<FileChange> {
        // `a/` and `b/` are no directories if both stand where git writes them.
        let has_prefix = |name: &str, prefix: &str| name == NO_FILE || name.starts_with(prefix);
        let is_prefixed = !self.is_rename && has_prefix(&self.old, "a/") && has_prefix(&self.new, "b/");
        let plain = |name: &str| if is_prefixed { name.get(2..).unwrap_or_default() } else { name }.to_owned();
        let (old, new) = (plain(&self.old), plain(&self.new));
        if self.old == NO_FILE {
            if hunks.iter().any(|hunk| !hunk.old.is_empty()) {
                return Err(fault(format!("the new file {new} has old lines in the patch")));
            }
            let content = hunks.into_iter().map(|hunk| hunk.new).collect();
            return Ok(FileChange { path: new, action: Action::Create { content, is_executable: self.is_executable } });
        }
        Ok(if self.new == NO_FILE {
            FileChange { path: old, action: Action::Remove { hunks } }
        } else if self.is_rename {
            FileChange { path: old, action: Action::Update { hunks, moved_to: Some(new) } }
        } else {
            FileChange { path: new, action: Action::Update { hunks, moved_to: None } }
        })
    }
}

/// A marker of a SEARCH/REPLACE block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    Search,
    Divider,
    Replace,
}

fn marker(line: &str) -> Option<Marker> {
    let line = line.trim_end();
    let word = line.trim_start_matches(['<', '-', '>', '+']);
    let marks = line.len() - word.len();
    let is_divider = line.len() >= 5 && line.bytes().all(|byte| byte == b'=');
    match (word.trim(), line.as_bytes().first()) {
        ("SEARCH", Some(b'<' | b'-')) if marks >= 5 => Some(Marker::Search),
        ("REPLACE", Some(b'>' | b'+')) if marks >= 5 => Some(Marker::Replace),
        _ => is_divider.then_some(Marker::Divider),
    }
}

/// Parses SEARCH/REPLACE blocks. The line before a block, if it is not a fence, names its file.
fn blocks(text: &str) -> Result<Vec<FileChange>> {
    let mut changes = Vec::new();
    let (mut path, mut before) = (String::new(), None);
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        if marker(line) != Some(Marker::Search) {
            let name = line.trim().trim_matches(['`', '*', '#', ':', ' ']);
            if !line.starts_with("```") && !name.is_empty() {
                before = Some(name.to_owned());
            }
            continue;
        }
        // A name has no blanks; other lines are prose.
        path = before.take().filter(|name| !name.contains(' ')).unwrap_or(path);
        let mut part = |end: Marker| -> Result<String> {
            let mut part = String::new();
            loop {
                let line = lines.next().ok_or_else(|| fault("a SEARCH/REPLACE block is not complete"))?;
                match marker(line) {
                    Some(found) if found == end => return Ok(part),
                    Some(_) if end == Marker::Replace || marker(line) == Some(Marker::Search) => {
                        return Err(fault("the markers of a SEARCH/REPLACE block are not in order"));
                    }
                    _ => part.push_str(line),
                }
            }
        };
        let (old, new) = (part(Marker::Divider)?, part(Marker::Replace)?);
        let (line, old) = without_start_line(old);
        let action = if old.trim().is_empty() {
            Action::Create { content: new, is_executable: false }
        } else {
            Action::Update { hunks: vec![Hunk { line, old, new, ..Hunk::default() }], moved_to: None }
        };
        changes.push(FileChange { path: path.clone(), action });
    }
    Ok(changes)
}

/// The line number that some models write at the beginning of a SEARCH part, and the rest.
fn without_start_line(old: String) -> (Option<usize>, String) {
    let parsed = old.strip_prefix(":start_line:").and_then(|rest| {
        let (number, rest) = rest.split_once('\n')?;
        Some((number.trim().parse().ok()?, rest.strip_prefix("-------\n").unwrap_or(rest).to_owned()))
    });
    parsed.map_or((None, old), |(line, rest)| (Some(line), rest))
}

fn fault(message: impl Into<String>) -> Error {
    Error::validation(message).with("rule", "patch").hint(concat!(
        "send a unified difference (`--- a/FILE`, `+++ b/FILE`, `@@ -LINE,COUNT +LINE,COUNT @@`, then lines that begin with ",
        "a blank, `-` or `+`), or `*** Begin Patch` with `*** Update File: FILE`, or `old` and `new`"
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hunks_of(patch: &str) -> Vec<(Option<usize>, String, String)> {
        let changes = parse(patch).unwrap();
        let hunks = changes.into_iter().flat_map(|change| match change.action {
            Action::Update { hunks, .. } | Action::Remove { hunks } => hunks,
            Action::Create { .. } => Vec::new(),
        });
        hunks.map(|hunk| (hunk.line, hunk.old, hunk.new)).collect()
    }

    #[test]
    fn hunk_with_any_header_has_its_lines() {
        let body = " a\n-b\n+c\n \n d\n";
        let (old, new) = ("a\nb\n\nd\n".to_owned(), "a\nc\n\nd\n".to_owned());
        for (header, line) in [
            ("@@ -3,4 +3,4 @@", Some(3)),
            ("@@ -3,4 +3,4 @@ fn x() {", Some(3)),
            ("@@ -3,9 +3,1 @@", Some(3)),
            ("@@ -3 +3 @@", Some(3)),
            ("@@", None),
            ("@@ @@", None),
            ("@@ ... @@", None),
            ("@@ fn x() @@", None),
            ("@@ -x +1 @@", None),
            ("@@ -99999999999999999999 +1 @@", None),
        ] {
            let expected = vec![(line, old.clone(), new.clone())];
            assert_eq!(hunks_of(&format!("{header}\n{body}")), expected, "{header}");
            assert_eq!(hunks_of(&format!("--- a/f\n+++ b/f\n{header}\n{body}")), expected, "{header}");
            assert_eq!(hunks_of(&format!("text\n```diff\n{header}\n{body}```\n")), expected, "{header}");
            let section = format!("*** Begin Patch\n*** Update File: f\n{header}\n{body}*** End Patch");
            assert_eq!(hunks_of(&section), expected, "{header}");
            let twice = [expected.clone(), expected.clone()].concat();
            assert_eq!(hunks_of(&format!("{header}\n{body}{header}\n{body}")), twice, "{header}");
            assert_eq!(hunks_of(&format!("{header}\n{body}\n\n{header}\n{body}\n\n")), twice, "{header}");
        }
    }

    #[test]
    fn paths_are_those_of_the_patch() {
        let paths = |patch: &str| parse(patch).unwrap().into_iter().map(|change| change.path).collect::<Vec<_>>();
        let hunk = "@@ -1 +1 @@\n-a\n+b\n";
        for (header, path) in [
            ("--- a/d/f\n+++ b/d/f\n", "d/f"),
            ("--- d/f\n+++ d/f\n", "d/f"),
            ("--- a/f\n+++ a/f\n", "a/f"),
            ("--- f.orig\n+++ f\n", "f"),
            ("--- \"a/x y\"\n+++ \"b/x y\"\n", "x y"),
            ("diff --git a/f b/f\n", "f"),
            ("", ""),
        ] {
            assert_eq!(paths(&format!("{header}{hunk}")), [path], "{header}");
        }
        let two = format!("--- a/f\n+++ b/f\n{hunk}{hunk}--- a/g\n+++ b/g\n{hunk}");
        assert_eq!(paths(&two), ["f", "g"]);
        assert_eq!(paths("**`src/x.py`**\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"), ["src/x.py"]);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(text in "(@@|-|\\+| |\n|a|\\*\\*\\* |Begin Patch|End Patch|Update File: |Add File: |<<<<<<< SEARCH|=======|>>>>>>> REPLACE|```|--- a/f|\\+\\+\\+ b/f|\\\\| -1,2 \\+1 @@|é){0,40}") {
            let _ = parse(&text);
        }
    }
}
