//! Edits JSON text in place: all other bytes are kept, and what was added is removed without a trace.

use std::collections::BTreeMap;
use std::ops::Range;

use cp_common::{Code, Error, Result, json};
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::value::RawValue;

/// Parses a strict JSON text. `paste` is shown in an error, for the user to insert by hand.
pub(super) fn parsed(text: &str, paste: &Value) -> Result<Value> {
    json::check(text.as_bytes()).map_err(|fault| {
        let line = text.as_bytes()[..fault.offset.min(text.len())].split(|&byte| byte == b'\n').count();
        uneditable(format!("not strict JSON: {}", fault.reason), paste).at_line(line as u64)
    })?;
    serde_json::from_str(text).map_err(|e| uneditable(e.to_string(), paste))
}

fn uneditable(why: String, paste: &Value) -> Error {
    let hint = "correct the file, or add the JSON in `paste` by hand; files with comments are not edited";
    Error::new(Code::Conflict, why).with("rule", "format").with("paste", paste.clone()).hint(hint)
}

/// Adds the members and elements of a value to a JSON text, each after those that are there.
pub(super) fn merged(text: &str, added: &Value) -> Result<String> {
    let blank = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let unit = text.lines().map(|line| &line[..blank(line)]).find(|unit| !unit.is_empty()).unwrap_or("  ");
    let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let merging = Merging { all: added, unit, newline };
    merging.with(text, added, &mut Vec::new())
}

struct Merging<'a> {
    all: &'a Value,
    /// The indentation of one level.
    unit: &'a str,
    newline: &'a str,
}

impl<'a> Merging<'a> {
    /// The text of a value with what is added to it. `path` has the names of the members around it.
    fn with(&self, raw: &str, added: &'a Value, path: &mut Vec<&'a str>) -> Result<String> {
        let (kind, sign, parts): (_, _, Vec<(Option<&str>, &Value)>) = match added {
            Value::Object(members) => {
                ("an object", '{', members.iter().map(|(name, value)| (Some(name.as_str()), value)).collect())
            }
            Value::Array(values) => ("an array", '[', values.iter().map(|value| (None, value)).collect()),
            _ => {
                let why = format!("`{}` is already `{}`", path.join("."), raw.trim_matches('"'));
                return Err(uneditable(why, self.all).hint("remove it: it is the program of somebody else"));
            }
        };
        if !raw.trim_start().starts_with(sign) {
            let what = if path.is_empty() { "the text".to_owned() } else { format!("`{}`", path.join(".")) };
            return Err(uneditable(format!("{what} is not {kind}"), self.all));
        }
        let indent = format!("{}{}", self.newline, self.unit.repeat(path.len() + 1));
        let mut text = raw.to_owned();
        for (name, value) in parts {
            let children = children(&text);
            if let Some((name, (_, place))) =
                name.and_then(|name| Some((name, children.iter().find(|(own, _)| own == name)?)))
            {
                path.push(name);
                let below = self.with(&text[place.clone()], value, path)?;
                path.pop();
                text.replace_range(place.clone(), &below);
                continue;
            }
            let name = name.map(|name| format!("{}: ", Value::from(name))).unwrap_or_default();
            let new = name + &pretty(value, self.unit).replace('\n', &indent);
            match children.last() {
                Some((_, last)) => text.insert_str(last.end, &format!(",{indent}{new}")),
                // On the line of the bracket, which marks the container as one that was there. See `without`.
                None => text.insert_str(after_bracket(&text), &new),
            }
        }
        Ok(text)
    }
}

/// Removes each value that `is_ours` finds by its name and itself, and each container that was added for them. `None`
/// if that is the whole text.
pub(super) fn without(raw: &str, is_ours: &dyn Fn(&str, &Value) -> bool) -> Option<String> {
    let (mut text, children, start) = (raw.to_owned(), children(raw), after_bracket(raw));
    let mut left = children.len();
    // In reverse order, so that the places before stay valid.
    for (number, (name, place)) in children.iter().enumerate().rev() {
        let child = &raw[place.clone()];
        let is_gone = is_ours(name, &serde_json::from_str(child).unwrap_or_default());
        let Some(rest) = without(child, is_ours).filter(|_| !is_gone) else {
            left -= 1;
            text.replace_range(
                match number {
                    0 if left == 0 => start..place.end,
                    // Up to the comma after the element.
                    0 => start..place.end + text[place.end..].find(',').map_or(0, |comma| comma + 1),
                    _ => children[number - 1].1.end..place.end,
                },
                "",
            );
            continue;
        };
        text.replace_range(place.clone(), &rest);
    }
    // A container that was added with its content has its first element on a line of its own.
    let is_added = raw[start..].starts_with(['\n', '\r']);
    (left > 0 || children.is_empty() || !is_added).then_some(text)
}

/// The place after the opening bracket of an object or an array.
fn after_bracket(raw: &str) -> usize {
    (raw.len() - raw.trim_start().len() + 1).min(raw.len())
}

/// The members or elements of a value, in order: the name of each, which is empty for an element, and its place.
fn children(raw: &str) -> Vec<(String, Range<usize>)> {
    let place = |value: &RawValue| {
        let start = value.get().as_ptr().addr() - raw.as_ptr().addr();
        start..start + value.get().len()
    };
    let members = serde_json::from_str::<BTreeMap<String, &RawValue>>(raw);
    let elements = serde_json::from_str::<Vec<&RawValue>>(raw).unwrap_or_default();
    let elements = elements.into_iter().map(|value| (String::new(), value));
    let children = members.unwrap_or_default().into_iter().chain(elements);
    let mut children: Vec<_> = children.map(|(name, value)| (name, place(value))).collect();
    children.sort_by_key(|(_, place)| place.start);
    children
}

/// Formats a value over several lines.
pub(super) fn pretty(value: &Value, unit: &str) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(unit.as_bytes()));
    // A `Value` can always be serialized, and writing to a `Vec` cannot fail.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8_lossy(&bytes).into_owned()
}
