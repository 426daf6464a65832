//! Edits of text: finds the text of an edit in a file, and replaces it. Parses the patch of `*** Begin Patch`.
//!
//! Text that does not occur as it is given is searched with the other line endings, and then as whole lines without
//! the blanks at their ends. Unchanged lines keep the bytes of the file, and new lines get its line ending.

use std::time::{Duration, Instant};

use cp_common::{Error, Result};
use memchr::memmem;
use similar::{Algorithm, DiffOp, capture_diff_slices_deadline};

/// The most occurrences that an error lists.
const PLACES: usize = 10;
/// Time after which the comparison of old and new text is less detailed.
const PATIENCE: Duration = Duration::from_secs(1);
/// The hint about text that does not occur.
const COPY_IT: &str = "read the file, and copy the text exactly, with its blanks and ends of lines";

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

/// A part of a file and its replacement.
struct Splice {
    from: usize,
    to: usize,
    text: Vec<u8>,
}

/// The file with the replacements, which are in order.
fn spliced(file: &[u8], splices: &[Splice]) -> Vec<u8> {
    let (mut edited, mut end) = (Vec::with_capacity(file.len()), 0);
    for Splice { from, to, text } in splices {
        edited.extend_from_slice(&file[end..*from]);
        edited.extend_from_slice(text);
        end = *to;
    }
    edited.extend_from_slice(&file[end..]);
    edited
}

fn newlines(bytes: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', bytes).count()
}

/// True if most lines end with CRLF.
fn is_crlf(file: &[u8]) -> bool {
    2 * memmem::find_iter(file, b"\r\n").count() > newlines(file)
}

fn with_ending(text: &str, is_crlf: bool) -> String {
    let text = text.replace("\r\n", "\n");
    if is_crlf { text.replace('\n', "\r\n") } else { text }
}

/// The lines of a file.
struct Lines<'a> {
    all: Vec<&'a [u8]>,
    /// The offset of each line, and of the end.
    starts: Vec<usize>,
    /// True if most lines end with CRLF.
    is_crlf: bool,
}

impl<'a> Lines<'a> {
    fn of(file: &'a [u8]) -> Self {
        let mut end = if file.starts_with("\u{feff}".as_bytes()) { 3 } else { 0 };
        let lines: Vec<&[u8]> = file[end..].split_inclusive(|byte| *byte == b'\n').collect();
        let mut starts = vec![end];
        for line in &lines {
            end += line.len();
            starts.push(end);
        }
        Self { all: lines, starts, is_crlf: is_crlf(file) }
    }

    /// The places of successive lines, as they are but for the line endings, otherwise without blanks at their ends.
    fn find(&self, old: &[&str]) -> Vec<usize> {
        let is_blank = old.iter().all(|line| line.trim().is_empty());
        let ignored = [&b"\r\n"[..], b" \t\r\n"].into_iter().take(if is_blank { 1 } else { 2 });
        let places = |ignored: &[u8]| {
            let old: Vec<&[u8]> = old.iter().map(|line| without_end(line.as_bytes(), ignored)).collect();
            let is_here =
                |at: &usize| self.all[*at..].iter().zip(&old).all(|(line, old)| without_end(line, ignored) == *old);
            (0..(self.all.len() + 1).saturating_sub(old.len())).filter(is_here).collect()
        };
        ignored.map(places).find(|places: &Vec<usize>| !places.is_empty()).unwrap_or_default()
    }

    /// The line after the last anchor, each anchor after the one before it; `None` unless the first occurs once, and
    /// all occur.
    fn after(&self, anchors: &[String]) -> Option<usize> {
        let mut from = 0;
        for (index, anchor) in anchors.iter().enumerate() {
            let is_anchor = |at: &usize| self.all[*at].trim_ascii() == anchor.trim().as_bytes();
            let mut found = (from..self.all.len()).filter(is_anchor);
            from = found.next()? + 1;
            if index == 0 && found.next().is_some() {
                return None;
            }
        }
        (!anchors.is_empty()).then_some(from)
    }

    /// The replacement of lines at a place.
    fn splice(&self, place: usize, old: &str, new: &str) -> Splice {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (old.split_inclusive('\n').collect(), new.split_inclusive('\n').collect());
        let mut text = Vec::new();
        for step in capture_diff_slices_deadline(Algorithm::Myers, &old, &new, Some(Instant::now() + PATIENCE)) {
            if let DiffOp::Equal { old_index, len, .. } = step {
                text.extend(self.all[place + old_index..][..len].concat());
            } else {
                text.extend(with_ending(&new[step.new_range()].concat(), self.is_crlf).into_bytes());
            }
        }
        Splice { from: self.starts[place], to: self.starts[place + old.len()], text }
    }
}

fn without_end<'a>(mut line: &'a [u8], ignored: &[u8]) -> &'a [u8] {
    while let Some((_, rest)) = line.split_last().filter(|(last, _)| ignored.contains(last)) {
        line = rest;
    }
    line
}

/// The result of an edit of a file whose last line ends with a newline. If it lacks one, it lacks it afterwards too.
fn whole_lines(file: &[u8], edit: impl FnOnce(&[u8]) -> Result<Vec<Splice>>) -> Result<Vec<u8>> {
    if file.is_empty() || file.ends_with(b"\n") {
        return Ok(spliced(file, &edit(file)?));
    }
    let padding = with_ending("\n", is_crlf(file)).into_bytes();
    let padded = [file, &padding].concat();
    let mut edited = spliced(&padded, &edit(&padded)?);
    if edited.ends_with(&padding) {
        edited.truncate(edited.len() - padding.len());
    }
    Ok(edited)
}

/// Replaces one occurrence of a text, or all. If the edit is ambiguous, the error describes how to make it unique.
pub(super) fn replaced(file: &[u8], old: &str, new: &str, all: bool) -> Result<Vec<u8>> {
    let fault = |message: &str| Error::validation(message).with("rule", "old");
    if old == new {
        return Err(fault("old and new are the same: nothing would change"));
    }
    whole_lines(file, |file| {
        let splices = occurrences(file, old, new, all);
        if splices.is_empty() {
            return Err(fault("the old text does not occur in the file").hint(COPY_IT));
        }
        if splices.len() > 1 && !all {
            let places = splices.iter().map(|splice| splice.from);
            return Err(ambiguous("old", "the old text occurs", file, places)
                .hint("give more of the surrounding text, or all=true to replace every occurrence"));
        }
        Ok(splices)
    })
}

/// The replacements of a text. Overlapping occurrences count unless all are replaced, because each of them would be a
/// different edit.
fn occurrences(file: &[u8], old: &str, new: &str, all: bool) -> Vec<Splice> {
    let own = if is_crlf(file) { with_ending(new, true) } else { new.to_owned() };
    let with = |is_crlf| (with_ending(old, is_crlf), with_ending(new, is_crlf));
    let exact = |(old, new): (String, String)| {
        let (finder, mut from) = (memmem::Finder::new(&old), 0);
        let next = std::iter::from_fn(|| {
            let at = from + finder.find(file.get(from..)?)?;
            from = at + if all { old.len() } else { 1 };
            Some(Splice { from: at, to: at + old.len(), text: new.clone().into_bytes() })
        });
        next.take(if all { usize::MAX } else { PLACES + 1 }).collect()
    };
    let forms = [(old.to_owned(), own), with(false), with(true)];
    if let Some(splices) = forms.into_iter().map(exact).find(|splices: &Vec<Splice>| !splices.is_empty()) {
        return splices;
    }
    let end = if old.ends_with('\n') { "" } else { "\n" };
    let (old, new) = (format!("{old}{end}"), format!("{new}{end}"));
    let lines = Lines::of(file);
    let places = lines.find(&old.split_inclusive('\n').collect::<Vec<_>>());
    let mut splices: Vec<Splice> = places.into_iter().map(|place| lines.splice(place, &old, &new)).collect();
    splices.dedup_by(|next, last| all && next.from < last.to);
    splices
}

/// The error for a text that occurs at several places.
fn ambiguous(rule: &str, what: &str, file: &[u8], places: impl Iterator<Item = usize>) -> Error {
    let lines: Vec<usize> = places.take(PLACES + 1).map(|place| 1 + newlines(&file[..place])).collect();
    let times = if lines.len() > PLACES { format!("more than {PLACES}") } else { lines.len().to_string() };
    let shown: Vec<String> = lines.iter().map(usize::to_string).collect();
    Error::validation(format!("{what} {times} times, at lines {}", shown.join(", ")))
        .with("rule", rule)
        .with("lines", lines)
}

/// The file with the hunks of a patch applied, each where its lines are.
pub(super) fn patched(file: &[u8], hunks: &[Hunk]) -> Result<Vec<u8>> {
    whole_lines(file, |file| {
        let lines = Lines::of(file);
        let splice = |(number, hunk): (usize, &Hunk)| {
            let place = place_of(hunk, number, &lines, file)?;
            Ok(lines.splice(place, &hunk.old, &hunk.new))
        };
        let mut splices = (1..).zip(hunks).map(splice).collect::<Result<Vec<_>>>()?;
        splices.sort_by_key(|splice| splice.from);
        if splices.windows(2).any(|pair| pair[1].from < pair[0].to) {
            return Err(fault("two hunks of the patch change the same lines").hint("join them into one hunk"));
        }
        Ok(splices)
    })
}

/// The line of a hunk: where its lines occur once, after its anchor, or at the end of the file.
fn place_of(hunk: &Hunk, number: usize, lines: &Lines<'_>, file: &[u8]) -> Result<usize> {
    let after = lines.after(&hunk.anchors);
    if hunk.old.is_empty() {
        let end = (file.is_empty() || hunk.at_end).then_some(lines.all.len());
        return end.or(after).ok_or_else(|| {
            fault(match hunk.anchors.join("`, `") {
                none if none.is_empty() => format!("hunk {number} has added lines only, and no place for them"),
                anchors => format!("the line `{anchors}` of hunk {number} does not occur once"),
            })
            .hint("give the unchanged lines before them too, each with a blank in front")
        });
    }
    let old: Vec<&str> = hunk.old.split_inclusive('\n').collect();
    let places = lines.find(&old);
    let is_at_end = |place: usize| lines.all[place + old.len()..].iter().all(|line| line.trim_ascii().is_empty());
    let after_anchor = || places.iter().find(|place| after.is_some_and(|after| **place >= after));
    let at_end = || places.iter().rev().find(|place| hunk.at_end && is_at_end(**place));
    match &places[..] {
        [] => Err(fault(format!("hunk {number} does not match the file")).hint(COPY_IT)),
        [only] => Ok(*only),
        all => after_anchor().or_else(at_end).copied().ok_or_else(|| {
            let starts = all.iter().map(|place| lines.starts[*place]);
            ambiguous("patch", &format!("the lines of hunk {number} occur"), file, starts)
                .hint("give more unchanged lines around the change, so that they occur once")
        }),
    }
}

fn fault(message: impl Into<String>) -> Error {
    Error::validation(message).with("rule", "patch")
}

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
    let fault = |message: String| fault(message).hint(HINT);
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
                let made = String::from_utf8(edited).unwrap();
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
            prop_assert_eq!(String::from_utf8(edited).unwrap(), varied(&format!("{head}{new}{tail}")));
        }
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(
            text in "(@@|-|\\+| |\n|a|\\*\\*\\* |Begin Patch|End Patch|Update File: |Add File: |End of File|```|\\\\|é){0,40}"
        ) {
            let _ = parse(&text);
        }
    }
}
