//! Cleans up after runs that were killed together with this program. The state before a run is stored in a file of
//! the home until the result is on the ledger. The process holds a lock on the file, so the next start can find runs
//! that were not finished.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::home::{Home, make_directory};
use cp_common::{Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};

use super::Watched;
use super::finish;
use crate::changes::{Baseline, Changes, Store};
use crate::file_id::{FileId, touch};
use crate::git_dir::Repository;
use crate::policy::{Actor, Policy};
use crate::sandbox::report::Quarantined;
use crate::sandbox::{has_ended, processes};

/// The longest time that the processes of a killed run may take to end. The kernel kills them immediately.
const ENDING: Duration = Duration::from_secs(2);

/// In nanoseconds: the time for which a run may go on after it was last noted to be alive.
const UNNOTED: i64 = 1_000_000_000;

/// The state of a run until its result is on the ledger.
#[derive(Deserialize, Serialize)]
pub(crate) struct Record {
    ledger: PathBuf,
    pub actor: Actor,
    pub call: Option<String>,
    /// The sequence number of the intent.
    pub intent: u64,
    /// The process session of the helper, which ends after the run.
    processes: u32,
    pub watched: Watched,
    /// The trees as they were, a [`Baseline`].
    before: Option<Box<RawValue>>,
}

/// A run without a result on the ledger.
pub(crate) struct OpenRun {
    path: PathBuf,
    file: File,
    /// What lists the trees as they were.
    manifests: Vec<PathBuf>,
}

impl OpenRun {
    /// Stores the state before a run. `processes` is the process session of its helper.
    pub(crate) fn begin(
        policy: &Policy,
        call: Option<String>,
        intent: u64,
        processes: u32,
        watched: &Watched,
        before: Option<&Baseline<'_>>,
    ) -> Result<Self> {
        let directory = policy.cp_home.state("runs");
        make_directory(&directory)?;
        let path = directory.join(format!("{}-{intent}.json", std::process::id()));
        let (ledger, actor, watched) = (policy.ledger.clone(), policy.actor.clone(), watched.clone());
        // Without it, the changes of a killed run are not recorded.
        let trees = before.and_then(|before| to_raw_value(before).ok());
        let record = Record { ledger, actor, call, intent, processes, watched, before: trees };
        let write = || -> std::io::Result<File> {
            let gate = gate(&directory)?;
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
            file.lock()?;
            drop(gate);
            file.write_all(&serde_json::to_vec(&record)?)?;
            Ok(file)
        };
        let locked = write().map_err(|e| Error::io("cannot keep what was there before the run", e).in_file(&path))?;
        Ok(Self { path, file: locked, manifests: before.map(Baseline::manifests).unwrap_or_default() })
    }

    /// Notes that the run has not ended.
    pub(crate) fn note_alive(&self) {
        // A failure means that less is known to be of the run.
        drop(touch(&self.file));
    }
}

impl Drop for OpenRun {
    fn drop(&mut self) {
        // A manifest that cannot be removed is swept from the store later.
        self.manifests.iter().for_each(|manifest| drop(fs::remove_file(manifest)));
        // If the file cannot be removed, the next start treats the run as killed.
        drop(fs::remove_file(&self.path));
    }
}

/// A run that was killed, and its quarantined files.
pub(crate) struct Settled {
    pub run: Record,
    /// What changed since it began, if its trees are still stored.
    pub changes: Option<Changes>,
    pub quarantined: Vec<Quarantined>,
    /// The lock is held until the result is on the ledger.
    _open: OpenRun,
}

/// Held while the file of a run has no lock yet.
fn gate(directory: &Path) -> std::io::Result<File> {
    let gate = File::open(directory)?;
    gate.lock()?;
    Ok(gate)
}

/// Quarantines the guarded files of killed runs of this ledger.
pub(crate) fn settle(home: &Home, ledger: &Path) -> Vec<Settled> {
    let directory = home.state("runs");
    let Ok(gate) = gate(&directory) else { return Vec::new() };
    let paths = fs::read_dir(&directory).into_iter().flatten().flatten().map(|entry| entry.path());
    let ended: Vec<_> = paths.filter_map(|path| Some((ended(&path)?, path))).collect();
    drop(gate);
    ended.into_iter().filter_map(|(file, path)| settle_one(path, file, home, ledger)).collect()
}

/// The file of a run whose process has ended.
fn ended(path: &Path) -> Option<File> {
    let file = File::open(path).ok()?;
    file.try_lock().ok()?;
    // The process may have removed the file just before it released the lock.
    let (held, now) = (file.metadata().ok()?, fs::symlink_metadata(path).ok()?);
    ((now.dev(), now.ino()) == (held.dev(), held.ino())).then_some(file)
}

fn settle_one(path: PathBuf, mut file: File, home: &Home, ledger: &Path) -> Option<Settled> {
    let alive = FileId::from(&file.metadata().ok()?).mtime;
    let mut text = Vec::new();
    file.read_to_end(&mut text).ok()?;
    let record = serde_json::from_slice::<Record>(&text);
    if record.as_ref().is_ok_and(|record| record.ledger != ledger) {
        return None;
    }
    let mut open = OpenRun { path, file, manifests: Vec::new() };
    // A file is incomplete if its process was killed before the run began. It is removed.
    let mut run = record.ok()?;
    wait_for_end(run.processes);
    let in_repositories = run.watched.repositories.iter().flat_map(Repository::compare).collect();
    let quarantined = finish(&run.watched, in_repositories, home, true).quarantined;
    let (until, store) = (alive.saturating_add(UNNOTED), Store::of_home(home));
    let changes = run.before.take().and_then(|before| {
        let before: Baseline<'_> = serde_json::from_str(before.get()).ok()?;
        open.manifests = before.manifests();
        before.compare_until(until, &store)
    });
    Some(Settled { run, changes, quarantined, _open: open })
}

/// Waits until no process of a session exists. The processes of a killed run are killed immediately, but until then they
/// can write.
fn wait_for_end(session: u32) {
    let (end, session) = (Instant::now() + ENDING, session.to_string());
    let exists = || processes().any(|(_, fields)| !has_ended(&fields[0]) && fields.get(3) == Some(&session));
    while Instant::now() < end && exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
}
