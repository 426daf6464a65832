//! Registries: comma-separated values (RFC 4180) whose first row names the columns.

use std::collections::BTreeMap;

use csv::{ReaderBuilder, StringRecord, Trim};

/// A registry. Rows that are shorter than the first have empty cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: StringRecord,
    rows: Vec<StringRecord>,
}

/// A row by the names of its columns.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    columns: &'a StringRecord,
    cells: &'a StringRecord,
}

impl Row<'_> {
    /// The cell of a column; empty where the table has none.
    pub fn get(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.cells.get(at)).unwrap_or_default()
    }

    /// The row as an object of strings, with the columns in the table's order.
    pub fn to_value(self) -> serde_json::Value {
        let cell = |at: usize| self.cells.get(at).unwrap_or_default().into();
        let members = self.columns.iter().enumerate().map(|(at, name)| (name.to_owned(), cell(at)));
        members.collect::<serde_json::Map<_, _>>().into()
    }
}

impl Table {
    /// Reads a table. Cells in quotes hold commas, line feeds and doubled quotes.
    pub fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut reader = ReaderBuilder::new().flexible(true).trim(Trim::All).from_reader(text.as_bytes());
        // The text is in memory and is UTF-8, and rows may have any length: no row can fail.
        let columns = reader.headers().cloned().unwrap_or_default();
        let rows = reader.into_records().filter_map(Result::ok).filter(|row| row.iter().any(|cell| !cell.is_empty()));
        Self { columns, rows: rows.collect() }
    }

    /// The rows, in order.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text, with these cells in the row that has the first of them already, else in a new row. Other cells stay.
    pub fn with(&self, cells: &[(&str, &str)]) -> String {
        let cell = |column: &str| cells.iter().find(|(name, _)| *name == column).map(|(_, cell)| *cell);
        let is_it = |row: &Row<'_>| cells.first().is_some_and(|(name, id)| row.get(name) == *id);
        let new = StringRecord::new();
        let is_new = !self.rows().any(|row| is_it(&row));
        let rows = self.rows().chain(is_new.then_some(Row { columns: &self.columns, cells: &new }));
        let mut writer = csv::Writer::from_writer(Vec::new());
        // Into memory: nothing can fail.
        let _ = writer.write_record(&self.columns);
        for row in rows {
            let is_it = is_it(&row) || row.cells.is_empty();
            let cells = self.columns.iter().map(|name| cell(name).filter(|_| is_it).unwrap_or_else(|| row.get(name)));
            let _ = writer.write_record(cells);
        }
        String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
    }

    /// How many rows have each value of a column.
    pub fn counts(&self, column: &str) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for row in self.rows() {
            *counts.entry(row.get(column).to_owned()).or_default() += 1;
        }
        counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_commas_and_lines_and_short_rows_have_empty_cells() {
        let table = Table::parse("\u{feff}id,title,status\r\nA,\"x, \"\"y\"\"\nz\",active\r\n\nB\n,,\n");
        let cells: Vec<_> =
            table.rows().map(|row| ["id", "title", "status"].map(|name| row.get(name).to_owned())).collect();
        assert_eq!(cells, [["A", "x, \"y\"\nz", "active"], ["B", "", ""]]);
        assert_eq!(table.len(), 2);
        assert_eq!(table.rows().next().unwrap().get("none"), "");
        assert_eq!(table.counts("status")["active"], 1);
        let text = table.with(&[("id", "B"), ("status", "a,b")]);
        assert_eq!(text, "id,title,status\nA,\"x, \"\"y\"\"\nz\",active\nB,,\"a,b\"\n");
        assert_eq!(Table::parse(&text).with(&[("id", "C")]), text + "C,,\n");
    }
}
