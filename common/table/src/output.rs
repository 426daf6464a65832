//! Rows as a table, in the format of the input.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::records::Format;

/// Writes records of a table.
#[derive(Debug)]
pub struct Writer {
    format: Format,
    columns: Vec<String>,
    answers: Vec<String>,
}

impl Writer {
    pub(crate) fn new(format: Format, columns: &[String], answers: &[String]) -> Self {
        Self { format, columns: columns.to_vec(), answers: answers.to_vec() }
    }

    /// The header row: the columns of the table, those of the answers, and `error`.
    pub fn header(&self) -> Vec<u8> {
        let names = self.columns.iter().chain(&self.answers).map(String::as_str);
        self.line(names.chain(["error"]))
    }

    /// The record of a row, its answer by column, and its error.
    pub fn record(&self, row: Option<&RawValue>, answer: &Map<String, Value>, error: &str) -> Vec<u8> {
        let row: Map<String, Value> = row.and_then(|row| serde_json::from_str(row.get()).ok()).unwrap_or_default();
        let cell = |from: &Map<String, Value>, name: &String| match from.get(name) {
            None | Some(Value::Null) => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let cells: Vec<String> = (self.columns.iter().map(|name| cell(&row, name)))
            .chain(self.answers.iter().map(|name| cell(answer, name)))
            .collect();
        self.line(cells.iter().map(String::as_str).chain([error]))
    }

    fn line<'a>(&self, cells: impl Iterator<Item = &'a str>) -> Vec<u8> {
        self.format.line(cells).into_bytes()
    }
}
