//! Registries: comma-separated values (RFC 4180) whose first row names the columns.

use cp_common::{Error, Result};
use cp_table::{Format, Records};
use serde_json::{Map, Value};

/// A registry. Missing cells at the end of a row are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    columns: Vec<String>,
    /// The rows in order.
    pub rows: Vec<Row>,
}

/// A row: its cells by column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Row(Map<String, Value>);

impl Row {
    /// Returns the cell of a column; empty if the table lacks the column.
    pub fn get(&self, column: &str) -> &str {
        self.0.get(column).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns the row as an object of strings, in the order of the columns.
    pub fn to_value(&self) -> Value {
        self.0.clone().into()
    }
}

impl Table {
    /// Parses a table. Quoted cells may contain commas, line feeds and doubled quotes.
    pub fn parse(text: &str) -> Result<Self> {
        let (mut records, mut table) = (Records::new(text.as_bytes(), Format::Csv(',')), Self::default());
        while let Some(record) = records.read().map_err(|e| Error::io("reading", e))? {
            record.fault.map_or(Ok(()), Err)?;
            let mut cells = record.fields.iter().map(|cell| cell.trim().to_owned());
            if table.columns.is_empty() {
                table.columns = cells.collect();
            } else {
                let row = table.columns.iter().map(|name| (name.clone(), cells.next().unwrap_or_default().into()));
                table.rows.push(Row(row.collect()));
            }
        }
        table.rows.retain(|row| row.0.values().any(|cell| cell != ""));
        Ok(table)
    }

    /// Returns the table as text, with these cells set in the row that matches the first of them, else in a new row.
    /// Other cells are kept.
    pub fn with(&self, cells: &[(&str, &str)]) -> String {
        let mut rows = self.rows.clone();
        let at = rows.iter().position(|row| cells.first().is_some_and(|(name, id)| row.get(name) == *id));
        let at = at.unwrap_or(rows.len());
        rows.resize(rows.len().max(at + 1), Row::default());
        rows[at].0.extend(cells.iter().map(|(name, cell)| ((*name).to_owned(), (*cell).into())));
        let header = Format::Csv(',').line(self.columns.iter().map(String::as_str));
        rows.iter()
            .fold(header, |text, row| text + &Format::Csv(',').line(self.columns.iter().map(|name| row.get(name))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_cells_keep_commas_and_short_rows_have_empty_cells() {
        let table = Table::parse("\u{feff}id,title,status\r\nA,\"x, \"\"y\"\"\nz\",active\r\n\nB\n,,\n").unwrap();
        let cells: Vec<_> =
            table.rows.iter().map(|row| ["id", "title", "status"].map(|name| row.get(name).to_owned())).collect();
        assert_eq!(cells, [["A", "x, \"y\"\nz", "active"], ["B", "", ""]]);
        assert_eq!(table.rows.len(), 2);
        assert_eq!(table.rows[0].get("none"), "");
        let text = table.with(&[("id", "B"), ("status", "a,b")]);
        assert_eq!(text, "id,title,status\nA,\"x, \"\"y\"\"\nz\",active\nB,,\"a,b\"\n");
        assert_eq!(Table::parse(&text).unwrap().with(&[("id", "C")]), text + "C,,\n");
        let damaged = Table::parse("id,title\nA,x\nB,\"y\nC,z\n").unwrap_err();
        assert!(damaged.message().contains("line 3"), "{}", damaged.message());
    }
}
