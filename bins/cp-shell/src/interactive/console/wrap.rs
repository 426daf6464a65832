//! Renders Markdown for the terminal: blocks are wrapped at words, and weight and colour replace the marks. Links are shown with their URL,
//! and control characters are escaped.

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};
use unicode_width::UnicodeWidthStr as _;

use super::render::{Style, escaped, table};

/// The extensions of Markdown.
pub(crate) const OPTIONS: Options =
    Options::ENABLE_TABLES.union(Options::ENABLE_STRIKETHROUGH).union(Options::ENABLE_TASKLISTS);

/// The weight and colour of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "they combine freely")]
struct Look {
    strong: bool,
    emphasised: bool,
    struck: bool,
    code: bool,
    faint: bool,
}

impl Look {
    fn painted(self, text: &str, style: Style) -> String {
        let codes =
            [(self.strong, "1"), (self.faint, "2"), (self.emphasised, "3"), (self.struck, "9"), (self.code, "36")];
        let codes: Vec<&str> = codes.into_iter().filter(|(is_on, _)| *is_on).map(|(_, code)| code).collect();
        if codes.is_empty() { text.to_owned() } else { style.painted(&codes.join(";"), text) }
    }
}

/// Renders some blocks of Markdown.
pub(crate) fn rendered(markdown: &str, style: Style) -> String {
    let source = escaped(markdown);
    let mut page = Page { style, ..Page::default() };
    for event in Parser::new_ext(&source, OPTIONS) {
        page.take(event);
    }
    page.text
}

#[derive(Default)]
struct Page {
    style: Style,
    text: String,
    /// The beginning of each line: marks of quotes and indents of lists.
    indent: Vec<String>,
    /// A bullet that replaces the last indent on the next line.
    bullet: Option<String>,
    look: Look,
    /// The text of the paragraph so far.
    words: Vec<(String, Look)>,
    /// The next numbers of the open lists; `None` for bullets.
    lists: Vec<Option<u64>>,
    /// The lines of the open block of code.
    code: Option<String>,
    /// The rows of the open table, headings first.
    rows: Vec<Vec<String>>,
    in_table: bool,
    links: Vec<String>,
}

impl Page {
    fn take(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) => match &mut self.code {
                Some(code) => code.push_str(&text),
                None => self.words.push((text.into_string(), self.look)),
            },
            Event::Code(text) => self.words.push((text.into_string(), Look { code: true, ..self.look })),
            Event::SoftBreak => self.words.push((" ".to_owned(), self.look)),
            Event::HardBreak => self.words.push(("\n".to_owned(), self.look)),
            Event::Rule => {
                let width = self.room().min(40);
                self.words.push(("─".repeat(width), Look { faint: true, ..Look::default() }));
                self.flush();
            }
            // HTML is shown as text.
            Event::Html(text) | Event::InlineHtml(text) => self.words.push((text.into_string(), self.look)),
            Event::TaskListMarker(done) => {
                self.words.push((if done { "[x] " } else { "[ ] " }.to_owned(), self.look));
            }
            Event::FootnoteReference(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.words.push((text.into_string(), self.look));
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Paragraph => self.part(),
            Tag::Heading { .. } => {
                self.part();
                self.look.strong = true;
            }
            Tag::BlockQuote(_) => {
                self.part();
                self.indent.push("│ ".to_owned());
            }
            Tag::CodeBlock(kind) => {
                self.part();
                if let CodeBlockKind::Fenced(language) = kind
                    && !language.is_empty()
                {
                    self.words.push((language.into_string(), Look { faint: true, ..Look::default() }));
                    self.flush();
                }
                self.code = Some(String::new());
            }
            Tag::List(first) => {
                if self.lists.is_empty() {
                    self.part();
                }
                self.flush();
                self.lists.push(first);
            }
            Tag::Item => {
                let bullet = match self.lists.last_mut() {
                    Some(Some(number)) => {
                        *number += 1;
                        format!("{}. ", *number - 1)
                    }
                    _ => "• ".to_owned(),
                };
                self.indent.push(" ".repeat(bullet.width()));
                self.bullet = Some(bullet);
            }
            Tag::Emphasis => self.look.emphasised = true,
            Tag::Strong => self.look.strong = true,
            Tag::Strikethrough => self.look.struck = true,
            Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. } => self.links.push(dest_url.into_string()),
            Tag::Table(_) => {
                self.part();
                self.in_table = true;
            }
            Tag::TableHead | Tag::TableRow => self.rows.push(Vec::new()),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph | TagEnd::HtmlBlock => self.flush(),
            TagEnd::Heading(_) => {
                self.flush();
                self.look.strong = false;
            }
            TagEnd::BlockQuote(_) => {
                self.flush();
                self.indent.pop();
            }
            TagEnd::CodeBlock => {
                let look = Look { code: true, ..Look::default() };
                for line in self.code.take().unwrap_or_default().lines() {
                    self.push(&format!("  {}", look.painted(line, self.style)));
                }
            }
            TagEnd::List(_) => {
                self.lists.pop();
            }
            TagEnd::Item => {
                self.flush();
                self.indent.pop();
                self.bullet = None;
            }
            TagEnd::Emphasis => self.look.emphasised = false,
            TagEnd::Strong => self.look.strong = false,
            TagEnd::Strikethrough => self.look.struck = false,
            TagEnd::Link | TagEnd::Image => {
                let url = self.links.pop().unwrap_or_default();
                if self.words.last().is_none_or(|(text, _)| *text != url) {
                    self.words.push((format!(" ({url})"), Look { faint: true, ..self.look }));
                }
            }
            TagEnd::TableCell => {
                let cell: String = self.words.drain(..).map(|(text, _)| text).collect();
                self.rows.last_mut().into_iter().for_each(|row| row.push(cell.clone()));
            }
            TagEnd::Table => {
                self.in_table = false;
                let rows = std::mem::take(&mut self.rows);
                if let Some((headings, rows)) = rows.split_first() {
                    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
                    let table = table(&headings, rows, Style { width: self.room(), ..self.style });
                    table.lines().for_each(|line| self.push(line));
                }
            }
            _ => {}
        }
    }

    /// Adds an empty line between two blocks, but not before the first, nor between a bullet and its text.
    fn part(&mut self) {
        self.flush();
        if !self.text.is_empty() && self.bullet.is_none() && !self.text.ends_with("\n\n") {
            let begin = self.indent.concat();
            self.text.push_str(begin.trim_end());
            self.text.push('\n');
        }
    }

    /// The width of a line without its indent.
    fn room(&self) -> usize {
        self.style.width.saturating_sub(self.indent.concat().width()).max(10)
    }

    /// The beginning of the next line.
    fn beginning(&mut self) -> String {
        let Some(bullet) = self.bullet.take() else { return self.indent.concat() };
        let outer = self.indent.len().saturating_sub(1);
        format!("{}{bullet}", self.indent[..outer].concat())
    }

    /// Writes the paragraph, wrapped at words.
    fn flush(&mut self) {
        if self.in_table {
            return;
        }
        let words = std::mem::take(&mut self.words);
        if words.is_empty() {
            return;
        }
        for line in wrapped(&words, self.room(), self.style) {
            self.push(&line);
        }
    }

    /// Writes a line.
    fn push(&mut self, line: &str) {
        let line = format!("{}{line}", self.beginning());
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }
}

/// Wraps a plain text to a width.
pub(crate) fn lines_of(text: &str, width: usize) -> Vec<String> {
    wrapped(&[(escaped(text), Look::default())], width, Style::default())
}

/// Wraps text to a width, at blanks if possible.
fn wrapped(pieces: &[(String, Look)], width: usize, style: Style) -> Vec<String> {
    let mut lines = vec![(String::new(), 0)];
    // A word may have several looks, and ends at a blank.
    let mut word: (String, usize) = (String::new(), 0);
    let end_word = |lines: &mut Vec<(String, usize)>, word: &mut (String, usize)| {
        let (text, columns) = std::mem::take(word);
        match lines.last_mut() {
            Some((line, used)) if *used == 0 || *used + columns <= width => {
                line.push_str(&text);
                *used += columns;
            }
            _ => lines.push((text, columns)),
        }
    };
    for (text, look) in pieces {
        for part in text.split_inclusive([' ', '\n']) {
            let bare = part.trim_end_matches([' ', '\n']);
            for chunk in chunks(bare, width) {
                if word.1 + chunk.width() > width {
                    end_word(&mut lines, &mut word);
                }
                word.0.push_str(&look.painted(chunk, style));
                word.1 += chunk.width();
            }
            if bare.len() < part.len() {
                end_word(&mut lines, &mut word);
                if part.ends_with('\n') {
                    lines.push((String::new(), 0));
                } else if let Some((line, used)) = lines.last_mut().filter(|(_, used)| (1..width).contains(used)) {
                    line.push(' ');
                    *used += 1;
                }
            }
        }
    }
    end_word(&mut lines, &mut word);
    lines.into_iter().map(|(line, _)| line).collect()
}

/// Splits a word that does not fit on a line, such as a long URL or a text in a script without blanks.
fn chunks(word: &str, width: usize) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), word);
    // A script without blanks may be wrapped after each wide letter.
    let is_wide = |text: &str| text.chars().any(|letter| unicode_width::UnicodeWidthChar::width(letter) == Some(2));
    let most = if is_wide(word) { 2 } else { width };
    while rest.width() > most {
        let mut columns = 0;
        let cut = rest.char_indices().find(|(_, letter)| {
            columns += unicode_width::UnicodeWidthChar::width(*letter).unwrap_or(0);
            columns > most
        });
        let at = cut.map_or(rest.len(), |(at, _)| at).max(rest.chars().next().map_or(1, char::len_utf8));
        let (piece, others) = rest.split_at(at);
        found.push(piece);
        rest = others;
    }
    if !rest.is_empty() {
        found.push(rest);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(markdown: &str, width: usize) -> String {
        rendered(markdown, Style { width, colour: false })
    }

    #[test]
    fn markdown_separates_blocks_and_marks_lists() {
        let text =
            "# Title\nSome *words* with `code`.\n\n- one\n- two\n  1. a\n  2. b\n\n> quoted\n\n```sh\nls  -l\n```\nend";
        let shown =
            "Title\n\nSome words with code.\n\n• one\n• two\n  1. a\n  2. b\n\n│ quoted\n\nsh\n  ls  -l\n\nend\n";
        assert_eq!(plain(text, 80), shown);
    }

    #[test]
    fn markdown_wraps_without_losing_text() {
        let text = "one two three **four five** six https://example.com/a/very/long/address?that=goes&on=and 日本語のとても長い文章がここにある end";
        for width in [12, 20, 40, 80, 200] {
            let shown = plain(text, width);
            assert!(shown.lines().all(|line| line.width() <= width), "{width}:\n{shown}");
            let letters = |text: &str| text.chars().filter(|letter| !letter.is_whitespace()).collect::<String>();
            assert_eq!(letters(&shown), letters(text).replace("**", ""), "{width}");
        }
        assert_eq!(plain("aaa bbb ccc", 10), "aaa bbb\nccc\n");
    }

    #[test]
    fn markdown_aligns_tables_and_shows_link_targets() {
        assert_eq!(plain("|a|b|\n|-|-|\n|1|22|\n", 80), "a  b\n1  22\n");
        assert_eq!(plain("[here](https://x.test/)", 80), "here (https://x.test/)\n");
        assert_eq!(plain("<https://x.test/>", 80), "https://x.test/\n");
    }

    #[test]
    fn markdown_colours_marks_and_escapes_controls() {
        let shown = rendered("**a** `b` \x1b[2J <b>c</b>", Style { width: 80, colour: true });
        assert_eq!(shown, "\x1b[1ma\x1b[0m \x1b[36mb\x1b[0m ^[[2J <b>c</b>\n");
    }
}
