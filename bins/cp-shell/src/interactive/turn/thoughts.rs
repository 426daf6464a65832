//! Shows an answer while it arrives. On a terminal whose cursor can move, rendered blocks of Markdown replace the raw text, and the newest
//! lines of the model's reasoning are shown until the answer begins.

use std::time::Instant;

use pulldown_cmark::{Event, Parser};
use unicode_width::UnicodeWidthChar as _;

use crate::interactive::console::markdown::{OPTIONS, lines_of, rendered};
use crate::interactive::console::render::{Page, Style, count, escaped};

/// The part of an answer that was shown.
pub(super) struct Flow {
    style: Style,
    page: Option<Page>,
    /// The raw text that was shown and not yet rendered.
    raw: String,
}

impl Flow {
    pub(super) fn new(style: Style, page: Option<Page>) -> Self {
        Self { style, page, raw: String::new() }
    }

    /// Returns the output for more text.
    pub(super) fn add(&mut self, words: &str) -> String {
        let mut shown = escaped(words);
        if self.page.is_none() {
            return shown;
        }
        self.raw.push_str(words);
        if let Some(end) = complete(&self.raw) {
            let rest = self.raw.split_off(end);
            let block = std::mem::replace(&mut self.raw, rest);
            if let Some(over) = self.drawn_over(&block, &format!("{block}{}", self.raw)) {
                shown.push_str(&over);
                shown.push('\n');
                shown.push_str(&escaped(&self.raw));
            }
        }
        shown
    }

    /// Returns the output at the end, or before other text is shown.
    pub(super) fn end(&mut self) -> String {
        let block = std::mem::take(&mut self.raw);
        if block.trim().is_empty() {
            return String::new();
        }
        match self.drawn_over(&block, &block) {
            Some(over) => over,
            None if block.ends_with('\n') || self.page.is_none() => String::new(),
            None => "\n".to_owned(),
        }
    }

    /// Returns the output that replaces the raw text with the rendered block; `None` if it looks the same, or has scrolled off the
    /// terminal.
    fn drawn_over(&self, block: &str, shown: &str) -> Option<String> {
        let page = self.page?;
        let drawn = rendered(block, self.style);
        let plain = escaped(block);
        let rows = rows_of(&escaped(shown), self.style.width);
        if drawn.trim_end() == plain.trim_end() && rows == rows_of(&plain, self.style.width) || rows >= page.rows {
            return None;
        }
        let up = if rows > 1 { format!("\x1b[{}A", rows - 1) } else { String::new() };
        Some(format!("\r{up}\x1b[J{drawn}"))
    }
}

/// The number of terminal rows that a text takes.
fn rows_of(text: &str, width: usize) -> usize {
    let mut rows = 1;
    let mut column = 0;
    for letter in text.chars() {
        let columns = letter.width().unwrap_or(0);
        if letter == '\n' {
            (rows, column) = (rows + 1, 0);
        } else if column + columns > width {
            (rows, column) = (rows + 1, columns);
        } else {
            column += columns;
        }
    }
    rows
}

/// The end of the last complete block of Markdown: the beginning of the line on which the last block begins.
fn complete(text: &str) -> Option<usize> {
    let (mut depth, mut last) = (0_usize, 0);
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        if depth == 0 {
            last = range.start;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    text[..last].rfind('\n').map(|end| end + 1)
}

/// The number of lines of reasoning that are shown.
const LINES: usize = 6;
/// The maximum number of bytes for each column.
const LONGEST_LETTER: usize = 4;

pub(super) struct Thoughts {
    style: Style,
    since: Instant,
    words: usize,
    /// True if the last word may continue.
    in_word: bool,
    /// The end of the reasoning.
    newest: String,
    /// The number of lines on the terminal.
    shown: usize,
}

impl Thoughts {
    pub(super) fn new(style: Style) -> Self {
        Self { style, since: Instant::now(), words: 0, in_word: false, newest: String::new(), shown: 0 }
    }

    /// Returns the output for more reasoning, with the cursor below the shown lines.
    pub(super) fn add(&mut self, more: &str, rows: usize) -> String {
        for letter in more.chars() {
            let in_word = !letter.is_whitespace();
            self.words += usize::from(in_word && !self.in_word);
            self.in_word = in_word;
        }
        self.newest.push_str(more);
        let width = self.style.width.saturating_sub(1).max(1);
        let kept = self.newest.len().saturating_sub(LINES * width * LONGEST_LETTER);
        self.newest.drain(..self.newest.ceil_char_boundary(kept));
        let lines = lines_of(&self.newest.trim_end().replace('\t', " "), width);
        let mut shown = self.erased();
        for line in lines.iter().skip(lines.len().saturating_sub(LINES.min(rows.saturating_sub(2)))) {
            shown.push_str(&self.style.faint(line.trim_end()));
            shown.push('\n');
            self.shown += 1;
        }
        shown
    }

    /// Returns the output that erases the shown lines.
    fn erased(&mut self) -> String {
        match std::mem::take(&mut self.shown) {
            0 => String::new(),
            lines => format!("\r\x1b[{lines}A\x1b[J"),
        }
    }

    /// The duration and length of the reasoning.
    pub(super) fn so_far(&self) -> String {
        format!("{} s, {}", self.since.elapsed().as_secs(), count(self.words, "word"))
    }

    /// Returns the output that replaces the shown lines with a summary.
    pub(super) fn fold(mut self) -> String {
        let line = self.style.faint(&format!("thought for {}", self.so_far()));
        format!("{}{line}\n", self.erased())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_is_complete_when_next_block_begins() {
        for (text, end) in [
            ("one\n\n", None),
            ("one\n\ntwo", Some(5)),
            ("- a\n\n  more of a", None),
            ("```\na\n\nb", None),
            ("```\na\n\nb\n```\n\nc", Some(14)),
            ("a\n\n```\nb\n\nc", Some(3)),
        ] {
            assert_eq!(complete(text), end, "{text:?}");
        }
    }

    #[test]
    fn row_count_matches_terminal_wrapping() {
        assert_eq!(rows_of("abc", 3), 1);
        assert_eq!(rows_of("abcd\n", 3), 3);
        assert_eq!(rows_of("日本語", 5), 2);
    }

    #[test]
    fn flow_renders_complete_blocks() {
        let style = Style { width: 40, colour: true };
        let mut flow = Flow::new(style, Some(Page { rows: 24 }));
        assert_eq!(flow.add("some **bo"), "some **bo");
        assert_eq!(flow.add("ld**\n\nne"), "ld**\n\nne\r\x1b[2A\x1b[Jsome \x1b[1mbold\x1b[0m\n\nne");
        assert_eq!(flow.add("xt"), "xt");
        assert_eq!(flow.end(), "\n");
        let mut plain = Flow::new(style, None);
        assert_eq!((plain.add("**a**\n\nb"), plain.end()), ("**a**\n\nb".to_owned(), String::new()));
        // Text that has scrolled off cannot be replaced.
        let mut small = Flow::new(style, Some(Page { rows: 2 }));
        assert_eq!(small.add("**a**\n\nb"), "**a**\n\nb");
    }

    #[test]
    fn thoughts_show_newest_lines_then_summary() {
        let mut thoughts = Thoughts::new(Style { width: 11, colour: false });
        assert_eq!(thoughts.add("one two thr", 24), "one two\nthr\n");
        assert_eq!(thoughts.add("ee 日本語日本語", 24), "\r\x1b[2A\x1b[Jone two\nthree\n日本語日本\n語\n");
        let last = thoughts.add("\n1\n2\n3\n4\n5\n6\x1b[31m\n", 24);
        assert_eq!(last, "\r\x1b[4A\x1b[J1\n2\n3\n4\n5\n6^[[31m\n");
        assert_eq!(thoughts.fold(), "\r\x1b[6A\x1b[Jthought for 0 s, 10 words\n");
        // A page of four lines has room for two.
        assert_eq!(Thoughts::new(Style { width: 11, colour: false }).add("1\n2\n3", 4), "2\n3\n");
    }
}
