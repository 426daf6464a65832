//! Runs that were killed together with this program. What was there before a run is kept in a file of the home until the run's result is
//! on the ledger, and the file is locked as long as the process lives: so the next start finds the runs that nobody finished.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cp_common::home::make_directory;
use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};

use super::after::finish;
use crate::decision::{Watched, identity};
use crate::sandbox::report::Quarantined;

/// Runs of this process, which number their files.
static RUNS: AtomicU64 = AtomicU64::new(0);

/// How long the processes of a killed run may take to end. The kernel ends them at once.
const ENDING: Duration = Duration::from_secs(2);

/// How long a file of a run may take to get its name.
const UNFINISHED: Duration = Duration::from_mins(10);

/// What is known of a run until its result is on the ledger.
#[derive(Deserialize, Serialize)]
struct Record {
    ledger: PathBuf,
    /// The entry of intent.
    intent: u64,
    /// The session of processes that the run's first process belongs to.
    processes: u32,
    watched: Watched,
}

/// A run whose result is not on the ledger yet.
pub(crate) struct OpenRun {
    path: PathBuf,
    _locked: File,
}

impl OpenRun {
    /// Keeps what was there before a run. `processes` is the session of processes that it will belong to.
    pub(crate) fn begin(home: &Path, ledger: &Path, intent: u64, processes: u32, watched: &Watched) -> Result<Self> {
        let directory = home.join("state/runs");
        make_directory(&directory)?;
        let name = format!("{}-{}", std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
        let (hidden, path) = (directory.join(format!(".{name}")), directory.join(format!("{name}.json")));
        let mut watched = watched.clone();
        // A repository that was there is not searched for what a new one must not have.
        watched.closed.extend(watched.repositories.iter().filter_map(|repository| identity(&repository.path)));
        let record = Record { ledger: ledger.to_owned(), intent, processes, watched };
        let write = || -> std::io::Result<File> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&hidden)?;
            file.lock()?;
            file.write_all(&serde_json::to_vec(&record)?)?;
            // It appears whole, and locked.
            fs::rename(&hidden, &path)?;
            Ok(file)
        };
        let locked = write().map_err(|e| Error::io("cannot keep what was there before the run", e).in_file(&path))?;
        Ok(Self { path, _locked: locked })
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        // A file that stays is taken for a killed run, and settled at the next start.
        drop(fs::remove_file(&self.path));
    }
}

/// A run that was killed, and what it had left behind.
pub(crate) struct Settled {
    pub intent: u64,
    pub quarantined: Vec<Quarantined>,
    /// Held until the result is on the ledger.
    _open: OpenRun,
}

/// Undoes what killed runs of this ledger left behind.
pub(crate) fn settle(home: &Path, ledger: &Path) -> Vec<Settled> {
    let entries = fs::read_dir(home.join("state/runs")).into_iter().flatten().flatten();
    let (files, unfinished): (Vec<PathBuf>, Vec<PathBuf>) =
        entries.map(|entry| entry.path()).partition(|path| path.extension().is_some_and(|end| end == "json"));
    unfinished.iter().filter(|path| is_abandoned(path)).for_each(|path| drop(fs::remove_file(path)));
    files.into_iter().filter_map(|path| settle_one(path, home, ledger)).collect()
}

/// Whether a file that has no name yet belongs to a process that was killed before its run began: nobody takes that long to name it.
fn is_abandoned(path: &Path) -> bool {
    let modified = fs::symlink_metadata(path).and_then(|meta| meta.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > UNFINISHED))
}

fn settle_one(path: PathBuf, home: &Path, ledger: &Path) -> Option<Settled> {
    let mut file = File::open(&path).ok()?;
    if let Err(TryLockError::WouldBlock | TryLockError::Error(_)) = file.try_lock() {
        return None;
    }
    // Its process may have removed it just before it gave up the lock.
    let held = file.metadata().ok()?;
    fs::symlink_metadata(&path).ok().filter(|now| (now.dev(), now.ino()) == (held.dev(), held.ino()))?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let record = serde_json::from_slice::<Record>(&text);
    if record.as_ref().is_ok_and(|record| record.ledger != ledger) {
        return None;
    }
    let open = OpenRun { path, _locked: file };
    // Only a machine that lost its power leaves half a file, which is removed.
    let record = record.ok()?;
    wait_for_end(record.processes);
    let quarantined = finish(&record.watched, Vec::new(), home, true).quarantined;
    Some(Settled { intent: record.intent, quarantined, _open: open })
}

/// Waits until no process of a session is left: the kernel ends a killed run in a moment, and until then it can still write.
fn wait_for_end(session: u32) {
    let end = Instant::now() + ENDING;
    while Instant::now() < end && has_processes(session) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn has_processes(session: u32) -> bool {
    let in_session = |entry: fs::DirEntry| {
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name may hold anything, also parentheses; what follows the last one is regular: state, parent, group, session.
        let mut fields = stat.get(stat.rfind(')')? + 1..)?.split_whitespace();
        let is_alive = !matches!(fields.next()?, "Z" | "X");
        (is_alive && fields.nth(2)?.parse::<u32>().ok()? == session).then_some(())
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().any(|entry| in_session(entry).is_some())
}
