//! `--skip-done OUT`: prompts that have a message in the output of an earlier run are skipped.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::path::{Path, PathBuf};

use cp_common::stream::earlier;
use cp_common::wire::record::{Kind, Record};
use cp_common::{Code, Error, Result};
use serde::Deserialize;

use crate::engine::Work;

/// The prompts that an earlier run has answered.
pub(super) struct EarlierRun {
    file: PathBuf,
    /// A short hash of the request hash, by index. There may be millions.
    requests: HashMap<u64, u64>,
}

/// The members of a message that name the request.
#[derive(Deserialize)]
struct Answered {
    index: u64,
    request_hash: String,
}

impl EarlierRun {
    /// Reads the output of the earlier run, and locks it unless this is a dry run.
    pub(super) fn read(file: &Path, is_dry: bool) -> Result<Self> {
        let mut requests = HashMap::new();
        earlier::read(file, is_dry, |line| {
            let record = Record::parse(line).ok().filter(|record| record.ok && record.kind == Some(Kind::Message));
            if let Some(Ok(Answered { index, request_hash })) = record.map(|record| record.read()) {
                requests.insert(index, fingerprint(&request_hash));
            }
        })?;
        Ok(Self { file: file.to_owned(), requests })
    }

    /// True if the prompt with this index has a message. Fails if the message answers another request, because the
    /// input or an option has changed.
    pub(super) fn has_answered(&self, index: u64, work: &Work) -> Result<bool> {
        let Some(known) = self.requests.get(&index) else { return Ok(false) };
        if fingerprint(work.request_hash().map_err(Error::fatal)?) == *known {
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

fn fingerprint(text: &str) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(text)
}
