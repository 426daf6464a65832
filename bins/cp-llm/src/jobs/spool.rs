//! Rows on their way to a provider, on disk: as many jobs as its limits make of them.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cp_common::home::make_directory;
use cp_common::keys::{hex, random};
use cp_common::output::Place;
use cp_common::{Error, Result};
use sha2::{Digest as _, Sha256};

use super::job::Item;
use super::provider::Provider;
use crate::digest;
use crate::engine::Work;

/// After how long rows that never became a job are removed.
const ABANDONED: Duration = Duration::from_hours(24);

/// The rows of one job.
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
    /// How many they are.
    pub count: u64,
    bytes: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Jobs that are being put together.
pub(super) struct Spool {
    place: PathBuf,
    /// What their hashes begin with.
    seed: String,
    most: (u64, u64),
    /// The jobs, those that are full among them.
    pub parts: Vec<Part>,
}

impl Spool {
    /// A spool below this directory, for jobs of so many requests and bytes.
    pub(super) fn new(place: PathBuf, seed: String, most: (u64, u64)) -> Self {
        // What was left behind by a process that was killed.
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
            if entry.file_name().as_encoded_bytes().starts_with(b".new-") && age.is_some_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Self { place, seed, most, parts: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn add(&mut self, work: &Work, body: &[u8], place: Place, provider: Provider<'_>) -> Result<()> {
        let model = provider.has_one_model().then(|| work.request().model.clone());
        let path = provider.endpoint_path(work.request());
        // What a line has around the body is short.
        let length = body.len() as u64 + 256;
        let most = self.most;
        let fits = |part: &Part| part.model == model && part.count < most.0 && part.bytes + length <= most.1;
        let at = match self.parts.iter().position(fits) {
            Some(at) => at,
            None => {
                self.parts.push(Part::new(&self.place, &self.seed, model, path.clone())?);
                self.parts.len() - 1
            }
        };
        let part = &mut self.parts[at];
        let line = provider.line(part.count, &path, body);
        let item = Item::of(work, place, digest::of(body), body.len() as u64);
        let mut item = serde_json::to_vec(&item).map_err(|e| failed(e.into()))?;
        item.push(b'\n');
        part.requests.write_all(&line).and_then(|()| part.items.write_all(&item)).map_err(failed)?;
        part.hash.update(&line);
        part.hash.update(&item);
        part.count += 1;
        part.bytes += line.len() as u64;
        Ok(())
    }
}

impl Part {
    fn new(place: &Path, seed: &str, model: Option<String>, path: String) -> Result<Self> {
        let directory = place.join(format!(".new-{}", hex(&random::<8>()?)));
        make_directory(&directory)?;
        let create = |name: &str| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name));
            file.map(BufWriter::new).map_err(failed)
        };
        let (requests, items) = (create("requests")?, create("items.jsonl")?);
        let hash = Sha256::new_with_prefix(seed);
        Ok(Self { directory, model, path, requests, items, hash, count: 0, bytes: 0 })
    }

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
