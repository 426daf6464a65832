//! `--resume OUT`: the output of an earlier run says which prompts have their message, and those are not sent again.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use cp_common::context::given;
use cp_common::wire::Turn;
use cp_common::{Code, Error, Result};
use serde::Deserialize;

/// What an earlier run has answered.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// The index of each prompt that was answered, and a hash of its turns.
    answered: HashMap<u64, u64>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: Option<String>,
    ok: Option<bool>,
    data: Option<Data>,
}

#[derive(Deserialize)]
struct Data {
    index: Option<u64>,
    #[serde(default)]
    input: Vec<Turn>,
}

impl EarlierRun {
    /// Reads the output of the earlier run. A last line that was torn when it was killed is cut off, so that what is appended now
    /// begins on a line of its own.
    pub(super) fn read(file: &Path) -> Result<Self> {
        let mut earlier = Self { file: file.to_owned(), answered: HashMap::new() };
        let wrong = |e: std::io::Error| Error::io("reading the earlier output", e).in_file(file).fatal();
        let input = match given::seekable(file) {
            Err(e) if e.code() == Code::NotFound => return Ok(earlier),
            other => other.map_err(Error::fatal)?,
        };
        let mut reader = BufReader::new(&input);
        let (mut line, mut whole) = (Vec::new(), 0);
        loop {
            line.clear();
            let length = reader.read_until(b'\n', &mut line).map_err(wrong)?;
            if length == 0 {
                break;
            }
            if !line.ends_with(b"\n") {
                if file.is_file() {
                    OpenOptions::new()
                        .write(true)
                        .open(file)
                        .and_then(|output| output.set_len(whole))
                        .map_err(wrong)?;
                }
                break;
            }
            whole += length as u64;
            let Ok(Line { kind: Some(kind), ok: Some(true), data: Some(data) }) = serde_json::from_slice(&line) else {
                continue;
            };
            if let ("message", Some(index)) = (kind.as_str(), data.index) {
                earlier.answered.insert(index, fingerprint(&data.input));
            }
        }
        Ok(earlier)
    }

    /// Whether the prompt with this index has its message. A prompt with other turns at that index is another input.
    pub(super) fn has(&self, index: u64, input: &[Turn]) -> Result<bool> {
        match self.answered.get(&index) {
            None => Ok(false),
            Some(known) if *known == fingerprint(input) => Ok(true),
            Some(_) => {
                Err(Error::new(Code::Conflict, format!("the earlier output answers another prompt with index {index}"))
                    .in_file(&self.file)
                    .hint("give the input that it was made from")
                    .fatal())
            }
        }
    }
}

fn fingerprint(input: &[Turn]) -> u64 {
    let mut hasher = DefaultHasher::new();
    serde_json::to_string(input).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}
