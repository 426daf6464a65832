//! Formats text for the terminal: tables, and colour if enabled.

use cp_common::Result;
use cp_common::output::{Output, printable};
use serde_json::{Map, Value};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The width and colour of the terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// In columns.
    pub(crate) width: usize,
    /// True if the output is a terminal and `NO_COLOR` is not set.
    pub(crate) colour: bool,
}

/// Returns the current style, because the terminal may have been resized.
pub(crate) fn style() -> Style {
    let stdout = rustix::stdio::stdout();
    let columns =
        rustix::termios::tcgetwinsize(stdout).ok().map(|size| usize::from(size.ws_col)).filter(|width| *width > 0);
    let set = || std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok()).filter(|width| *width > 0);
    let plain = std::env::var_os("NO_COLOR").is_some_and(|set| !set.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    // Lines in a pipe are not cut.
    let is_terminal = rustix::termios::isatty(stdout);
    let default = if is_terminal { 80 } else { usize::MAX };
    Style { width: columns.or_else(set).unwrap_or(default), colour: is_terminal && !plain }
}

/// Writes and flushes text.
pub(crate) fn show(out: &mut Output, text: &str) -> Result<()> {
    out.raw(text.as_bytes())?;
    out.flush()
}

impl Style {
    /// Faint text.
    pub(crate) fn faint(self, text: &str) -> String {
        self.painted("2", text)
    }

    /// Bold text.
    pub(crate) fn strong(self, text: &str) -> String {
        self.painted("1", text)
    }

    /// A warning.
    pub(crate) fn warning(self, text: &str) -> String {
        self.painted("33", text)
    }

    /// An error and its hint: `✗ message`, ` Hint: …`.
    pub(crate) fn error(self, message: &str, hint: &str) -> String {
        let hint = escaped(hint).replace('\n', "\n  ");
        format!("{} {}\n  Hint: {hint}\n", self.painted("31", "✗"), escaped(message))
    }

    /// Text as one line of the terminal, without control characters.
    pub(crate) fn line(self, text: &str) -> String {
        cut(&escaped(text).replace('\n', " "), self.width) + "\n"
    }

    /// Text in the colour of an SGR code.
    pub(crate) fn painted(self, code: &str, text: &str) -> String {
        if self.colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }
}

/// Escapes control characters.
pub(crate) fn escaped(text: &str) -> String {
    printable(text).into_owned()
}

/// A value as one line.
pub(crate) fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(items) if items.iter().all(|item| !item.is_object() && !item.is_array()) => {
            items.iter().map(cell).collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    escaped(&text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cuts a text to a width, and marks the cut with `…`.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let kept = text.chars().take_while(|letter| {
        let fits = letter.width().unwrap_or(0) <= left;
        left = left.saturating_sub(letter.width().unwrap_or(0));
        fits
    });
    kept.chain(['…']).collect()
}

/// A table with headings. Nothing is cut, because people copy ids and paths.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell}{}", " ".repeat(width - cell.width())));
        padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = style.faint(&line(&mut headings.iter().copied()));
    for row in rows {
        text = text + "\n" + &line(&mut row.iter().map(String::as_str));
    }
    text + "\n"
}

/// Formats a result: a line for each member, below its name if it is an object, and a table for a list of objects.
pub(crate) fn value(value: &Value, style: Style) -> String {
    let Value::Object(members) = value else { return cell(value) + "\n" };
    let shown = members.iter().map(|(name, value)| match value {
        Value::Object(inner) if !inner.is_empty() => {
            let inner = self::value(value, style).replace('\n', "\n  ");
            format!("{}\n  {}\n", style.strong(&escaped(name)), inner.trim_end())
        }
        Value::Array(items) if items.iter().any(Value::is_object) => {
            format!("{}\n{}", style.strong(&escaped(name)), list(items, style))
        }
        _ => format!("{}: {}\n", escaped(name), cell(value)),
    });
    shown.collect()
}

fn list(items: &[Value], style: Style) -> String {
    let mut names: Vec<&String> = Vec::new();
    for name in items.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let rows: Vec<Vec<String>> =
        items.iter().map(|item| names.iter().map(|name| cell(&item[name.as_str()])).collect()).collect();
    let headings: Vec<String> = names.iter().map(|name| escaped(name)).collect();
    table(&headings.iter().map(String::as_str).collect::<Vec<_>>(), &rows, style)
}

/// A count and its noun: `1 turn`, `2 turns`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PLAIN: Style = Style { width: 40, colour: false };

    #[test]
    fn error_shows_hint_below_message() {
        assert_eq!(PLAIN.error("no \x1b", "do x"), "✗ no ^[\n  Hint: do x\n");
        let colour = Style { colour: true, ..PLAIN };
        assert!(colour.error("no", "do x").contains("\x1b[31m✗\x1b[0m"));
    }

    #[test]
    fn result_is_lines_and_tables() {
        let result = json!({
            "packages": [{"package_id": "日本語", "version": "1\n2"}, {"package_id": "B", "at": "x\u{1b}"}],
            "count": 2, "note": null, "gates": {"G1": {"phase": ["x", "y"], "of": {}}},
        });
        let shown = "packages\npackage_id  version  at\n日本語      1 2      -\nB           -        x^[\n\
                     count: 2\nnote: -\ngates\n  G1\n    phase: x, y\n    of: {}\n";
        assert_eq!(value(&result, PLAIN), shown);
    }

    #[test]
    fn cut_text_is_marked() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(count(1, "turn"), "1 turn");
    }
}
