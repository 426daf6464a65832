//! Replaces text of a file, either exactly one occurrence or all of them.

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

#[cfg(test)]
mod tests {
    use super::replaced;

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
}
