//! `--skip-done OUT`: prompts that have a message in the output of an earlier run are skipped.

use std::collections::BTreeMap;
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
    /// A short hash of the request hash, by index.
    requests: Hashes,
    /// A short hash of the turns, by index, for messages without a request hash.
    turns: Hashes,
}

/// Hashes by index, eight bytes each in pages, because there may be millions.
#[derive(Default)]
struct Hashes(BTreeMap<u64, Box<[u64; PAGE]>>);

const PAGE: usize = 512;

impl Hashes {
    /// Stores the hash of an index. 0 stands for none.
    fn insert(&mut self, index: u64, hash: u64) {
        let page = self.0.entry(index / PAGE as u64).or_insert_with(|| Box::new([0; PAGE]));
        page[Self::place(index)] = hash;
    }

    fn get(&self, index: u64) -> Option<u64> {
        self.0.get(&(index / PAGE as u64)).map(|page| page[Self::place(index)]).filter(|hash| *hash != 0)
    }

    #[expect(clippy::cast_possible_truncation, reason = "less than a page")]
    fn place(index: u64) -> usize {
        (index % PAGE as u64) as usize
    }
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
        let (mut requests, mut turns) = (Hashes::default(), Hashes::default());
        earlier::read(file, is_dry, |line| {
            let Ok(Line { kind: Some(kind), ok: Some(true), data: Some(data) }) = serde_json::from_slice(line) else {
                return;
            };
            match (data.index.filter(|_| kind == "message"), data.request_hash) {
                (Some(index), Some(hash)) => requests.insert(index, fingerprint(&hash)),
                (Some(index), None) => turns.insert(index, fingerprint_of_turns(&turns_of(data.input))),
                (None, _) => {}
            }
        })?;
        Ok(Self { file: file.to_owned(), requests, turns })
    }

    /// True if the prompt with this index has a message from any of its models. Fails if the message answers another request, because the input or
    /// an option has changed.
    pub(super) fn has_answered(&self, index: u64, work: &mut Work, engine: &Engine) -> Result<bool> {
        let mut unknown = None;
        if let Some(known) = self.requests.get(index) {
            for at in 0..work.targets().len() {
                work.select_target(at);
                match engine.request_hash(work) {
                    Ok(hash) if fingerprint(&hash) == known => return Ok(true),
                    Ok(_) => {}
                    // The answer may be from an endpoint that is no longer configured.
                    Err(error) => unknown = Some(error),
                }
            }
        } else {
            match self.turns.get(index) {
                Some(known) if known != fingerprint_of_turns(work.prompt.input()) => {}
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
    hasher.finish().max(1)
}
