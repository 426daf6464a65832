//! Edits JSON text in place: all other bytes are kept, and removing an added value restores the original text.

use std::collections::BTreeMap;
use std::ops::Range;

use cp_common::{Code, Error, Result, json};
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::value::RawValue;

type Span = Range<usize>;

/// A path to a value: the indexes of members and elements.
type ValuePath<'a> = &'a [usize];

/// A strict JSON text.
pub struct Text {
    source: String,
    /// The indentation of one level, and the line end.
    unit: String,
    newline: &'static str,
}

/// An element of an array, or a member of an object, which has a name.
struct Element {
    name: Option<String>,
    span: Span,
}

impl Text {
    /// Parses a text that can be edited, and its value. The text must be strict JSON and an object; the member `member`
    /// must be an object if it exists. `paste` is shown in the error, for the user to insert by hand.
    pub fn checked(text: &str, member: &str, paste: &Value) -> Result<(Self, Value)> {
        json::check(text.as_bytes()).map_err(|fault| {
            let line = text.as_bytes()[..fault.offset.min(text.len())].split(|&byte| byte == b'\n').count();
            uneditable(format!("not strict JSON: {}", fault.reason), paste).at_line(line as u64)
        })?;
        let value: Value = serde_json::from_str(text).map_err(|e| uneditable(e.to_string(), paste))?;
        if !value.is_object() || value.get(member).is_some_and(|member| !member.is_object()) {
            return Err(uneditable(format!("`{member}` is not an object of an object"), paste));
        }
        Ok((Self::new(text), value))
    }

    fn new(text: &str) -> Self {
        let blank = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
        let unit = text.lines().map(|line| &line[..blank(line)]).find(|unit| !unit.is_empty()).unwrap_or("  ");
        let newline = if text.contains("\r\n") { "\r\n" } else { "\n" };
        Self { source: text.to_owned(), unit: unit.to_owned(), newline }
    }

    /// Returns the edited text.
    pub fn into_text(self) -> String {
        self.source
    }

    /// Returns the index of a member.
    pub fn member(&self, way: ValuePath<'_>, name: &str) -> Option<usize> {
        self.elements(&self.span(way)).iter().position(|element| element.name.as_deref() == Some(name))
    }

    /// Returns the texts of the values in an object or array, in order.
    pub fn children(&self, way: ValuePath<'_>) -> Vec<&str> {
        self.elements(&self.span(way)).into_iter().map(|element| &self.source[element.span]).collect()
    }

    /// Appends a value to an object or an array.
    pub fn append(&mut self, way: ValuePath<'_>, name: Option<&str>, value: &Value) {
        let span = self.span(way);
        let name = name.map(|name| format!("{}: ", Value::from(name))).unwrap_or_default();
        let indent = format!("{}{}", self.newline, self.unit.repeat(way.len() + 1));
        let new = name + &pretty(value, &self.unit).replace('\n', &indent);
        match self.elements(&span).last() {
            Some(last) => self.source.insert_str(last.span.end, &format!(",{indent}{new}")),
            // On the line of the bracket, which marks the container as existing before. See `is_made`.
            None => self.source.insert_str(span.start + 1, &new),
        }
    }

    /// Removes an element, and each container that was added for it and is empty then. Returns false if that is the
    /// whole text.
    pub fn remove(&mut self, way: ValuePath<'_>) -> bool {
        let Some((&number, parent)) = way.split_last() else { return false };
        let span = self.span(parent);
        let elements = self.elements(&span);
        if elements.len() == 1 && self.was_added(&span) {
            return self.remove(parent);
        }
        let end = elements[number].span.end;
        let gone = match number {
            0 if elements.len() == 1 => span.start + 1..end,
            // Up to the comma after the element.
            0 => span.start + 1..end + self.source[end..].find(',').map_or(0, |comma| comma + 1),
            _ => elements[number - 1].span.end..end,
        };
        self.source.replace_range(gone, "");
        true
    }

    /// True if this program added the container with its content: its first element is on a line of its own.
    fn was_added(&self, span: &Span) -> bool {
        self.source[span.start + 1..].starts_with(['\n', '\r'])
    }

    fn span(&self, way: ValuePath<'_>) -> Span {
        let start = self.source.len() - self.source.trim_start().len();
        let whole = start..self.source.trim_end().len();
        way.iter().fold(whole, |span, &number| self.elements(&span)[number].span.clone())
    }

    /// Returns the content of an object or array, in order; empty for other values.
    fn elements(&self, span: &Span) -> Vec<Element> {
        let text = &self.source[span.clone()];
        let place = |raw: &RawValue| {
            let start = raw.get().as_ptr().addr() - self.source.as_ptr().addr();
            start..start + raw.get().len()
        };
        let mut elements: Vec<Element> = match serde_json::from_str::<BTreeMap<String, &RawValue>>(text) {
            Ok(members) => {
                members.into_iter().map(|(name, raw)| Element { name: Some(name), span: place(raw) }).collect()
            }
            Err(_) => serde_json::from_str::<Vec<&RawValue>>(text)
                .unwrap_or_default()
                .into_iter()
                .map(|raw| Element { name: None, span: place(raw) })
                .collect(),
        };
        elements.sort_by_key(|element| element.span.start);
        elements
    }
}

/// Makes the error for a text that only the user can edit.
pub fn uneditable(why: String, paste: &Value) -> Error {
    let hint = "correct the file, or add the JSON in `paste` by hand; files with comments are not edited";
    Error::new(Code::Conflict, why).with("rule", "format").with("paste", paste.clone()).hint(hint)
}

/// Formats a value over several lines.
pub fn pretty(value: &Value, unit: &str) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, PrettyFormatter::with_indent(unit.as_bytes()));
    // A `Value` can always be serialized, and writing to a `Vec` cannot fail.
    let _ = serde::Serialize::serialize(value, &mut serializer);
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Texts, and the same texts with a member added to an object or an array.
    #[test]
    fn append_follows_style_and_remove_restores_text() {
        let cases: [(&str, ValuePath<'_>, Option<&str>, &str); 6] = [
            ("{}", &[], Some("a"), "{\"a\": [\n    1\n  ]}"),
            ("{\n}\n", &[], Some("a"), "{\"a\": [\n    1\n  ]\n}\n"),
            ("{\r\n\t\"b\": 1e2\r\n}", &[], Some("a"), "{\r\n\t\"b\": 1e2,\r\n\t\"a\": [\r\n\t\t1\r\n\t]\r\n}"),
            ("{\"x\":[ ],  \"y\":2}", &[0], None, "{\"x\":[[\n      1\n    ] ],  \"y\":2}"),
            ("[1,2 ]", &[], None, "[1,2,\n  [\n    1\n  ] ]"),
            (" [{\"k\":{}}]", &[0, 0], Some("é\""), " [{\"k\":{\"é\\\"\": [\n    1\n   ]}}]"),
        ];
        for (text, way, name, expected) in cases {
            let mut edited = Text::new(text);
            edited.append(way, name, &json!([1]));
            assert_eq!(edited.source, expected);
            let last = edited.elements(&edited.span(way)).len() - 1;
            assert!(edited.remove(&[way, &[last]].concat()));
            assert_eq!(edited.source, text);
        }
    }

    #[test]
    fn remove_of_last_element_removes_added_container() {
        let mut text = Text::new("{\n  \"a\": {\n    \"b\": [\n      1\n    ]\n  },\n  \"c\": 2\n}");
        assert!(text.remove(&[0, 0, 0]));
        assert_eq!(text.source, "{\n  \"c\": 2\n}");
        assert!(!text.remove(&[0]));
    }
}
