//! Edits of one file: [`replaced`] replaces either exactly one occurrence of a text or all of them, and [`patched`]
//! applies a unified diff exactly, each line at its stated position.

use cp_common::{Error, Result};
use memchr::memmem;

/// The most occurrences that an answer lists.
const PLACES: usize = 10;

/// The result of an edit.
#[derive(Debug)]
pub(super) struct Edited {
    pub bytes: Vec<u8>,
    /// The line of each change in the old file, from 1.
    pub lines: Vec<usize>,
    /// The number of changes.
    pub count: usize,
}

/// Replaces text. If the edit is ambiguous, the error describes how to make it unique.
pub(super) fn replaced(file: &[u8], old: &[u8], new: &[u8], all: bool) -> Result<Edited> {
    let fault = |message: String| Error::validation(message).with("rule", "old");
    if old.is_empty() {
        return Err(fault("old is empty".to_owned()).hint("give the text to replace; write_file makes a new file"));
    }
    if old == new {
        return Err(fault("old and new are the same: nothing would change".to_owned()));
    }
    let finder = memmem::Finder::new(old);
    let places: Vec<usize> = if all { finder.find_iter(file).collect() } else { every(&finder, file) };
    let lines = lines_of(file, &places);
    if places.is_empty() {
        return Err(fault("the old text does not occur in the file".to_owned()).hint(mismatch_hint(file, old)));
    }
    if places.len() > 1 && !all {
        let listed = lines.iter().map(usize::to_string).collect::<Vec<_>>().join(", ");
        let more = if places.len() > PLACES { ", …" } else { "" };
        let times = if places.len() > PLACES { format!("more than {PLACES}") } else { places.len().to_string() };
        return Err(fault(format!("the old text occurs {times} times, at lines {listed}{more}"))
            .with("lines", lines)
            .hint("give more of the surrounding text, or all=true to replace every occurrence"));
    }
    let mut bytes = Vec::with_capacity(file.len() + new.len() * places.len());
    let mut end = 0;
    for place in &places {
        bytes.extend_from_slice(&file[end..*place]);
        bytes.extend_from_slice(new);
        end = place + old.len();
    }
    bytes.extend_from_slice(&file[end..]);
    Ok(Edited { bytes, lines, count: places.len() })
}

/// Every occurrence, including overlapping ones, because each of them would be a different edit. Stops after one more
/// than the limit.
fn every(finder: &memmem::Finder<'_>, file: &[u8]) -> Vec<usize> {
    let mut places = Vec::new();
    let mut from = 0;
    while let Some(found) = file.get(from..).and_then(|rest| finder.find(rest)).filter(|_| places.len() <= PLACES) {
        places.push(from + found);
        from += found + 1;
    }
    places
}

/// The line numbers of the first occurrences, from 1.
fn lines_of(file: &[u8], places: &[usize]) -> Vec<usize> {
    let (mut line, mut from) = (1, 0);
    let of = |place: &usize| {
        line += memchr::memchr_iter(b'\n', &file[from..*place]).count();
        from = *place;
        line
    };
    places.iter().take(PLACES).map(of).collect()
}

/// A hint about text that does not occur.
fn mismatch_hint(file: &[u8], old: &[u8]) -> String {
    let crlf = String::from_utf8_lossy(old).replace("\r\n", "\n").replace('\n', "\r\n");
    if memmem::find(file, crlf.as_bytes()).is_some() {
        return r"the lines of this file end in \r\n: write that in old and new".to_owned();
    }
    let trimmed = |line: &[u8]| line.trim_ascii().to_vec();
    let first = old.split(|byte| *byte == b'\n').map(trimmed).find(|line| !line.is_empty()).unwrap_or_default();
    let found =
        (1..).zip(file.split(|byte| *byte == b'\n')).find(|(_, line)| !first.is_empty() && line.trim_ascii() == first);
    match found {
        Some((number, _)) => {
            format!("line {number} is like its first line: compare blanks and what follows, and copy the text exactly")
        }
        None => "read the file, and copy the text exactly, with its blanks and ends of lines".to_owned(),
    }
}

/// A run of lines with its replacement.
struct Hunk {
    /// The index of its first line.
    at: usize,
    old: Vec<Vec<u8>>,
    new: Vec<Vec<u8>>,
}

/// The file with a patch applied.
pub(super) fn patched(file: &[u8], patch: &str) -> Result<Edited> {
    let hunks = hunks(patch)?;
    let lines: Vec<&[u8]> = file.split_inclusive(|byte| *byte == b'\n').collect();
    let (mut bytes, mut end, mut places) = (Vec::with_capacity(file.len()), 0, Vec::new());
    for (number, hunk) in (1..).zip(&hunks) {
        let found = lines.get(hunk.at..hunk.at + hunk.old.len()).filter(|_| hunk.at >= end);
        if found.is_none_or(|found| found != hunk.old) {
            return Err(misplaced(number, hunk, &lines));
        }
        for line in lines[end..hunk.at].iter().copied().chain(hunk.new.iter().map(Vec::as_slice)) {
            append(&mut bytes, line)?;
        }
        end = hunk.at + hunk.old.len();
        places.push(hunk.at + 1);
    }
    for line in &lines[end..] {
        append(&mut bytes, line)?;
    }
    if bytes == file {
        return Err(fault("the patch changes nothing"));
    }
    Ok(Edited { bytes, lines: places, count: hunks.len() })
}

/// Appends a line. Only the last line may lack a newline.
fn append(bytes: &mut Vec<u8>, line: &[u8]) -> Result<()> {
    if bytes.last().is_some_and(|last| *last != b'\n') {
        return Err(fault("a line without a newline would no longer be the last")
            .hint("remove that line and add it with its newline, marked as diff does"));
    }
    bytes.extend_from_slice(line);
    Ok(())
}

/// The error for a hunk that does not match: the position of its lines, or the first line that differs.
fn misplaced(number: usize, hunk: &Hunk, lines: &[&[u8]]) -> Error {
    let at = hunk.at + 1;
    let error = fault(format!("hunk {number} does not match the file at line {at}"));
    let mut places = lines.windows(hunk.old.len().max(1)).enumerate().filter(|(_, found)| *found == hunk.old);
    match (places.next(), places.next()) {
        (Some((place, _)), None) if place != hunk.at => error.hint(format!("its lines are at line {}", place + 1)),
        _ => {
            let differs = (at..).zip(&hunk.old).find(|(line, old)| lines.get(line - 1) != Some(&old.as_slice()));
            let line = differs.map_or(at, |(line, _)| line);
            error.hint(format!("line {line} differs; read the file, and make the patch from what it holds"))
        }
    }
}

fn hunks(patch: &str) -> Result<Vec<Hunk>> {
    let mut hunks: Vec<Hunk> = Vec::new();
    let mut lines = (1..).zip(patch.split_inclusive('\n')).peekable();
    while let Some((number, line)) = lines.next() {
        let Some(header) = line.strip_prefix("@@ ") else {
            if hunks.is_empty() || line.trim().is_empty() {
                // The lines before the first hunk name the file, which the request names already.
                continue;
            }
            return Err(fault(format!("line {number} of the patch belongs to no hunk"))
                .hint("a patch is for one file; check the counts in the line @@ before it"));
        };
        let (start, mut old_left, mut new_left) = counts(header)
            .ok_or_else(|| fault(format!("line {number} of the patch is not `@@ -LINE,COUNT +LINE,COUNT @@`")))?;
        // Lines inserted after line N start at N + 1.
        let at = if old_left == 0 { start } else { start.saturating_sub(1) };
        let mut hunk = Hunk { at, old: Vec::new(), new: Vec::new() };
        while old_left + new_left > 0 {
            let Some((number, line)) = lines.next() else {
                return Err(fault(format!(
                    "the last hunk ends before its counts: {old_left} old and {new_left} new lines are missing"
                )));
            };
            let (kind, text) = match line.as_bytes() {
                // A blank line that lost its leading space.
                blank @ ([b'\n'] | [b'\r', b'\n']) => (b' ', blank),
                [kind @ (b' ' | b'-' | b'+'), text @ ..] => (*kind, text),
                _ => return Err(fault(format!("line {number} of the patch begins with none of ` `, `-` and `+`"))),
            };
            let mut text = text.to_vec();
            if !text.ends_with(b"\n") {
                text.push(b'\n');
            }
            if lines.peek().is_some_and(|(_, next)| next.starts_with('\\')) {
                lines.next();
                text.pop();
            }
            let short = || fault(format!("line {number} of the patch is more than the counts of its hunk say"));
            if kind != b'+' {
                old_left = old_left.checked_sub(1).ok_or_else(short)?;
                hunk.old.push(text.clone());
            }
            if kind != b'-' {
                new_left = new_left.checked_sub(1).ok_or_else(short)?;
                hunk.new.push(text);
            }
        }
        hunks.push(hunk);
    }
    if hunks.is_empty() {
        return Err(fault("the patch has no hunk").hint("a hunk begins with `@@ -LINE,COUNT +LINE,COUNT @@`"));
    }
    Ok(hunks)
}

/// The first old line, and the numbers of old and new lines.
fn counts(header: &str) -> Option<(usize, usize, usize)> {
    let (ranges, _) = header.split_once(" @@")?;
    let (old, new) = ranges.strip_prefix('-')?.split_once(" +")?;
    let range = |text: &str| match text.split_once(',') {
        None => Some((text.parse().ok()?, 1)),
        Some((start, count)) => Some((start.parse().ok()?, count.parse().ok()?)),
    };
    let ((start, old), (_, new)) = (range(old)?, range(new)?);
    // No file has more lines, and sums cannot overflow.
    let sane = |number: usize| number <= 1 << 40;
    (sane(start) && sane(old) && sane(new)).then_some((start, old, new))
}

fn fault(message: impl Into<String>) -> Error {
    Error::validation(message).with("rule", "patch")
}

#[cfg(test)]
mod tests {
    use super::{patched, replaced};

    fn edit(file: &str, old: &str, new: &str, all: bool) -> Result<(String, Vec<usize>), (String, String)> {
        replaced(file.as_bytes(), old.as_bytes(), new.as_bytes(), all)
            .map(|edited| (String::from_utf8(edited.bytes).unwrap(), edited.lines))
            .map_err(|e| (e.message().to_owned(), e.hint_text().unwrap_or_default().to_owned()))
    }

    #[test]
    fn replace_one_occurrence_or_all() {
        assert_eq!(edit("a\nb\nc", "b", "B\n", false).unwrap(), ("a\nB\n\nc".to_owned(), vec![2]));
        assert_eq!(edit("x x\nx", "x", "", true).unwrap(), (" \n".to_owned(), vec![1, 1, 2]));
    }

    #[test]
    fn replace_ambiguous_text_fails_with_lines() {
        assert!(edit("aaa", "aa", "b", false).unwrap_err().0.contains("occurs 2 times, at lines 1, 1"));
        assert_eq!(edit("aaa", "aa", "b", true).unwrap().0, "ba");
        let many = "x\n".repeat(50);
        let (message, _) = edit(&many, "x", "y", false).unwrap_err();
        assert!(message.contains("more than 10 times, at lines 1, 2") && message.ends_with('…'), "{message}");
    }

    #[test]
    fn replace_missing_text_fails_with_hint() {
        assert!(edit("a\r\nb\r\n", "a\nb", "c", false).unwrap_err().1.contains(r"\r\n"));
        assert!(edit("x\n    y\n", "\ty\n", "c", false).unwrap_err().1.starts_with("line 2"));
        assert!(edit("x", "y", "c", false).unwrap_err().1.starts_with("read the file"));
        assert!(edit("x", "", "c", true).is_err() && edit("x", "x", "x", false).is_err());
    }

    fn apply(file: &str, patch: &str) -> Result<String, (String, String)> {
        patched(file.as_bytes(), patch)
            .map(|edited| String::from_utf8(edited.bytes).unwrap())
            .map_err(|e| (e.message().to_owned(), e.hint_text().unwrap_or_default().to_owned()))
    }

    #[test]
    fn patch_hunks_apply_at_stated_lines() {
        let patch = "--- a/f\n+++ b/f\n@@ -1,2 +1,3 @@ fn x\n a\n+new\n b\n@@ -4 +5,0 @@\n-d\n";
        assert_eq!(apply("a\nb\nc\nd\n", patch).unwrap(), "a\nnew\nb\nc\n");
        assert_eq!(apply("", "@@ -0,0 +1,2 @@\n+x\n+y\n").unwrap(), "x\ny\n");
        assert_eq!(apply("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n").unwrap(), "a\nb\n");
        assert_eq!(apply("a\r\n", "@@ -1 +1 @@\n-a\r\n+b\r\n").unwrap(), "b\r\n");
        assert_eq!(apply("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c").unwrap(), "a\n\nc\n");
    }

    #[test]
    fn patch_with_fuzz_fails() {
        let (message, hint) = apply("x\na\n", "@@ -1 +1 @@\n-a\n+b\n").unwrap_err();
        assert!(message.contains("hunk 1 does not match the file at line 1") && hint.contains("at line 2"), "{hint}");
        assert!(apply("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-c\n+d\n").unwrap_err().1.starts_with("line 2 differs"));
        assert!(apply("b", "@@ -1 +1 @@\n-b\n+c\n").is_err(), "the end of the last line is part of it");
        assert!(apply("a", "@@ -1,0 +2 @@\n+b\n").unwrap_err().0.contains("without a newline"));
        assert!(apply("a\n", "@@ -1 +1 @@\n a\n").unwrap_err().0.contains("changes nothing"));
    }

    #[test]
    fn patch_for_several_files_or_invalid_fails() {
        for patch in [
            "",
            "a\n",
            "@@ -x +1 @@\n-a\n",
            "@@ -1,2 +1 @@\n-a\n",
            "@@ -1 +1 @@\n-a\n+b\n--- a/other\n+++ b/other\n@@ -1 +1 @@\n-a\n+b\n",
            "@@ -1 +1 @@\n*a\n+b\n",
            "@@ -1,0 +1 @@\n-a\n+b\n",
            "@@ -99999999999999999999 +1 @@\n-a\n+b\n",
        ] {
            assert!(apply("a\n", patch).is_err(), "{patch}");
        }
    }
}
