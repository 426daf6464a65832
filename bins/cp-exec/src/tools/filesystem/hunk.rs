//! The hunks of a patch. Their numbers are hints only, because models miscount.

use std::iter::Peekable;
use std::str::SplitInclusive;

/// The line that ends a hunk at the end of the file.
const END_OF_FILE: &str = "*** End of File";

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

pub(super) type Lines<'a> = Peekable<SplitInclusive<'a, char>>;

/// Parses the hunks of one file, up to the line at which `ends` is true for the line and the next one.
pub(super) fn hunks(lines: &mut Lines<'_>, ends: impl Fn(&str, Option<&str>) -> bool) -> Vec<Hunk> {
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
                    .clone()
                    .find(|line| !line.trim().is_empty())
                    .is_none_or(|line| line.starts_with("@@") || ends(line, Some("+++ ")))
        }) {
            *lines = counted;
        } else {
            hunk = Hunk { line: hunk.line, ..Hunk::default() };
            hunk.read_lenient(lines, &ends);
        }
        // A header without lines is an outer anchor.
        if !(hunk.old.is_empty() && hunk.new.is_empty()) {
            if hunk.old.is_empty() && counts.is_some_and(|(old, _)| old > 0) {
                hunk.line = None;
            }
            hunk.anchors = std::mem::take(&mut anchors);
            hunks.push(hunk);
        }
        while lines.next_if(|line| line.trim().is_empty()).is_some() {}
        let Some(line) = lines.peek().copied() else { return hunks };
        let next = lines.clone().nth(1);
        if ends(line, next) || !line.starts_with("@@") {
            return hunks;
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
        while old > 0 || new > 0 {
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
    fn read_lenient(&mut self, lines: &mut Lines<'_>, ends: impl Fn(&str, Option<&str>) -> bool) {
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
