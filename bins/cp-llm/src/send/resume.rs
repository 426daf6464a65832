//! `--skip-done OUT`: prompts that have a message in the output of an earlier run are skipped.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use cp_common::output::Format;
use cp_common::stream::earlier;
use cp_common::wire::record::Kind;
use cp_common::{Code, Error, Result};
use serde::Deserialize;

use crate::engine::Work;

/// The prompts that an earlier run has answered.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// Fingerprints of the request hashes, by block and place. There may be millions, at four bytes each.
    requests: HashMap<u64, Box<[Option<NonZeroU32>; 256]>>,
}

/// The members of a message that name the request.
#[derive(Deserialize)]
struct Answered {
    index: u64,
    request_hash: String,
}

impl EarlierRun {
    /// Reads the output of the earlier run, and locks it unless this is a dry run.
    pub(super) fn read(file: &Path, format: Format, is_dry: bool) -> Result<Self> {
        let mut requests = HashMap::new();
        earlier::read(file, format, is_dry, |record| {
            if record.ok
                && record.kind == Some(Kind::Message)
                && let Ok(Answered { index, request_hash }) = record.read()
            {
                let (block, place) = block_and_place(index);
                let block = requests.entry(block).or_insert_with(|| Box::new([None; 256]));
                block[place] = Some(fingerprint(&request_hash));
            }
        })?;
        Ok(Self { file: file.to_owned(), requests })
    }

    /// True if the prompt with this index has a message. Fails if the message answers another request, because the
    /// input or an option has changed.
    pub(super) fn has_answered(&self, index: u64, work: &Work) -> Result<bool> {
        let (block, place) = block_and_place(index);
        let known = self.requests.get(&block).and_then(|block| block[place]);
        let Some(known) = known else { return Ok(false) };
        if fingerprint(work.request_hash().map_err(Error::fatal)?) == known {
            return Ok(true);
        }
        let message = format!("the earlier output answers another request with index {index}");
        Err(Error::new(Code::Conflict, message)
            .in_file(&self.file)
            .with("index", index)
            .hint("use the input, the model and the options of the earlier run, or a new output")
            .fatal())
    }
}

fn block_and_place(index: u64) -> (u64, usize) {
    (index >> 8, usize::from(index.to_le_bytes()[0]))
}

fn fingerprint(text: &str) -> NonZeroU32 {
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
    NonZeroU32::MIN.saturating_add(u32::try_from(hash >> 32).unwrap_or(0))
}
