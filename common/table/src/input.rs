//! A thread converts the table to JSON rows, one a line, and standard input of the process becomes the pipe that it
//! writes to. Empty lines pad the rows, so that a row has the line number of its record in the table.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _, Write};

use cp_common::context::options::StreamOptions;
use cp_common::stream::filter::Source;
use cp_common::{Error, Result};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use crate::records::{Format, Record, Records, Writer};
use crate::template::Template;

/// The options that select a table on standard input.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
#[command(
    next_help_heading = "Options of a stream",
    group = clap::ArgGroup::new("table").conflicts_with_all(["input", "rows"])
)]
#[group(skip)]
pub struct TableOptions {
    /// Standard input is a text on each line; {{text}} stands for it
    #[arg(long, group = "table")]
    lines: bool,
    /// Standard input is CSV with a header row; {{column}} stands for a field
    #[arg(long, group = "table")]
    csv: bool,
    /// The same with tabs instead of commas, and quotes as text
    #[arg(long, group = "table", hide_short_help = true)]
    tsv: bool,
    /// The character between the fields of --csv, as `;`
    #[arg(long, value_name = "CHAR", value_parser = delimiter, requires = "csv", conflicts_with_all = ["lines", "tsv"])]
    #[arg(hide_short_help = true)]
    delimiter: Option<char>,
}

impl TableOptions {
    /// The format of the table, if an option selects one.
    pub fn format(self) -> Option<Format> {
        let csv = Format::Csv(self.delimiter.unwrap_or(','));
        let formats = [(self.lines, Format::Lines), (self.csv, csv), (self.tsv, Format::Tsv)];
        formats.into_iter().find_map(|(is_given, format)| is_given.then_some(format))
    }

    /// The source of the input: a text beside a table is a template, not the input.
    pub fn source(self, texts: &[String]) -> Result<Source> {
        match Source::from_operands(texts)? {
            source if self.format().is_none() => Ok(source),
            Source::Argument(_) | Source::Input => Ok(Source::Input),
            _ => Err(Error::usage("a table is standard input, which - would add as text").hint("leave - out")),
        }
    }

    /// The options of the stream, which has rows if an option selects a table.
    #[must_use]
    pub fn stream(self, options: StreamOptions) -> StreamOptions {
        StreamOptions { rows: options.rows || self.format().is_some(), ..options }
    }

    /// The template of the command line for the rows of a table. The text of a line follows a template that names
    /// nothing.
    pub fn template(self, text: Option<&String>) -> Result<Option<Template>> {
        let Some(format) = self.format() else { return Ok(None) };
        let text = text.map_or("", String::as_str);
        let text = match format {
            _ if text.contains("{{") || text.contains("{%") => text.to_owned(),
            Format::Lines => format!("{text}\n\n{{{{text}}}}").trim_start().to_owned(),
            _ => {
                return Err(Error::usage("a table needs a text that names its columns")
                    .hint("write a column in two braces: 'Translate: {{title}}'"));
            }
        };
        Template::new(text, None).map(Some)
    }

    /// Replaces standard input by the rows of the table, and returns the names of its columns. Fails if its header row
    /// is not usable.
    pub fn open(self) -> Result<Option<Vec<String>>> {
        let Some(format) = self.format().filter(|_| !io::stdin().is_terminal()) else { return Ok(None) };
        let stdin = File::from(rustix::stdio::stdin().try_clone_to_owned()?);
        let mut records = Records::new(BufReader::new(stdin), format);
        let columns = header(&mut records)?;
        let (reader, mut writer) = io::pipe()?;
        rustix::stdio::dup2_stdin(&reader)?;
        let names = columns.clone();
        // The thread ends with the table, or when nobody reads its rows anymore.
        std::thread::spawn(move || convert(&names, records, &mut writer));
        Ok(Some(columns))
    }

    /// A writer of the columns of a table and the columns of its answers, which replace those of an earlier pass. Lines
    /// have no table.
    pub fn writer(self, columns: &[String], mut answers: Vec<String>) -> Result<Option<Writer>> {
        let Some(format) = self.format().filter(|format| *format != Format::Lines) else { return Ok(None) };
        answers.push("error".to_owned());
        // Only a table of answers ends with all of these columns, so that others keep theirs.
        let columns = columns.strip_suffix(&answers[..]).unwrap_or(columns).to_vec();
        match unusable(columns.iter().chain(&answers)) {
            Some(name) => Err(Error::usage(format!("the table of answers has an empty or repeated column: `{name}`"))
                .hint("rename it in the table; --column NAME or the schema names those of the answers")),
            None => Ok(Some(Writer { format, columns, answers })),
        }
    }
}

fn delimiter(text: &str) -> Result<char, &'static str> {
    let one = text.bytes().next().filter(|byte| text.len() == 1 && !b"\"\r\n\0".contains(byte));
    one.map(char::from).ok_or("must be one ASCII character, and not a quote or a line end")
}

/// The first name of a column that is empty or repeated.
fn unusable<'a>(names: impl IntoIterator<Item = &'a String>) -> Option<&'a String> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| name.trim().is_empty() || !seen.insert(*name))
}

/// Reads the names of the columns. Lines have no header row.
fn header(records: &mut Records<impl BufRead>) -> Result<Vec<String>> {
    if records.format == Format::Lines {
        return Ok(vec!["text".to_owned()]);
    }
    let wrong = |what: &str| Error::validation(format!("the header row of the table {what}"));
    let missing = || wrong("is missing").hint("the first line has the names of the columns");
    let Record { fields, fault, .. } = records.read()?.ok_or_else(missing)?;
    fault.map_or(Ok(()), Err)?;
    match unusable(&fields) {
        Some(name) => Err(wrong(&format!("has an empty or repeated name: `{name}`"))),
        None => Ok(fields),
    }
}

/// Fails if the record of this row is damaged: then the row has only its error, an object. Fields are strings.
pub fn check(row: &RawValue) -> Result<()> {
    // Only the row of a damaged record is decoded.
    let damaged = Some(row.get()).filter(|row| row.starts_with(r#"{"error":{"#));
    damaged
        .map_or(Ok(()), |row| Err(Error::from_value(&serde_json::from_str::<Value>(row).unwrap_or_default()["error"])))
}

/// Writes the rows of the records.
fn convert(columns: &[String], mut records: Records<impl BufRead>, into: &mut impl Write) -> io::Result<()> {
    let (expected, mut at) = (columns.len(), 0);
    while let Some(Record { line, mut fields, fault }) = records.read()? {
        let found = fields.len();
        let ragged = || Error::validation(format!("fields of the record: {found}, of the header: {expected}"));
        let fault = fault.or_else(|| (found != expected).then(|| ragged().at_line(line as u64)));
        if found > expected {
            // Such as a text with commas that is not in quotes.
            let last = fields.split_off(expected - 1).join(&records.format.delimiter().to_string());
            fields.push(last);
        }
        let row: Map<_, _> = columns.iter().cloned().zip(fields.into_iter().map(Value::from)).collect();
        let mut row = to_raw_value(&row)?;
        if let Some(error) = fault {
            row = to_raw_value(&json!({"error": error.with_row(Some(&row)).to_value()}))?;
        }
        into.write_all(format!("{}{row}\n", "\n".repeat(line - at - 1)).as_bytes())?;
        at = line;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use proptest::prelude::*;

    /// The rows and the faults of a table, by line.
    type Converted = (BTreeMap<u64, Map<String, Value>>, BTreeMap<u64, String>);

    fn converted(bytes: &[u8], format: Format) -> Result<Converted> {
        let mut records = Records::new(bytes, format);
        let columns = header(&mut records)?;
        let mut text = Vec::new();
        convert(&columns, records, &mut text).unwrap();
        let (mut rows, mut faults) = (BTreeMap::new(), BTreeMap::new());
        for (number, line) in
            (1..).zip(std::str::from_utf8(&text).unwrap().lines()).filter(|(_, line)| !line.is_empty())
        {
            match check(serde_json::from_str(line).unwrap()) {
                Ok(()) => drop(rows.insert(number, serde_json::from_str(line).unwrap())),
                Err(error) => drop(faults.insert(number, error.message().to_owned())),
            }
        }
        Ok((rows, faults))
    }

    fn table(text: &str) -> Result<Converted> {
        converted(text.as_bytes(), Format::Csv(','))
    }

    proptest! {
        #[test]
        fn any_bytes_are_rows_or_errors(bytes in prop::collection::vec(prop::sample::select(&b"a,\"\n\r\t\xFF {"[..]), 0..40)) {
            for format in [Format::Csv(','), Format::Tsv, Format::Lines] {
                drop(converted(&bytes, format));
            }
        }
    }

    #[test]
    fn record_keeps_its_line_number() {
        let text = "a,b\n1,\"x\ny\"\n\n2,3\n4\n5,6\n";
        for text in [text.to_owned(), text.replace('\n', "\r\n"), format!("\u{feff}{text}"), text.trim_end().to_owned()]
        {
            let (rows, faults) = table(&text).unwrap();
            assert_eq!(rows.keys().copied().collect::<Vec<_>>(), [2, 5, 7], "{text:?}");
            assert_eq!(rows[&5]["a"], "2", "{text:?}");
            let fault = "line 6: fields of the record: 1, of the header: 2";
            assert_eq!(faults, BTreeMap::from([(6, fault.to_owned())]), "{text:?}");
        }
    }

    #[test]
    fn unusable_header_is_error() {
        for text in ["", "\n\n", "a,a\n1,2\n", "a,\n1,2\n", "a, \n"] {
            assert!(table(text).is_err(), "{text:?}");
        }
        assert!(table("a,b\n").unwrap().0.is_empty());
    }

    #[test]
    fn lines_are_texts() {
        let lines = b"\xEF\xBB\xBFone\r\n\n \ntwo, \"x\"\n\xFF\nlast";
        let (rows, faults) = converted(lines, Format::Lines).unwrap();
        let texts: Vec<(u64, &str)> =
            rows.iter().filter_map(|(line, row)| Some((*line, row.get("text")?.as_str()?))).collect();
        assert_eq!(texts, [(1, "one"), (4, "two, \"x\""), (6, "last")]);
        assert_eq!(faults.keys().copied().collect::<Vec<_>>(), [5]);
    }
}
