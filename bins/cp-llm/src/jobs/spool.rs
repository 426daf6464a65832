//! Rows on their way to a provider, on disk: as many batches as its limits make of them.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::home::make_directory;
use cp_common::keys::{hex, random};
use cp_common::output::Place;
use cp_common::{Error, Result};
use sha2::{Digest as _, Sha256};

use super::job::Item;
use super::provider::Provider;
use crate::digest;
use crate::engine::{Work, request_hash};

/// After how long rows that never became a batch are removed.
const ABANDONED: Duration = Duration::from_hours(24);

/// The rows of one batch.
pub(super) struct Part {
    /// Where they are; removed with this unless it was renamed.
    pub directory: PathBuf,
    /// The model, where all rows must have one.
    model: Option<String>,
    /// Where their requests would go.
    pub path: String,
    requests: BufWriter<File>,
    items: BufWriter<File>,
    hash: Sha256,
    pub count: u64,
    bytes: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Batches that are being put together.
pub(super) struct Spool {
    place: PathBuf,
    /// What their hashes begin with.
    seed: String,
    /// The most requests, and bytes of them, that one batch may have, and whether all must be to one model.
    limits: (u64, u64, bool),
    pub parts: Vec<Part>,
}

impl Spool {
    /// A spool below this directory.
    pub(super) fn new(place: PathBuf, seed: String, limits: (u64, u64, bool)) -> Self {
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
            if entry.file_name().as_encoded_bytes().starts_with(b".new-") && age.is_some_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Self { place, seed, limits, parts: Vec::new() }
    }

    /// Adds a row to the batch that has room for it, or to a new one.
    pub(super) fn add(&mut self, work: &Work, body: &[u8], place: Place, provider: &Provider<'_>) -> Result<()> {
        let (rows, bytes, is_of_one_model) = self.limits;
        let model = is_of_one_model.then(|| work.request().model.clone());
        // What a line has around the body is short.
        let fits = |part: &Part| {
            part.model == model && part.count < rows && part.bytes.saturating_add(body.len() as u64 + 256) <= bytes
        };
        let at = self.parts.iter().position(fits).unwrap_or(self.parts.len());
        if at == self.parts.len() {
            self.parts.push(self.part(model, provider.path(work.request()))?);
        }
        let part = &mut self.parts[at];
        let line = provider.line(part.count, &part.path, body);
        let mut item = serde_json::to_vec(&Item::of(work, place, request_hash(work, body), body.len() as u64))
            .map_err(|e| failed(e.into()))?;
        item.push(b'\n');
        part.requests.write_all(&line).and_then(|()| part.items.write_all(&item)).map_err(failed)?;
        part.hash.update(&line);
        part.hash.update(&item);
        part.count += 1;
        part.bytes += line.len() as u64;
        Ok(())
    }

    fn part(&self, model: Option<String>, path: String) -> Result<Part> {
        let directory = self.place.join(format!(".new-{}", hex(&random::<8>()?)));
        make_directory(&directory)?;
        let create = |name: &str| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name));
            file.map(BufWriter::new).map_err(failed)
        };
        let (requests, items) = (create("requests")?, create("items.jsonl")?);
        let hash = Sha256::new_with_prefix(&self.seed);
        Ok(Part { directory, model, path, requests, items, hash, count: 0, bytes: 0 })
    }
}

impl Part {
    /// Brings the rows to disk, and gives their hash.
    pub(super) fn finish(&mut self) -> Result<String> {
        for file in [&mut self.requests, &mut self.items] {
            file.flush().and_then(|()| file.get_ref().sync_data()).map_err(failed)?;
        }
        Ok(digest::finished(std::mem::take(&mut self.hash)))
    }
}

fn failed(e: std::io::Error) -> Error {
    Error::io("keeping the rows of the batch", e).fatal()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::endpoint::{DialectName, Endpoint};
    use cp_common::wire::Prompt;
    use std::sync::Arc;

    #[test]
    fn a_batch_that_is_full_is_followed_by_another_and_what_is_not_kept_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let stub = Arc::new(Endpoint::of("stub", DialectName::Stub));
        let prompt = |model: &str| Prompt { model: Some(model.to_owned()), ..Prompt::of_text("hi") };
        let counts = |limits, models: &[&str]| {
            let mut spool = Spool::new(place.path().to_owned(), String::new(), limits);
            for model in models {
                let item =
                    Item { index: None, line: None, request_hash: String::new(), bytes: 0, prompt: prompt(model) };
                spool.add(&item.work(0, &stub), b"{}", Place::default(), &Provider(None)).unwrap();
            }
            spool.parts.iter().map(|part| part.count).collect::<Vec<_>>()
        };
        assert_eq!(counts((2, u64::MAX, false), &["a", "b", "a", "b", "a"]), [2, 2, 1]);
        assert_eq!(counts((9, 600, false), &["a"; 30]).iter().sum::<u64>(), 30);
        assert!(counts((9, 600, false), &["a"; 30]).len() > 3);
        assert_eq!(counts((9, u64::MAX, true), &["a", "b", "a"]), [2, 1]);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
