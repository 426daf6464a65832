//! `--skip-done OUT`: prompts that have a message in the output of an earlier run are skipped.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use cp_common::stream::earlier;
use cp_common::wire::Turn;
use cp_common::{Code, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::engine::{Engine, Work};

/// The prompts that an earlier run has answered.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// A short hash of the request hash, by index. There may be millions.
    requests: HashMap<u64, u64>,
    /// A short hash of the turns, by index, for messages without a request hash.
    turns: HashMap<u64, u64>,
}

#[derive(Deserialize)]
struct Line<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    ok: Option<bool>,
    #[serde(borrow)]
    data: Option<Data<'a>>,
}

#[derive(Deserialize)]
struct Data<'a> {
    index: Option<u64>,
    request_hash: Option<String>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

impl EarlierRun {
    /// Reads the output of the earlier run, and locks it unless this is a dry run.
    pub(super) fn read(file: &Path, is_dry: bool) -> Result<Self> {
        let (mut requests, mut turns) = (HashMap::new(), HashMap::new());
        earlier::read(file, is_dry, |line| {
            let Ok(Line { kind: Some(kind), ok: Some(true), data: Some(data) }) = serde_json::from_slice(line) else {
                return;
            };
            match (data.index.filter(|_| kind == "message"), data.request_hash) {
                (Some(index), Some(hash)) => drop(requests.insert(index, fingerprint(&hash))),
                (Some(index), None) => drop(turns.insert(index, fingerprint_of_turns(&turns_of(data.input)))),
                (None, _) => {}
            }
        })?;
        Ok(Self { file: file.to_owned(), requests, turns })
    }

    /// True if the prompt with this index has a message from any of its models. Fails if the message answers another request, because the input or
    /// an option has changed.
    pub(super) fn has_answered(&self, index: u64, work: &mut Work, engine: &Engine) -> Result<bool> {
        let mut unknown = None;
        if let Some(known) = self.requests.get(&index) {
            for at in 0..work.targets().len() {
                work.select_target(at);
                match engine.request_hash(work) {
                    Ok(hash) if fingerprint(&hash) == *known => return Ok(true),
                    Ok(_) => {}
                    // The answer may be from an endpoint that is no longer configured.
                    Err(error) => unknown = Some(error),
                }
            }
        } else {
            match self.turns.get(&index) {
                Some(known) if *known != fingerprint_of_turns(work.prompt.input()) => {}
                known => return Ok(known.is_some()),
            }
        }
        let message = format!("the earlier output answers another request with index {index}");
        Err(unknown
            .unwrap_or_else(|| {
                Error::new(Code::Conflict, message)
                    .in_file(&self.file)
                    .with("index", index)
                    .hint("use the input, the model and the options of the earlier run, or a new output")
            })
            .fatal())
    }
}

fn turns_of(input: Option<&RawValue>) -> Vec<Turn> {
    input.and_then(|input| serde_json::from_str(input.get()).ok()).unwrap_or_default()
}

fn fingerprint_of_turns(input: &[Turn]) -> u64 {
    fingerprint(&serde_json::to_string(input).unwrap_or_default())
}

fn fingerprint(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
