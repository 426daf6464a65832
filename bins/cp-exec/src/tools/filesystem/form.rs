//! The forms of a patch: unified differences, `*** Begin Patch` and SEARCH/REPLACE blocks, parsed to changes of files.
//! The numbers of a hunk are hints only, because models miscount: its lines decide where it belongs.

use std::iter::Peekable;
use std::str::SplitInclusive;

use cp_common::{Error, Result};

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

/// Lines and their replacement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// The first old line; the line before the new lines if there are no old lines.
    pub line: Option<usize>,
    /// Lines that precede the hunk, the outermost first.
    pub anchors: Vec<String>,
    pub old: String,
    pub new: String,
    /// True if the hunk is at the end of the file.
    pub at_end: bool,
}

type Lines<'a> = Peekable<SplitInclusive<'a, char>>;

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
const END_OF_FILE: &str = "*** End of File";

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
            let hunks = hunks(&mut lines, |line, _| is_section(line))?;
            changes.push(FileChange { path, action: Action::Update { hunks, moved_to } });
        } else if line.trim() == "*** End Patch" {
            return Ok(changes);
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
            })?;
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
        header.read(line);
        lines.next();
    }
    if header.is_complete() {
        changes.push(header.change(Vec::new())?);
    }
    Ok(changes)
}

/// The lines before the hunks of a file.
#[derive(Default)]
struct Header {
    old: Option<String>,
    new: Option<String>,
    is_rename: bool,
    is_new: bool,
    is_removed: bool,
    is_executable: bool,
}

impl Header {
    fn read(&mut self, line: &str) {
        // A time may follow the name.
        let name = |text: &str| Some(text.split('\t').next().unwrap_or(text).trim().trim_matches('"').to_owned());
        for (start, of) in [("--- ", 0), ("+++ ", 1), ("rename from ", 2), ("rename to ", 3)] {
            // The lines of a rename have the names without prefixes.
            let Some(text) = line.strip_prefix(start).filter(|_| of >= 2 || !self.is_rename) else { continue };
            let slot = if of % 2 == 0 { &mut self.old } else { &mut self.new };
            *slot = name(text);
            self.is_rename |= of >= 2;
        }
        if let Some(names) = line.strip_prefix("diff --git a/") {
            // Names with blanks are in the lines that follow.
            let (old, new) = names.split_once(" b/").unwrap_or_default();
            (self.old, self.new) = (Some(format!("a/{old}")), Some(format!("b/{new}")));
        }
        self.is_new |= line.starts_with("new file mode");
        self.is_removed |= line.starts_with("deleted file mode");
        self.is_executable |= line == "new file mode 100755";
    }

    /// True if the lines alone change a file.
    fn is_complete(&self) -> bool {
        self.is_rename || self.is_new || self.is_removed
    }

    fn change(self, hunks: Vec<Hunk>) -> Result<FileChange> {
        let is_absent = |name: &Option<String>| name.as_deref() == Some("/dev/null");
        let (is_new, is_removed) = (self.is_new || is_absent(&self.old), self.is_removed || is_absent(&self.new));
        // `a/` and `b/` are no directories if both stand where git writes them.
        let without = |name: &Option<String>, prefix: &str| {
            name.as_deref().is_none_or(|name| name == "/dev/null" || name.starts_with(prefix))
        };
        let is_prefixed = !self.is_rename && without(&self.old, "a/") && without(&self.new, "b/");
        let plain = |name: &Option<String>| {
            let name = name.clone().unwrap_or_default();
            if is_prefixed { name.get(2..).unwrap_or_default().to_owned() } else { name }
        };
        let (old, new) = (plain(&self.old), plain(&self.new));
        if is_new {
            if hunks.iter().any(|hunk| !hunk.old.is_empty()) {
                return Err(fault(format!("the new file {new} has old lines in the patch")));
            }
            let content = hunks.into_iter().map(|hunk| hunk.new).collect();
            return Ok(FileChange { path: new, action: Action::Create { content, is_executable: self.is_executable } });
        }
        if is_removed {
            return Ok(FileChange { path: old, action: Action::Remove { hunks } });
        }
        let moved_to = self.is_rename.then(|| new.clone());
        Ok(FileChange { path: if self.is_rename { old } else { new }, action: Action::Update { hunks, moved_to } })
    }
}

/// Parses the hunks of one file, up to the line at which `ends` is true for the line and the next one.
fn hunks(lines: &mut Lines<'_>, ends: impl Fn(&str, Option<&str>) -> bool) -> Result<Vec<Hunk>> {
    let (mut hunks, mut anchors) = (Vec::new(), Vec::new());
    loop {
        let mut hunk = Hunk::default();
        let mut counts = None;
        if let Some(header) = lines.next_if(|line| line.starts_with("@@")) {
            let range = range(header);
            let heading = header
                .trim_start_matches('@')
                .rsplit_once("@@")
                .map_or(&header[2..], |(text, tail)| if range.is_some() { tail } else { text });
            let anchor = heading.trim().trim_end_matches("@@").trim();
            let is_anchor = anchor.contains(|c: char| c.is_alphanumeric()) && !anchor.starts_with('-');
            anchors.extend(is_anchor.then(|| anchor.to_owned()));
            if let Some((start, old, new)) = range {
                // Lines without old lines follow the stated line.
                hunk.line = Some(start);
                counts = Some((old, new));
            }
        }
        let mut counted = lines.clone();
        if counts.is_some_and(|counts| {
            hunk.read_counted(&mut counted, counts).is_some()
                && counted
                    .peek()
                    .is_none_or(|line| line.starts_with("@@") || line.trim().is_empty() || ends(line, Some("+++ ")))
        }) {
            *lines = counted;
        } else {
            hunk = Hunk { line: hunk.line, ..Hunk::default() };
            hunk.read_lenient(lines, &ends)?;
        }
        if hunk.old.is_empty() && hunk.new.is_empty() {
            // The header of an outer anchor, or blank lines.
        } else {
            if hunk.old.is_empty() && counts.is_some_and(|(old, _)| old > 0) {
                hunk.line = None;
            }
            hunk.anchors = std::mem::take(&mut anchors);
            hunks.push(hunk);
        }
        while lines.next_if(|line| line.trim().is_empty()).is_some() {}
        let Some(line) = lines.peek().copied() else { return Ok(hunks) };
        let next = lines.clone().nth(1);
        if ends(line, next) || !line.starts_with("@@") {
            return Ok(hunks);
        }
    }
}

/// The first old line and the numbers of old and new lines of a header.
fn range(header: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = header.strip_prefix("@@ ")?.split_once(" @@")?;
    let (old, new) = ranges.strip_prefix('-')?.split_once(" +")?;
    let range = |text: &str| match text.split_once(',') {
        None => Some((text.parse().ok()?, 1)),
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
    };
    let ((start, old), (_, new)): ((usize, usize), (usize, usize)) = (range(old)?, range(new)?);
    Some((start, old, new))
}

impl Hunk {
    /// Reads as many lines as the header says; `None` if they are not lines of a hunk.
    fn read_counted(&mut self, lines: &mut Lines<'_>, (mut old, mut new): (usize, usize)) -> Option<()> {
        while old + new > 0 {
            let line = lines.next()?;
            let kind =
                line.chars().next().filter(|kind| " +-".contains(*kind)).or(line.trim().is_empty().then_some(' '))?;
            if kind != '+' {
                old = old.checked_sub(1)?;
            }
            if kind != '-' {
                new = new.checked_sub(1)?;
            }
            self.push(line, lines);
        }
        Some(())
    }

    /// Reads lines up to the next header. Blank lines at the end belong to the hunk only if they begin with a blank.
    fn read_lenient(&mut self, lines: &mut Lines<'_>, ends: impl Fn(&str, Option<&str>) -> bool) -> Result<()> {
        let is_bare = |line: &str| line.trim_end_matches(['\r', '\n']).is_empty();
        while let Some(line) = lines.peek().copied() {
            let mut after = lines.clone().skip(1).skip_while(|line| is_bare(line));
            let is_last = after.next().is_none_or(|next| next.starts_with("@@") || ends(next, after.next()));
            if line.starts_with("@@") || ends(line, lines.clone().nth(1)) || is_bare(line) && is_last {
                break;
            }
            lines.next();
            if line.trim_end() == END_OF_FILE {
                self.at_end = true;
                break;
            }
            self.push(line, lines);
        }
        Ok(())
    }

    /// Appends a line. A line with none of ` `, `-` and `+` in front is an unchanged line that lost its blank.
    fn push(&mut self, line: &str, lines: &mut Lines<'_>) {
        let (kind, text) = match line.as_bytes().first() {
            Some(b'+') => ('+', &line[1..]),
            Some(b'-') => ('-', &line[1..]),
            Some(b' ') => (' ', &line[1..]),
            _ => (' ', line),
        };
        let mut text = text.to_owned();
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if lines.next_if(|next| next.starts_with('\\')).is_some() {
            text.pop();
        }
        if kind != '+' {
            self.old.push_str(&text);
        }
        if kind != '-' {
            self.new.push_str(&text);
        }
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
