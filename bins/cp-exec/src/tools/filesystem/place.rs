//! Placement of edits: finds the text of an edit in a file, at the lowest tolerance that finds any, and replaces it.
//!
//! A tolerant match ignores line endings and blanks at line ends. Unchanged lines of the text keep the bytes of the
//! file, and new lines get the line ending of the file.

use std::time::{Duration, Instant};

use cp_common::{Error, Result};
use memchr::memmem;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

use super::hunk::Hunk;
use super::view::{PLACES, Tolerance, View};

/// The largest file that is searched with tolerance, in bytes.
const TOLERANT: usize = 16 << 20;
/// Time after which the comparison of old and new text is less detailed.
const PATIENCE: Duration = Duration::from_secs(1);

/// The result of an edit.
#[derive(Debug, Default)]
pub(super) struct Edited {
    pub bytes: Vec<u8>,
    /// The line of each change in the old file, from 1.
    pub lines: Vec<usize>,
    /// The number of changes.
    pub count: usize,
    /// Remarks about differences between the request and the file.
    pub notes: Vec<String>,
}

/// The occurrences of a text in a file.
struct Found {
    tolerance: Tolerance,
    file: View,
    /// The old text in this tolerance, and the texts that the replacement compares.
    view: View,
    old: String,
    new: String,
    places: Vec<usize>,
}

impl Found {
    /// Finds a text; `None` if it does not occur.
    fn of(file: &[u8], old: &str, new: &str, whole_lines: bool, all: bool) -> Option<Self> {
        Tolerance::ALL.into_iter().take(if file.len() > TOLERANT { 1 } else { 3 }).find_map(|tolerance| {
            let normal = |text: &str| {
                if tolerance == Tolerance::Exact { text.to_owned() } else { text.replace("\r\n", "\n") }
            };
            let (old, new) = (normal(old), normal(new));
            let (view, content) = (View::of(old.as_bytes(), tolerance), View::of(file, tolerance));
            let places = if view.text.trim_ascii().is_empty() && tolerance > Tolerance::LineEndings {
                Vec::new()
            } else {
                content.occurrences(&view.text, whole_lines, all)
            };
            (!places.is_empty()).then_some(Self { tolerance, file: content, view, old, new, places })
        })
    }

    /// The line of an occurrence, from 1.
    fn line(&self, place: usize) -> usize {
        1 + memchr::memchr_iter(b'\n', &self.file.text[..place]).count()
    }

    fn end(&self, place: usize) -> usize {
        place + self.view.text.len()
    }

    fn notes(&self) -> Vec<String> {
        self.tolerance.note().map(str::to_owned).into_iter().collect()
    }

    /// The replacement of one occurrence.
    fn splice(&self, place: usize, file: &[u8]) -> Splice {
        let origin = |offset: usize| self.file.origin(place + self.view.position(offset));
        let (from, to) = (self.file.origin(place), self.file.origin(self.end(place)));
        if self.tolerance == Tolerance::Exact {
            let (crlf, lf) = line_endings(file);
            let keeps_crlf = crlf > 0 && lf == 0 && !self.new.contains("\r\n");
            let text = if keeps_crlf { self.new.replace('\n', "\r\n") } else { self.new.clone() };
            return Splice { from, to, text: text.into_bytes() };
        }
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.old.split_inclusive('\n').collect(), self.new.split_inclusive('\n').collect());
        let (mut text, mut offset) = (Vec::new(), 0);
        for step in changes(&old, &new) {
            let (removed, added) = (old[step.old_range()].concat(), new[step.new_range()].concat());
            let end = offset + removed.len();
            if matches!(step, DiffOp::Equal { .. }) {
                text.extend_from_slice(&file[origin(offset)..origin(end)]);
            } else {
                text.extend_from_slice(&with_line_ending(&added, file));
            }
            offset = end;
        }
        Splice { from, to, text }
    }
}

/// The steps from old to new lines.
fn changes(old: &[&str], new: &[&str]) -> Vec<DiffOp> {
    capture_diff_slices_deadline(Algorithm::Myers, old, new, Some(Instant::now() + PATIENCE))
}

/// A part of a file and its replacement.
struct Splice {
    from: usize,
    to: usize,
    text: Vec<u8>,
}

/// The file with the replacements, which are in order.
fn spliced(file: &[u8], splices: &[Splice]) -> Vec<u8> {
    let (mut bytes, mut end) = (Vec::with_capacity(file.len()), 0);
    for splice in splices {
        bytes.extend_from_slice(&file[end..splice.from]);
        bytes.extend_from_slice(&splice.text);
        end = splice.to;
    }
    bytes.extend_from_slice(&file[end..]);
    bytes
}

/// The numbers of CRLF and of plain line feeds.
fn line_endings(file: &[u8]) -> (usize, usize) {
    let crlf = memmem::find_iter(file, b"\r\n").count();
    (crlf, memchr::memchr_iter(b'\n', file).count() - crlf)
}

/// A text with the line ending that most lines of the file have.
fn with_line_ending(text: &str, file: &[u8]) -> Vec<u8> {
    let (crlf, lf) = line_endings(file);
    let text = text.replace("\r\n", "\n");
    if crlf > lf { text.replace('\n', "\r\n").into_bytes() } else { text.into_bytes() }
}

/// Replaces one occurrence of a text, or all. If the edit is ambiguous, the error describes how to make it unique.
pub(super) fn replaced(file: &[u8], old: &str, new: &str, all: bool) -> Result<Edited> {
    let fault = |message: String| Error::validation(message).with("rule", "old");
    if old == new {
        return Err(fault("old and new are the same: nothing would change".to_owned()));
    }
    if old.ends_with('\n') && lacks_newline(file) {
        return padded(file, |file| replaced(file, old, new, all));
    }
    let Some(found) = Found::of(file, old, new, false, all) else {
        return Err(fault("the old text does not occur in the file".to_owned()).hint(COPY_IT));
    };
    let lines: Vec<usize> = found.places.iter().take(PLACES).map(|place| found.line(*place)).collect();
    if found.places.len() > 1 && !all {
        let times = if found.places.len() > PLACES { format!("more than {PLACES}") } else { lines.len().to_string() };
        return Err(fault(format!(
            "the old text occurs {times} times, at lines {}",
            listed(&lines, found.places.len())
        ))
        .with("lines", lines)
        .hint("give more of the surrounding text, or all=true to replace every occurrence"));
    }
    let splices: Vec<Splice> = found.places.iter().map(|place| found.splice(*place, file)).collect();
    Ok(Edited { bytes: spliced(file, &splices), lines, count: splices.len(), notes: found.notes() })
}

fn listed(lines: &[usize], count: usize) -> String {
    let shown = lines.iter().take(PLACES).map(usize::to_string).collect::<Vec<_>>().join(", ");
    if count > PLACES { shown + ", …" } else { shown }
}

/// Inserts lines after a line; 0 is the beginning of the file.
pub(super) fn inserted(file: &[u8], after: usize, text: &str) -> Result<Edited> {
    let fault = |message: String| Error::validation(message).with("rule", "insert_line");
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    if after > lines.len() {
        return Err(fault(format!("insert_line is {after}, and the file has {} lines", lines.len()))
            .hint("0 inserts at the beginning, and the number of lines at the end"));
    }
    if text.is_empty() {
        return Err(fault("new is empty: nothing would change".to_owned()));
    }
    let at = lines[..after].iter().map(|line| line.len()).sum();
    let mut text = text.to_owned();
    if !text.ends_with('\n') && (at < file.len() || file.ends_with(b"\n")) {
        text.push('\n');
    }
    if at > 0 && file[at - 1] != b'\n' {
        text.insert(0, '\n');
    }
    let splice = Splice { from: at, to: at, text: with_line_ending(&text, file) };
    Ok(Edited { bytes: spliced(file, &[splice]), lines: vec![after + 1], count: 1, notes: Vec::new() })
}

fn lacks_newline(file: &[u8]) -> bool {
    !file.is_empty() && !file.ends_with(b"\n")
}

/// The result of an edit whose text ends with a newline that the last line of the file lacks. The last line lacks it
/// afterwards too.
fn padded(file: &[u8], edit: impl FnOnce(&[u8]) -> Result<Edited>) -> Result<Edited> {
    let padding = with_line_ending("\n", file);
    let mut edited = edit(&[file, &padding].concat())?;
    if edited.bytes.ends_with(&padding) {
        edited.bytes.truncate(edited.bytes.len() - padding.len());
    }
    Ok(edited)
}

/// The file with the hunks of a patch applied, each where its lines are.
pub(super) fn patched(file: &[u8], hunks: &[Hunk]) -> Result<Edited> {
    if lacks_newline(file) {
        return padded(file, |file| patched(file, hunks));
    }
    let mut edited = Edited { count: hunks.len(), ..Edited::default() };
    let mut splices = Vec::new();
    for (number, hunk) in (1..).zip(hunks) {
        let (splice, notes) = placed(file, hunk, number)?;
        splices.push(splice);
        for note in notes {
            if !edited.notes.contains(&note) {
                edited.notes.push(note);
            }
        }
    }
    splices.sort_by_key(|splice| splice.from);
    if splices.windows(2).any(|pair| pair[1].from < pair[0].to) {
        return Err(fault("two hunks of the patch change the same lines").hint("join them into one hunk"));
    }
    edited.lines = splices.iter().map(|splice| 1 + memchr::memchr_iter(b'\n', &file[..splice.from]).count()).collect();
    edited.bytes = spliced(file, &splices);
    Ok(edited)
}

/// Places one hunk where its lines occur once, after its anchor, or at the end of the file.
fn placed(file: &[u8], hunk: &Hunk, number: usize) -> Result<(Splice, Vec<String>)> {
    if hunk.old.is_empty() {
        let at = insertion(file, hunk, number)?;
        return Ok((Splice { from: at, to: at, text: with_line_ending(&hunk.new, file) }, Vec::new()));
    }
    let Some(found) = Found::of(file, &hunk.old, &hunk.new, true, false) else {
        return Err(fault(format!("hunk {number} does not match the file")).hint(COPY_IT));
    };
    let after_anchor = || {
        let from = found.file.position(anchored(file, &hunk.anchors)?);
        found.places.iter().find(|place| **place >= from)
    };
    let at_end = || {
        let rest = |place: &usize| found.file.text[found.end(*place)..].trim_ascii().is_empty();
        found.places.iter().rev().find(|place| hunk.at_end && rest(place))
    };
    let only = found.places.first().filter(|_| found.places.len() == 1);
    let Some(place) = only.or_else(after_anchor).or_else(at_end) else {
        let lines: Vec<usize> = found.places.iter().map(|place| found.line(*place)).collect();
        let places = listed(&lines, lines.len());
        return Err(fault(format!("the lines of hunk {number} occur {} times, at lines {places}", lines.len()))
            .with("lines", lines)
            .hint("give more unchanged lines around the change, so that they occur once"));
    };
    Ok((found.splice(*place, file), found.notes()))
}

/// The offset at which a hunk without old lines inserts its lines.
fn insertion(file: &[u8], hunk: &Hunk, number: usize) -> Result<usize> {
    if file.is_empty() || hunk.at_end {
        return Ok(file.len());
    }
    anchored(file, &hunk.anchors).ok_or_else(|| {
        fault(match hunk.anchors.join("`, `") {
            none if none.is_empty() => format!("hunk {number} has added lines only, and no place for them"),
            anchors => format!("the line `{anchors}` of hunk {number} does not occur once"),
        })
        .hint("give the unchanged lines before them too, each with a blank in front, or use insert_line")
    })
}

/// The offset after the line that the last anchor names, each anchor after the one before it; `None` unless the first
/// occurs once, and all occur.
fn anchored(file: &[u8], anchors: &[String]) -> Option<usize> {
    let mut from = 0;
    for (index, anchor) in anchors.iter().enumerate() {
        let (mut at, mut ends) = (from, Vec::new());
        for line in file[from..].split_inclusive(|byte| *byte == b'\n') {
            at += line.len();
            ends.extend((line.trim_ascii() == anchor.trim().as_bytes()).then_some(at));
        }
        from = *ends.first().filter(|_| index > 0 || ends.len() == 1)?;
    }
    (!anchors.is_empty()).then_some(from)
}

/// The hint about text that does not occur.
const COPY_IT: &str = "read the file, and copy the text exactly, with its blanks and ends of lines";

fn fault(message: impl Into<String>) -> Error {
    Error::validation(message).with("rule", "patch")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use similar::{ChangeTag, TextDiff};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]

        /// A patch makes the intended file, or is refused as ambiguous.
        #[test]
        fn patch_makes_intended_file_or_is_refused(
            before in "([abc ]{0,2}\n){1,12}([ab]{1,2})?", after in "([abcd ]{0,2}\n){1,12}", context in 0_usize..4, crlf: bool,
        ) {
            prop_assume!(!before.trim().is_empty());
            let diff = TextDiff::from_lines(&before, &after);
            let hunks: Vec<Hunk> = diff.grouped_ops(context).iter().map(|group| {
                let mut hunk = Hunk::default();
                for change in group.iter().flat_map(|step| diff.iter_changes(step)) {
                    let line = change.value().trim_end_matches('\n').to_owned() + "\n";
                    if change.tag() != ChangeTag::Insert { hunk.old += &line; }
                    if change.tag() != ChangeTag::Delete { hunk.new += &line; }
                }
                hunk
            }).collect();
            let varied = |text: &str| if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
            if let Ok(edited) = patched(varied(&before).as_bytes(), &hunks) {
                let made = String::from_utf8(edited.bytes).unwrap();
                let intended = varied(&after);
                prop_assert_eq!(made.trim_end(), intended.trim_end(), "{:?}", &hunks);
            }
        }

        /// A text that occurs once is replaced where it is, however the file ends its lines.
        #[test]
        fn unique_text_is_replaced_in_place(head in "[a-d\n]{0,20}", old in "[x-z]{1,3}(\n[x-z]{1,3}){0,3}", new in "[x-zé\n]{0,12}", tail in "[a-d\n]{0,20}", crlf: bool) {
            prop_assume!(old != new);
            let varied = |text: &str| if crlf { text.replace('\n', "\r\n") } else { text.to_owned() };
            let file = varied(&format!("{head}{old}{tail}"));
            prop_assume!(!crlf || file.contains("\r\n"));
            let edited = replaced(file.as_bytes(), &old, &new, false).unwrap();
            prop_assert_eq!(String::from_utf8(edited.bytes).unwrap(), varied(&format!("{head}{new}{tail}")));
        }
    }
}
