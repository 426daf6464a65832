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

/// When what was written reaches the disk, and whether it has.
#[derive(Debug)]
pub(super) struct Durable {
    sync: Sync,
    /// Bytes that no sync covers that was begun.
    waiting: usize,
    /// When the last sync was begun.
    begun: Instant,
    /// A sync that goes on while more is appended.
    under_way: Option<JoinHandle<io::Result<()>>>,
    doubtful: bool,
}

impl Durable {
    pub(super) fn new(sync: Sync) -> Self {
        Self { sync, waiting: 0, begun: Instant::now(), under_way: None, doubtful: false }
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
        self.join(path)?;
        if self.waiting > 0 {
            let synced = file.sync_data();
            self.settle(&synced, path)?;
            self.waiting = 0;
        }
        self.begun = Instant::now();
        Ok(())
    }

    /// Fails once a sync is known to have failed. Waits for none that goes on.
    pub(super) fn noticed(&mut self, path: &Path) -> Result<()> {
        if self.under_way.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join(path)?;
        }
        self.certain(path)
    }

    /// Begins a sync when enough waits, and lets it go on by itself.
    fn keep_up(&mut self, file: &File, path: &Path) -> Result<()> {
        self.noticed(path)?;
        let is_due = self.waiting >= BATCH_BYTES || self.begun.elapsed() >= BATCH_TIME;
        if !is_due || self.waiting == 0 || self.under_way.is_some() {
            return Ok(());
        }
        let file = file.try_clone().map_err(|e| Error::io("cannot sync", e).in_file(path).fatal())?;
        let thread = std::thread::Builder::new().spawn(move || file.sync_data());
        self.under_way = Some(thread.map_err(|e| Error::io("cannot sync", e).in_file(path).fatal())?);
        self.waiting = 0;
        self.begun = Instant::now();
        Ok(())
    }

    fn join(&mut self, path: &Path) -> Result<()> {
        let Some(thread) = self.under_way.take() else { return Ok(()) };
        let synced = thread.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()));
        self.settle(&synced, path)
    }

    fn settle(&mut self, synced: &io::Result<()>, path: &Path) -> Result<()> {
        self.doubtful |= synced.is_err();
        self.certain(path)
    }
}
