//! Columns: the head of a table, or of the rows of `INSERT`, names what the cells below it contain.

use std::ops::Range;

use memchr::memchr;

use crate::Secret;
use crate::words::name::Name;
use crate::words::scan::{Quote, is_line_end, is_line_start, is_token, line_before, white};
use crate::words::value::{is_bare_secret, is_drawn, is_quoted_secret};

/// Maximum length of the rest of a name, which keeps long words of data cheap.
const LONGEST_REST: usize = 12;
/// Maximum length of a head before and after a name.
const LONGEST_HEAD: usize = 512;
/// Maximum length of the rows.
const LONGEST: usize = 64 << 10;

/// Returns the secrets in the column whose head has a name around this offset.
pub(crate) fn cells(text: &[u8], inside: usize) -> Option<Vec<Secret>> {
    let next = text[inside..].iter().take(LONGEST_REST).find(|byte| !is_token(**byte))?;
    let name = b",)]\"'`\\".contains(next).then(|| Name::around(text, inside))??;
    let near = &text[..text.len().min(name.at.end + LONGEST_HEAD)];
    let rows = memchr(b')', &near[name.at.end..]).and_then(|end| values(near, name.at.end + end + 1));
    let is_list = rows.is_some();
    let before = if is_list {
        &text[name.at.start.saturating_sub(LONGEST_HEAD)..name.at.start]
    } else {
        line_before(text, name.at.start)
    };
    let opens =
        |at: &usize| if is_list { before[*at] == b'(' } else { before[*at] == b'"' && !before[..*at].ends_with(b"\\") };
    let start = (0..before.len()).rev().find(opens).map_or(0, |at| at + 1);
    let from = name.at.start - before.len() + start;
    (is_list || is_line_start(text, from)).then_some(())?;
    let (head, end) = row(near, from, is_list)?;
    let column = head.iter().position(|cell| cell.contains(&name.at.start))?;
    // In code a blank follows each comma.
    let is_apart = |cell: &Range<usize>| is_list || !text[cell.clone()].starts_with(b" ");
    let is_name =
        |cell: &Range<usize>| text[cell.clone()].iter().all(|byte| is_token(*byte) || b" .[]\\".contains(byte));
    if head.len() < 2 || !head.iter().all(|cell| is_apart(cell) && is_name(cell)) {
        return None;
    }
    let text = &text[..text.len().min(end + LONGEST)];
    let (mut at, mut found) = (rows.unwrap_or(end), Vec::new());
    loop {
        for sign in [b')', b',', b'('] {
            at += white(text, at);
            at += usize::from(is_list && text.get(at) == Some(&sign));
        }
        let row = if is_list && !text[..at].ends_with(b"(") { None } else { row(text, at, is_list) };
        let Some((cells, end)) = row.filter(|(cells, _)| cells.len() == head.len()) else { return Some(found) };
        let (cell, value) = (cells[column].clone(), &text[cells[column].clone()]);
        let is_secret = if is_list {
            Quote::at(text, cell.end).is_some() && is_quoted_secret(value, name.kind)
        } else {
            !value.contains(&b' ')
                && (value.len() >= 20 || is_drawn(value, name.kind))
                && is_bare_secret(value, name.kind, None)
        };
        found.extend(is_secret.then_some(Secret { at: cell, rule: "assignment" }));
        at = end;
    }
}

/// Returns the offset after the word between the head and the rows.
fn values(text: &[u8], at: usize) -> Option<usize> {
    let at = at + white(text, at);
    text.get(at..at + 6)?.eq_ignore_ascii_case(b"values").then_some(at + 6)
}

/// Returns the cells of the row that begins here, without the quotes around them, and its end: a parenthesis, or the
/// end of its line.
fn row(text: &[u8], from: usize, is_list: bool) -> Option<(Vec<Range<usize>>, usize)> {
    let (mut cells, mut at) = (Vec::new(), from);
    loop {
        at += if is_list { white(text, at) } else { 0 };
        let quote = Quote::at(text, at).filter(|quote| !quote.is_of_json()).map_or(0, Quote::length);
        let end = cell_end(text, at, is_list)?;
        // Blanks, a line end or a type may follow the closing quote.
        let mark = text[at..end].get(quote.wrapping_sub(1)).and_then(|mark| memchr::memrchr(*mark, &text[at..end]));
        cells.push(at + quote..mark.map_or(end, |mark| at + (mark + 1).max(2 * quote) - quote));
        match text.get(end)? {
            b',' => at = end + 1,
            b')' if is_list => return Some((cells, end)),
            _ => return (!is_list && is_line_end(text, end)).then_some((cells, end)),
        }
    }
}

/// Returns the end of the cell that begins here. A cell of a list may be a call with arguments of its own.
fn cell_end(text: &[u8], from: usize, is_list: bool) -> Option<usize> {
    let (mut at, mut depth, mut is_quoted) = (from, 0_u32, true);
    loop {
        let quote = Quote::at(text, at).filter(|quote| (is_list || is_quoted) && !quote.is_of_json());
        is_quoted = quote.is_some();
        if let Some(quote) = quote {
            // A quote that is doubled is a part of the cell.
            at = quote.closing(text, at + quote.length())? + quote.length();
            continue;
        }
        match *text.get(at)? {
            b'(' if is_list => depth += 1,
            b')' if depth > 0 => depth -= 1,
            b')' if is_list => return Some(at),
            b'"' => return Some(at),
            b',' if depth == 0 => return Some(at),
            b'\\' if !is_list => return Some(at),
            _ => {}
        }
        at += 1;
    }
}
