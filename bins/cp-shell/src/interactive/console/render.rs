//! Formats text for the terminal: tables that fit the width, and colour if enabled.

use std::fmt::Write as _;

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

/// A terminal whose cursor can move, with its number of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Page {
    pub(crate) rows: usize,
}

impl Page {
    /// The terminal, if its cursor can move.
    pub(crate) fn of_terminal() -> Option<Self> {
        let stdout = rustix::stdio::stdout();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let rows = rustix::termios::tcgetwinsize(stdout).ok().map_or(0, |size| usize::from(size.ws_row));
        (!is_dumb && rows > 1 && rustix::termios::isatty(stdout)).then_some(Self { rows })
    }
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
    pub(crate) fn error(self, message: &str, hint: Option<&str>) -> String {
        let mut text = self.painted("31", "✗");
        text.push(' ');
        text.push_str(&escaped(message));
        if let Some(hint) = hint {
            text.push_str("\n  Hint: ");
            text.push_str(&escaped(hint).replace('\n', "\n  "));
        }
        text.push('\n');
        text
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

/// True if a member contains ids, which are never cut because people type them.
fn is_id(name: &str) -> bool {
    name == "id" || name.ends_with("_id") || name.ends_with("_wo")
}

/// A table with headings, cut to the width of the terminal except for ids.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>], style: Style) -> String {
    let mut widths: Vec<usize> = headings.iter().map(|heading| heading.width()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.width());
        }
    }
    let (ids, mut others): (Vec<_>, Vec<_>) = headings.iter().zip(&mut widths).partition(|(heading, _)| is_id(heading));
    let taken: usize = ids.iter().map(|(_, width)| **width + 2).sum();
    shrink(&mut others.iter_mut().map(|(_, width)| &mut **width).collect::<Vec<_>>(), style.width.max(20), taken);
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let cells = cells.zip(&widths).map(|(cell, width)| {
            let cell = cut(cell, *width);
            let pad = width.saturating_sub(cell.width());
            format!("{cell}{}", " ".repeat(pad))
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    let mut text = style.faint(&line(&mut headings.iter().copied()));
    text.push('\n');
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
        text.push('\n');
    }
    text
}

/// Shrinks the widest columns until the line fits.
fn shrink(widths: &mut [&mut usize], total: usize, taken: usize) {
    let gaps = 2 * widths.len().saturating_sub(1);
    while widths.iter().map(|width| **width).sum::<usize>() + gaps + taken > total {
        match widths.iter_mut().max() {
            Some(widest) if **widest > 4 => **widest -= 1,
            _ => return,
        }
    }
}

/// Formats a result: a list of objects as a table, other members as `name value`, and nested values as JSON.
pub(crate) fn value(value: &Value, style: Style) -> String {
    match value {
        Value::Object(members) => object(members, style),
        Value::Array(items) => list("", items, style),
        other => format!("{}\n", cell(other)),
    }
}

fn object(members: &Map<String, Value>, style: Style) -> String {
    let is_list = |value: &Value| value.as_array().is_some_and(|items| items.iter().any(Value::is_object));
    let plain: Vec<(&String, &Value)> = members.iter().filter(|(_, value)| !is_list(value)).collect();
    let names = plain.iter().map(|(name, _)| name.width()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in plain {
        let (name, room) = (escaped(name), style.width.saturating_sub(names + 2).max(16));
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                let _ = writeln!(text, "{}", style.strong(&name));
                for line in self::value(value, Style { width: style.width.saturating_sub(2), ..style }).lines() {
                    let _ = writeln!(text, "  {line}");
                }
            }
            // Lists of ids and paths get a line for each item if they do not fit.
            Value::Array(items) if cell(value).width() > room => {
                for (at, item) in items.iter().enumerate() {
                    let _ = writeln!(text, "{:<names$}  {}", if at == 0 { name.as_str() } else { "" }, cell(item));
                }
            }
            _ => {
                let shown = cell(value);
                let shown = if is_id(&name) { shown } else { cut(&shown, room) };
                let _ = writeln!(text, "{name:<names$}  {shown}");
            }
        }
    }
    for (name, items) in
        members.iter().filter_map(|(name, value)| Some((name, value.as_array().filter(|_| is_list(value))?)))
    {
        text.push_str(&list(name, items, style));
    }
    text
}

fn list(name: &str, items: &[Value], style: Style) -> String {
    let mut text = if name.is_empty() { String::new() } else { format!("{}\n", style.strong(&escaped(name))) };
    let mut headings: Vec<&str> = Vec::new();
    for member in items.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        if !headings.contains(&member.as_str()) {
            headings.push(member);
        }
    }
    if headings.is_empty() {
        return items.iter().map(cell).fold(text, |text, line| text + &line + "\n");
    }
    let rows: Vec<Vec<String>> = items
        .iter()
        .map(|item| headings.iter().map(|name| item.get(*name).map_or_else(|| "-".to_owned(), cell)).collect())
        .collect();
    let shown: Vec<String> = headings.iter().map(|name| escaped(name)).collect();
    text.push_str(&table(&shown.iter().map(String::as_str).collect::<Vec<_>>(), &rows, style));
    text
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
        assert_eq!(PLAIN.error("no \x1b", Some("do x")), "✗ no ^[\n  Hint: do x\n");
        assert_eq!(PLAIN.error("no", None), "✗ no\n");
        let colour = Style { colour: true, ..PLAIN };
        assert!(colour.error("no", None).contains("\x1b[31m✗\x1b[0m"));
    }

    #[test]
    fn table_fits_terminal_width() {
        let rows = vec![vec!["PKG-A".to_owned(), "x".repeat(80)], vec!["日本語".to_owned(), "short".to_owned()]];
        for width in [20, 40, 100] {
            let text = table(&["id", "title"], &rows, Style { width, colour: false });
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
        }
        let text = table(&["id", "title"], &rows, Style { width: 100, colour: false });
        assert!(text.contains("日本語  short"), "{text}");
    }

    #[test]
    fn list_of_objects_is_shown_as_table() {
        let result = json!({"packages": [{"package_id": "PKG-A", "version": "1"}], "count": 1, "note": null});
        assert_eq!(value(&result, PLAIN), "count  1\nnote   -\npackages\npackage_id  version\nPKG-A       1\n");
        assert_eq!(value(&json!({"gates": {"G1": {"phase": "x"}}}), PLAIN), "gates\n  G1\n    phase  x\n");
    }

    #[test]
    fn cut_text_is_marked() {
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(cut("日本語", 4), "日…");
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(count(1, "turn"), "1 turn");
    }
}
