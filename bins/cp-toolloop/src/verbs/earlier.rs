//! `--resume OUT`: the output of an earlier run says which rows have their answer, and which runs were begun for the others.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use cp_common::stream::earlier;
use cp_common::{Code, Context, Error, Result};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What an earlier run has done.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// By index.
    rows: HashMap<u64, EarlierRow>,
}

/// What it has done about a row.
#[derive(Default)]
pub(super) struct EarlierRow {
    /// The run that was begun.
    pub(super) run: String,
    /// The hash of what was asked.
    request: String,
    /// Whether its last message is there.
    pub(super) is_answered: bool,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    index: u64,
    run_id: Option<String>,
    request: Option<String>,
    tool_calls: Option<Vec<IgnoredAny>>,
}

impl EarlierRun {
    /// Reads the output of the earlier run, and holds it.
    pub(super) fn read(file: &Path, context: &Context) -> Result<Self> {
        context.home.check_writable(file)?;
        let mut rows = HashMap::<u64, EarlierRow>::new();
        earlier::read(file, false, |line| {
            let Ok(Line { kind, data }) = serde_json::from_slice(line) else { return };
            let row = rows.entry(data.index).or_default();
            match (kind, data) {
                ("item", Data { run_id: Some(run), request: Some(request), .. }) if row.run != run => {
                    *row = EarlierRow { run, request, is_answered: false };
                }
                ("message", data) => row.is_answered |= data.tool_calls.is_some_and(|calls| calls.is_empty()),
                _ => {}
            }
        })?;
        Ok(Self { file: file.to_owned(), rows })
    }

    /// What was done about the row with this index. A row that asks something else there is another input.
    pub(super) fn at(&self, index: u64, request: &str) -> Result<Option<&EarlierRow>> {
        match self.rows.get(&index) {
            Some(row) if row.request != request => {
                let message = format!(
                    "the earlier output is of another row with index {index}, or of other tools or another model"
                );
                Err(Error::new(Code::Conflict, message)
                    .in_file(&self.file)
                    .with("index", index)
                    .hint("give the rows and the options that it was made with, or begin another output")
                    .fatal())
            }
            row => Ok(row),
        }
    }
}
