//! Records of CSV (RFC 4180), of tab-separated values and of lines, each with the line on which it begins.

use std::collections::BTreeMap;
use std::io::{self, BufRead};
use std::mem::take;

use cp_common::Error;
use cp_common::context::given::text_of;
use serde_json::value::RawValue;

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Each line is one field. A line of blanks is not a record.
    Lines,
    /// This delimiter, usually a comma, and quotes around a field that contains it, a quote or a line end.
    Csv(char),
    /// Tabs. A quote is text.
    Tsv,
}

impl Format {
    pub(crate) const fn delimiter(self) -> char {
        if let Self::Csv(delimiter) = self { delimiter } else { '\t' }
    }

    /// A record as a line. Values between tabs have no quotes, so that tabs and line ends in them are escaped. A field
    /// that was read is written as it was.
    pub fn line(self, cells: impl Iterator<Item = impl AsRef<str>>) -> String {
        let cells: Vec<String> = cells.map(|cell| self.cell(cell.as_ref())).collect();
        cells.join(&self.delimiter().to_string()) + "\n"
    }

    fn cell(self, text: &str) -> String {
        match self {
            // A field that was read has a tab if its record has too many fields.
            Self::Tsv => text.replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r"),
            _ if text.contains([self.delimiter(), '"', '\n', '\r']) => format!("\"{}\"", text.replace('"', "\"\"")),
            _ => text.to_owned(),
        }
    }
}

/// A record of a table.
#[derive(Debug)]
pub struct Record {
    /// The line on which the record begins.
    pub line: usize,
    /// The fields. Of a damaged record, those before the damage.
    pub fields: Vec<String>,
    /// The reason why the record is not valid.
    pub fault: Option<Error>,
}

/// The records of a table. A damaged record is an error, because what follows its quote may be other records.
pub struct Records<R> {
    input: R,
    pub(crate) format: Format,
    /// The number of line feeds that were read.
    feeds: usize,
}

impl<R: BufRead> Records<R> {
    /// The records of an input, which may begin with a byte order mark.
    pub const fn new(input: R, format: Format) -> Self {
        Self { input, format, feeds: 0 }
    }

    /// The next record. Empty lines are not records. What follows damage on its line is skipped.
    pub fn read(&mut self) -> io::Result<Option<Record>> {
        let (mut fields, mut field, mut start, mut line) = (Vec::new(), Vec::new(), None, Vec::new());
        // After a quote in quotes, which closes the field unless a second one follows, it is closed.
        let (mut is_quoted, mut is_closed, mut damage) = (false, false, None);
        let (is_lines, has_quotes) = (self.format == Format::Lines, matches!(self.format, Format::Csv(_)));
        while self.input.read_until(b'\n', &mut line)? > 0 {
            self.feeds += 1;
            let text = line.strip_suffix(b"\n").unwrap_or(&line);
            let text = text.strip_suffix(b"\r").unwrap_or(text);
            let line_end = &line[text.len()..];
            let text = text.strip_prefix(b"\xEF\xBB\xBF").filter(|_| self.feeds == 1).unwrap_or(text);
            let is_empty = if is_lines { text.trim_ascii().is_empty() } else { text.is_empty() };
            if start.is_some() || !is_empty {
                start.get_or_insert(self.feeds);
                for &byte in text {
                    match byte {
                        _ if damage.is_some() => break,
                        b'"' if is_quoted => (is_quoted, is_closed) = (false, true),
                        _ if is_quoted => field.push(byte),
                        b'"' if is_closed || has_quotes && field.is_empty() => {
                            field.extend(is_closed.then_some(byte));
                            (is_quoted, is_closed) = (true, false);
                        }
                        b'\r' if !is_lines => damage = Some("a carriage return is not followed by a line feed"),
                        _ if !is_lines && char::from(byte) == self.format.delimiter() => {
                            is_closed = false;
                            fields.push(take(&mut field));
                        }
                        _ if is_closed => damage = Some("text follows the closing quote of a field"),
                        _ => field.push(byte),
                    }
                }
                if !is_quoted {
                    break;
                }
                field.extend_from_slice(line_end);
            }
            line.clear();
        }
        let Some(line) = start else { return Ok(None) };
        let damage = damage.or(is_quoted.then_some("a quote opens a field and none closes it"));
        // The damage is in the last field.
        fields.extend(damage.is_none().then_some(field));
        let hint = "a field with a quote or a line end is in quotes, and a quote in it is doubled";
        let fault = damage.map(|what| Error::validation(what).hint(hint));
        let fault = fault.or_else(|| fields.iter().find_map(|field| text_of(field).err()));
        let fields = fields.iter().map(|field| String::from_utf8_lossy(field).into_owned()).collect();
        Ok(Some(Record { line, fields, fault: fault.map(|e| e.at_line(line as u64)) }))
    }
}

/// Writes records of a table.
#[derive(Debug)]
pub struct Writer {
    pub(crate) format: Format,
    pub(crate) columns: Vec<String>,
    /// The columns of the answers; the last is `error`.
    pub(crate) answers: Vec<String>,
}

impl Writer {
    /// The header row: the columns of the table, then those of the answers.
    pub fn header(&self) -> Vec<u8> {
        self.format.line(self.columns.iter().chain(&self.answers)).into_bytes()
    }

    /// The record of a row, its answer by column, and its error. Between tabs, backslashes of the new fields are escaped
    /// too, as by jq.
    pub fn record(&self, row: Option<&RawValue>, answer: Option<&RawValue>, error: &str) -> Vec<u8> {
        let new = cells(answer, &self.answers[..self.answers.len() - 1]).chain([error.to_owned()]);
        let new = new.map(|text| if self.format == Format::Tsv { text.replace('\\', "\\\\") } else { text });
        self.format.line(cells(row, &self.columns).chain(new)).into_bytes()
    }
}

/// The members of an object with these names, as they are written there.
fn cells(object: Option<&RawValue>, names: &[String]) -> impl Iterator<Item = String> {
    let members = object.and_then(|object| serde_json::from_str(object.get()).ok());
    let members: BTreeMap<String, &RawValue> = members.unwrap_or_default();
    names.iter().map(move |name| match members.get(name).map_or("null", |value| value.get()) {
        "null" => String::new(),
        text if text.starts_with('"') => serde_json::from_str(text).unwrap_or_default(),
        other => other.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The records of a text, each with its line; `None` for a damaged one.
    fn read(text: &str, format: Format) -> Vec<(usize, Option<Vec<String>>)> {
        let mut records = Records::new(text.as_bytes(), format);
        std::iter::from_fn(|| records.read().unwrap())
            .map(|record| (record.line, record.fault.is_none().then_some(record.fields)))
            .collect()
    }

    proptest! {
        #[test]
        fn record_that_was_written_is_read_with_its_line(
            records in prop::collection::vec(prop::collection::vec("[a-c,;\t\"\n\r\\\\ é{}]{0,6}", 2), 0..8),
            format in prop::sample::select(&[Format::Tsv, Format::Csv(','), Format::Csv(';'), Format::Csv('\t')][..]),
            has_mark: bool,
        ) {
            let (mut text, mut expected) = (String::new(), Vec::new());
            for cells in records {
                let line = text.matches('\n').count() + 1;
                let written = format.line(cells.iter());
                // What is escaped is read as it is written, and written as it is read.
                let cells = if format == Format::Tsv { cells.iter().map(|cell| format.cell(cell)).collect() } else { cells };
                prop_assert_eq!(&format.line(cells.iter()), &written);
                text += &written;
                expected.push((line, Some(cells)));
            }
            let mark = if has_mark { "\u{feff}" } else { "" };
            prop_assert_eq!(read(&format!("{mark}{text}"), format), expected);
        }
    }

    /// One and two quotes at each place of a table. A quote that is not at the start of a field is text.
    #[test]
    fn quote_at_any_place_takes_no_record_for_text() {
        let table = "i,t\n1,open\n2,b\n3,c\n";
        let lines = |text: &str| text.matches('\n').count();
        let plain = read(table, Format::Csv(','));
        assert_eq!(plain.len(), 4, "the control");
        let places = 0..table.len();
        for (first, second) in places.clone().flat_map(|first| (first..=table.len()).map(move |second| (first, second)))
        {
            // A second quote at the end is none.
            let (start, rest) = table.split_at(first);
            let (between, end) = rest.split_at(second - first);
            let quote = if end.is_empty() { "" } else { "\"" };
            let text = format!("{start}\"{between}{quote}{end}");
            let opens = start.is_empty() || start.ends_with([',', '\n']);
            let closes = end.starts_with([',', '\n']);
            let is_damaged = opens && !closes;
            let found = read(&text, Format::Csv(','));
            let (line, record) = &found[lines(start)];
            // The second quote may open a field of its own.
            let opens_later = !opens && !quote.is_empty() && between.ends_with([',', '\n']);
            assert_eq!(*line, lines(start) + 1, "{text:?}");
            assert_eq!(record.is_none(), is_damaged || opens_later && !between.contains('\n'), "{text:?}: {found:?}");
            assert_eq!(
                found.iter().any(|(_, record)| record.is_none()),
                is_damaged || opens_later,
                "{text:?}: {found:?}"
            );
            assert_eq!(found[..lines(start)], plain[..lines(start)], "{text:?}");

            let tabs = read(&text.replace(',', "\t"), Format::Tsv);
            let quotes: usize =
                tabs.iter().flat_map(|(_, cells)| cells.iter().flatten()).map(|cell| cell.matches('"').count()).sum();
            assert_eq!((tabs.len(), quotes), (4, 1 + quote.len()), "{text:?}: {tabs:?}");
        }
    }

    #[test]
    fn carriage_return_without_line_feed_is_damage() {
        let found = read("a,b\r\n\r\n1,\"x\ry\r\n\"\r\n2\r3,4\n5,6\r", Format::Csv(','));
        let cells = |cells: [&str; 2]| Some(cells.map(str::to_owned).to_vec());
        let expected = [(1, cells(["a", "b"])), (3, cells(["1", "x\ry\r\n"])), (5, None), (6, cells(["5", "6"]))];
        assert_eq!(found, expected);
    }
}
