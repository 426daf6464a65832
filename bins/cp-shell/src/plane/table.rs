//! Registries: comma-separated values whose first row names the columns.

use std::collections::BTreeMap;

/// A registry. Rows that are shorter than the first have empty columns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    columns: Vec<String>,
    rows: Vec<Vec<String>>,
}

/// A row by the names of its columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row<'a> {
    columns: &'a [String],
    cells: &'a [String],
}

impl Row<'_> {
    /// What stands in a column; empty where the table has none.
    pub(crate) fn get(&self, column: &str) -> &str {
        let at = self.columns.iter().position(|name| name == column);
        at.and_then(|at| self.cells.get(at)).map(String::as_str).unwrap_or_default()
    }

    /// The row as an object of strings, with the columns in the table's order.
    pub(crate) fn to_value(self) -> serde_json::Value {
        let cell = |at: usize| self.cells.get(at).cloned().unwrap_or_default();
        self.columns
            .iter()
            .enumerate()
            .map(|(at, name)| (name.clone(), cell(at).into()))
            .collect::<serde_json::Map<_, _>>()
            .into()
    }
}

impl Table {
    /// Reads a table. Cells in quotes hold commas, line feeds and doubled quotes.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut rows: Vec<Vec<String>> = Vec::new();
        let mut row = vec![String::new()];
        let (mut quoted, mut characters) = (false, text.chars().peekable());
        let put = |row: &mut Vec<String>, character: char| {
            if let Some(cell) = row.last_mut() {
                cell.push(character);
            }
        };
        while let Some(character) = characters.next() {
            match character {
                '"' if quoted && characters.peek() == Some(&'"') => {
                    characters.next();
                    put(&mut row, '"');
                }
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(String::new()),
                '\r' if !quoted => {}
                '\n' if !quoted => rows.push(std::mem::replace(&mut row, vec![String::new()])),
                _ => put(&mut row, character),
            }
        }
        rows.push(row);
        rows.retain(|row| row.iter().any(|cell| !cell.is_empty()));
        let mut rows = rows.into_iter();
        let columns = rows.next().unwrap_or_default().into_iter().map(|name| name.trim().to_owned()).collect();
        let rows = rows.map(|row| row.into_iter().map(|cell| cell.trim().to_owned()).collect()).collect();
        Self { columns, rows }
    }

    /// The rows, in order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|cells| Row { columns: &self.columns, cells })
    }

    /// How many rows there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// How many rows have each value of a column.
    pub(crate) fn counts(&self, column: &str) -> BTreeMap<String, usize> {
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
        let table = Table::parse("\u{feff}id,title,status\r\nA,\"x, \"\"y\"\"\nz\",active\r\n\nB\n");
        let rows: Vec<_> = table
            .rows()
            .map(|row| (row.get("id").to_owned(), row.get("title").to_owned(), row.get("status").to_owned()))
            .collect();
        assert_eq!(
            rows,
            [("A".into(), "x, \"y\"\nz".into(), "active".into()), ("B".into(), String::new(), String::new())]
        );
        assert_eq!(table.len(), 2);
        assert_eq!(table.rows().next().unwrap().get("none"), "");
    }
}
