//! Values that are shown whole: texts, command lines, arguments, differences.

use std::borrow::Cow;

use serde::Serialize;
use similar::{Change, ChangeTag, TextDiff};

use super::entry::Json;
use super::table::Form;

/// A text with more lines or bytes than these is folded.
const LINES: usize = 24;
const BYTES: usize = 4 << 10;

fn part(label: impl Into<Cow<'static, str>>, form: &'static str, text: String) -> Part {
    let folded = text.len() > BYTES || text.bytes().filter(|byte| *byte == b'\n').count() > LINES;
    Part { label: label.into(), form, folded, text, rows: Vec::new() }
}

/// Adds what shows a value in this form.
pub(super) fn parts_of(value: Json<'_>, form: Form, label: String, parts: &mut Vec<Part>) {
    match form {
        Form::Content => content(value, label, parts),
        Form::Output => {
            content(value, label, parts);
            parts.iter_mut().filter(|part| part.form == "text").for_each(|part| part.form = "code");
        }
        Form::Command => parts.push(part("", "command", command(value))),
        Form::Input => input(value, parts),
        Form::Asked => match (value.at("name").and_then(Json::text), value.at("input")) {
            (Some(name), Some(arguments)) => {
                parts.push(part("", "text", name.into_owned()));
                input(arguments, parts);
            }
            _ => parts.push(part("", "command", command(value))),
        },
        Form::Difference => parts.push(unified(&value.text().unwrap_or_default())),
        Form::Value => parts.push(Part { folded: true, ..part(label, "code", value.pretty()) }),
    }
}

/// Adds the parts of a text or of a list of blocks.
fn content(value: Json<'_>, label: String, parts: &mut Vec<Part>) {
    if let Some(text) = value.text() {
        if !text.is_empty() {
            parts.push(part(label, "text", text.into_owned()));
        }
        return;
    }
    let Some(blocks) = value.items() else {
        parts.push(moved(value).unwrap_or_else(|| part(label, "code", value.pretty())));
        return;
    };
    for block in blocks {
        let kind = block.at("type").and_then(Json::text).unwrap_or_default();
        let named = |name: &str| block.at(name).and_then(Json::text).unwrap_or_default();
        match &*kind {
            "text" => parts.push(part("", "text", named("text").into_owned())),
            "thinking" => parts.push(Part { folded: true, ..part("thinking", "text", named("thinking").into_owned()) }),
            "tool_use" => {
                parts.push(part("", "text", format!("→ {}", named("name"))));
                if let Some(arguments) = block.at("input") {
                    input(arguments, parts);
                }
            }
            "tool_result" => {
                let about = format!("result of {}", named("tool_use_id"));
                if let Some(result) = block.at("content") {
                    content(result, about, parts);
                }
            }
            // A turn of a request: who speaks, and what.
            "" if block.at("role").is_some() => {
                if let Some(said) = block.at("content") {
                    content(said, named("role").into_owned(), parts);
                }
            }
            _ => parts.push(Part { folded: true, ..part(kind.into_owned(), "code", block.pretty()) }),
        }
    }
}

/// A value that was too large for its line, or sealed.
fn moved(value: Json<'_>) -> Option<Part> {
    let name = |name: &str| value.at(name).and_then(Json::text);
    if let Some(hash) = name("blob") {
        return Some(part("a large value, below", "code", hash.into_owned()));
    }
    name("$sealed").map(|hash| part("a sealed value, which is not in this page", "code", hash.into_owned()))
}

/// The words of a command line, quoted where a shell would need it.
fn command(argv: Json<'_>) -> String {
    let Some(words) = argv.items() else { return argv.pretty() };
    words.into_iter().map(|value| word(&value.pretty())).collect::<Vec<_>>().join(" ")
}

/// A word of a command line, quoted where a shell would need it.
pub(crate) fn word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The arguments of a tool: names and values, and what changes a file as a difference.
fn input(value: Json<'_>, parts: &mut Vec<Part>) {
    let Some(members) = value.members() else {
        parts.push(part("", "code", value.pretty()));
        return;
    };
    let first = parts.len();
    let is_write = value.at("operation").and_then(Json::text).is_some_and(|operation| operation == "write_file");
    let (mut plain, mut removed, mut added) = (Vec::new(), None, None);
    for (name, value) in members {
        match (&*name, value.text()) {
            ("old", Some(text)) => removed = Some(text),
            ("new", Some(text)) => added = Some(text),
            ("content", Some(text)) if is_write => added = Some(text),
            ("patch" | "diff", Some(text)) => parts.push(unified(&text)),
            ("argv", None) => parts.push(part("", "command", command(value))),
            (_, Some(text)) if !text.contains('\n') => plain.push(format!("{name}: {text}")),
            (_, Some(text)) => parts.push(part(name.into_owned(), "code", text.into_owned())),
            (_, None) => plain.push(format!("{name}: {}", value.pretty())),
        }
    }
    if !plain.is_empty() {
        parts.insert(first, part("", "code", plain.join("\n")));
    }
    if removed.is_some() || added.is_some() {
        let (removed, added) = (removed.unwrap_or_default(), added.unwrap_or_default());
        let (old, new): (Vec<&str>, Vec<&str>) = (removed.lines().collect(), added.lines().collect());
        let rows = TextDiff::from_slices(&old, &new).iter_all_changes().map(row).collect();
        parts.push(difference(rows));
    }
}

/// A line of a difference, with the sign of its change.
fn row(change: Change<&str>) -> (char, String) {
    let sign = match change.tag() {
        ChangeTag::Delete => '-',
        ChangeTag::Insert => '+',
        ChangeTag::Equal => ' ',
    };
    (sign, change.value().to_owned())
}

fn unified(text: &str) -> Part {
    let sign = |line: &str| match line.chars().next() {
        Some(sign @ ('+' | '-' | '@')) => (sign, line[1..].to_owned()),
        _ => (' ', line.strip_prefix(' ').unwrap_or(line).to_owned()),
    };
    difference(text.lines().map(sign).collect())
}

fn difference(rows: Vec<(char, String)>) -> Part {
    Part { folded: rows.len() > 2 * LINES, rows, ..part("", "difference", String::new()) }
}

/// A value of a line that is shown whole.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// The label, if the form does not make it clear.
    pub(crate) label: Cow<'static, str>,
    /// `text`, `code`, `command` or `difference`.
    pub(crate) form: &'static str,
    /// True if it is folded until the reader opens it.
    pub(crate) folded: bool,
    /// The text; of a difference, none.
    pub(crate) text: String,
    /// The lines of a difference, each with what became of it before it: `+`, `-`, `@` or a space.
    pub(crate) rows: Vec<(char, String)>,
}
