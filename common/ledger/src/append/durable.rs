//! Durability of appended bytes. A sync that fails is never retried, because the kernel may have dropped the pages, and
//! a second, successful one would be a lie.

use std::fs::File;
use std::io;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result};

/// When an append is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Sync {
    /// When the disk has it.
    Line,
    /// When the kernel has it; the disk follows at [`crate::Ledger::sync`], and meanwhile every 50 ms or 2 MiB.
    Batch,
    /// When the kernel has it. A power cut may lose it.
    None,
}

/// How long a stream's lines may wait for the disk.
const BATCH_TIME: Duration = Duration::from_millis(50);
/// How much of a stream may wait for the disk.
const BATCH_BYTES: usize = 2 << 20;
/// How many syncs go on at the same time, so that the last one has little left to write.
const MOST: usize = 4;

/// When what was written reaches the disk, and whether it has.
#[derive(Debug)]
pub(super) struct Durable {
    sync: Sync,
    /// Bytes that no sync covers that was begun.
    waiting: usize,
    /// When the last sync was begun.
    begun: Instant,
    /// Syncs that go on while more is appended, at most [`MOST`].
    under_way: Vec<JoinHandle<io::Result<()>>>,
    doubtful: bool,
}

impl Durable {
    pub(super) fn new(sync: Sync) -> Self {
        Self { sync, waiting: 0, begun: Instant::now(), under_way: Vec::new(), doubtful: false }
    }

    /// Fails once it is unknown what the disk has.
    pub(super) fn certain(&self, path: &Path) -> Result<()> {
        let doubt = || Error::new(Code::Io, "sync failed: durability unknown").in_file(path).fatal();
        if self.doubtful { Err(doubt()) } else { Ok(()) }
    }

    /// Takes note of bytes that were written, and gets them to the disk as [`Sync`] says.
    pub(super) fn written(&mut self, bytes: usize, file: &File, path: &Path) -> Result<()> {
        self.waiting += bytes;
        match self.sync {
            Sync::Line => self.sync(file, path),
            Sync::Batch => self.keep_up(file, path),
            Sync::None => Ok(()),
        }
    }

    /// Waits until the disk has everything that was written.
    pub(super) fn sync(&mut self, file: &File, path: &Path) -> Result<()> {
        self.certain(path)?;
        if self.sync == Sync::None {
            return Ok(());
        }
        if self.waiting > 0 {
            self.doubtful |= file.sync_data().is_err();
            self.waiting = 0;
        }
        self.begun = Instant::now();
        let under_way = std::mem::take(&mut self.under_way);
        self.join(under_way, path)
    }

    /// Fails once a sync is known to have failed. Waits for none that goes on.
    pub(super) fn noticed(&mut self, path: &Path) -> Result<()> {
        let (ended, under_way) = self.under_way.drain(..).partition(|sync: &JoinHandle<_>| sync.is_finished());
        self.under_way = under_way;
        self.join(ended, path)
    }

    /// Begins a sync when enough waits, and lets it go on by itself.
    fn keep_up(&mut self, file: &File, path: &Path) -> Result<()> {
        self.noticed(path)?;
        let is_due = self.waiting >= BATCH_BYTES || self.begun.elapsed() >= BATCH_TIME;
        if !is_due || self.waiting == 0 || self.under_way.len() == MOST {
            return Ok(());
        }
        let file = file.try_clone().map_err(|e| Error::io("cannot sync", e).in_file(path).fatal())?;
        let thread = std::thread::Builder::new().spawn(move || file.sync_data());
        self.under_way.push(thread.map_err(|e| Error::io("cannot sync", e).in_file(path).fatal())?);
        self.waiting = 0;
        self.begun = Instant::now();
        Ok(())
    }

    fn join(&mut self, syncs: Vec<JoinHandle<io::Result<()>>>, path: &Path) -> Result<()> {
        for sync in syncs {
            self.doubtful |= !sync.join().is_ok_and(|synced| synced.is_ok());
        }
        self.certain(path)
    }
}

/// Makes the names in a file's directory durable.
pub(super) fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::io("cannot sync the directory", e).in_file(directory).fatal())
}
