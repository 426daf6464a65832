//! Shows the newest lines of the reasoning of a model until its answer begins.

use std::time::Instant;

use crate::interactive::console::render::{Style, count};
use crate::interactive::console::wrap::lines_of;

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
