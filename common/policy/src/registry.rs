//! Registries: comma-separated values (RFC 4180) whose first row names the columns.

use std::collections::BTreeMap;

use cp_common::{Error, Result};
use cp_table::{Format, Records};

/// A registry. Missing cells at the end of a row are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row with named cells.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    columns: &'a [String],
    cells: &'a [String],
}

impl Row<'_> {
    /// Returns the cell of a column; empty if the table lacks the column.
    pub fn get(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.cells.get(at)).map_or("", String::as_str)
    }

    /// Returns the row as an object of strings, in the order of the columns.
    pub fn to_value(self) -> serde_json::Value {
        let cell = |at: usize| self.cells.get(at).map_or("", String::as_str).into();
        let members = self.columns.iter().enumerate().map(|(at, name)| (name.to_owned(), cell(at)));
        members.collect::<serde_json::Map<_, _>>().into()
    }
}

impl Table {
    /// Parses a table. Quoted cells may contain commas, line feeds and doubled quotes.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut records, mut rows) = (Records::new(text.as_bytes(), Format::Csv), Vec::new());
        while let Some((line, cells)) = records.read().map_err(|e| Error::io("reading", e))? {
            let cells = cells.map_err(|error| error.at_line(line))?;
            // The cells of a text are texts.
            rows.push(cells.iter().map(|cell| String::from_utf8_lossy(cell).trim().to_owned()).collect::<Vec<_>>());
        }
        let columns = if rows.is_empty() { Vec::new() } else { rows.remove(0) };
        rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        Ok(Self { columns, rows })
    }

    /// Returns the rows in order.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }

    /// Returns the table as text, with these cells set in the row that matches the first of them, else in a new row.
    /// Other cells are kept.
    pub fn with(&self, cells: &[(&str, &str)]) -> String {
        let cell = |column: &str| cells.iter().find(|(name, _)| *name == column).map(|(_, cell)| *cell);
        let is_it = |row: &Row<'_>| cells.first().is_some_and(|(name, id)| row.get(name) == *id);
        let is_new = !self.rows().any(|row| is_it(&row));
        let rows = self.rows().chain(is_new.then_some(Row { columns: &self.columns, cells: &[] }));
        let header = Format::Csv.line(self.columns.iter().map(String::as_str));
        rows.fold(header, |text, row| {
            let is_it = is_it(&row) || row.cells.is_empty();
            let value = |name: &String| cell(name).filter(|_| is_it).unwrap_or_else(|| row.get(name)).to_owned();
            let cells: Vec<String> = self.columns.iter().map(value).collect();
            text + &Format::Csv.line(cells.iter().map(String::as_str))
        })
    }

    /// Counts the rows by the value of a column.
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
    fn quoted_cells_keep_commas_and_short_rows_have_empty_cells() {
        let table = Table::parse("\u{feff}id,title,status\r\nA,\"x, \"\"y\"\"\nz\",active\r\n\nB\n,,\n").unwrap();
        let cells: Vec<_> =
            table.rows().map(|row| ["id", "title", "status"].map(|name| row.get(name).to_owned())).collect();
        assert_eq!(cells, [["A", "x, \"y\"\nz", "active"], ["B", "", ""]]);
        assert_eq!(table.rows().len(), 2);
        assert_eq!(table.rows().next().unwrap().get("none"), "");
        assert_eq!(table.counts("status")["active"], 1);
        let text = table.with(&[("id", "B"), ("status", "a,b")]);
        assert_eq!(text, "id,title,status\nA,\"x, \"\"y\"\"\nz\",active\nB,,\"a,b\"\n");
        assert_eq!(Table::parse(&text).unwrap().with(&[("id", "C")]), text + "C,,\n");
        let damaged = Table::parse("id,title\nA,x\nB,\"y\nC,z\n").unwrap_err();
        assert!(damaged.message().contains("line 3"), "{}", damaged.message());
    }
}
