//! The hunks of a patch.

use std::iter::Peekable;
use std::str::SplitInclusive;

/// The line that ends a hunk at the end of the file.
const END_OF_FILE: &str = "*** End of File";

/// Lines and their replacement.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hunk {
    /// Lines that precede the hunk, the outermost first.
    pub anchors: Vec<String>,
    pub old: String,
    pub new: String,
    /// True if the hunk is at the end of the file.
    pub at_end: bool,
}

pub(super) type Lines<'a> = Peekable<SplitInclusive<'a, char>>;

/// Parses the hunks of one file, up to the line at which `ends` is true.
pub(super) fn hunks(lines: &mut Lines<'_>, ends: impl Fn(&str) -> bool) -> Vec<Hunk> {
    let (mut hunks, mut anchors) = (Vec::new(), Vec::new());
    loop {
        // A header without lines is an outer anchor.
        while let Some(header) = lines.next_if(|line| line.starts_with("@@")) {
            anchors.extend(anchor(header));
        }
        let mut hunk = Hunk::default();
        hunk.read(lines, &ends);
        if !(hunk.old.is_empty() && hunk.new.is_empty()) {
            hunk.anchors = std::mem::take(&mut anchors);
            hunks.push(hunk);
        }
        while lines.next_if(|line| line.trim().is_empty()).is_some() {}
        if lines.peek().is_none_or(|line| !line.starts_with("@@")) {
            return hunks;
        }
    }
}

/// The line that a header names. Ranges of lines are none: the lines of a hunk decide where it belongs.
fn anchor(header: &str) -> Option<String> {
    let anchor = header.trim_matches(['@', ' ', '\r', '\n']);
    let is_anchor = anchor.contains(|c: char| c.is_alphanumeric()) && !anchor.starts_with('-');
    is_anchor.then(|| anchor.to_owned())
}

impl Hunk {
    /// Reads lines up to the next header. Blank lines at the end belong to the hunk only if they begin with a blank.
    fn read(&mut self, lines: &mut Lines<'_>, ends: impl Fn(&str) -> bool) {
        let is_bare = |line: &str| line.trim_end_matches(['\r', '\n']).is_empty();
        let is_end = |line: &str| line.starts_with("@@") || ends(line);
        while let Some(line) = lines.peek().copied() {
            let is_last = || lines.clone().find(|line| !is_bare(line)).is_none_or(is_end);
            if is_end(line) || is_bare(line) && is_last() {
                break;
            }
            lines.next();
            if line.trim_end() == END_OF_FILE {
                self.at_end = true;
                break;
            }
            self.push(line);
        }
    }

    /// Appends a line. A line with none of ` `, `-` and `+` in front is an unchanged line that lost its blank.
    fn push(&mut self, line: &str) {
        let (in_old, in_new, text) = match line.as_bytes().first() {
            Some(b'+') => (false, true, &line[1..]),
            Some(b'-') => (true, false, &line[1..]),
            Some(b' ') => (true, true, &line[1..]),
            _ => (true, true, line),
        };
        for (side, has_line) in [(&mut self.old, in_old), (&mut self.new, in_new)] {
            if has_line {
                side.push_str(text);
                side.push_str(if text.ends_with('\n') { "" } else { "\n" });
            }
        }
    }
}
