//! The log of an unfinished run: a sealed file next to its ledger with one step a line, each written before its effect.
//!
//! A run cannot be resumed from the ledger, where secrets are redacted; this file has the exact bytes. It is private to
//! its owner, and removed at the end of the run. The process that holds its lock owns the run. Each line has the hash
//! of its step and of the previous line, so that a recording can be verified anywhere, and a seal with a key of this
//! home.

use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::home::{Home, make_directory, write_whole};
use cp_common::keys::{Key, hex};
use cp_common::{Code, Error, Result, signals};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, CWD, FlockOperation, Mode, OFlags, flock, linkat};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::state::plan::RunFiles;
use crate::state::step::Step;

/// How long a resume or a cancellation waits until the process of a run, or the coprocesses of a killed one, have exited.
const TAKEOVER: Duration = Duration::from_secs(5);

/// A line of the log.
#[derive(Serialize, Deserialize)]
struct Line<'a> {
    mac: String,
    hash: String,
    /// The newest ledger entry that this program had written at that time.
    seq: u64,
    #[serde(borrow)]
    step: &'a RawValue,
}

/// The end of a log.
#[derive(Clone, Debug, Default)]
struct End {
    hash: String,
    seq: u64,
}

/// The open log of a run, which this process owns.
pub(crate) struct StepLog {
    file: File,
    path: PathBuf,
    recording: PathBuf,
    key: Key,
    end: End,
    /// A process may end or acquire the run between two steps.
    _effect: signals::Effect,
}

impl StepLog {
    /// Creates the log of a new run. The file appears locked and with its plan, or not at all.
    pub(crate) fn create(files: &RunFiles, home: &Home, first: &Step) -> Result<Self> {
        let path = files.state();
        let failed = |e: std::io::Error| Error::io("creating the run's state", e).in_file(&path).fatal();
        make_directory(path.parent().unwrap_or(&path))?;
        // The file must be locked when it appears, so that the shared writer of files cannot be used. It has no name
        // until then, so that killing this process leaves no file.
        let unnamed = OFlags::TMPFILE | OFlags::RDWR | OFlags::APPEND | OFlags::CLOEXEC;
        let private = Mode::RUSR | Mode::WUSR;
        let (file, is_named) = match rustix::fs::open(path.parent().unwrap_or(&path), unnamed, private) {
            Ok(file) => (File::from(file), false),
            // Some file systems do not support files without names.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                let named = OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&path);
                (named.map_err(failed)?, true)
            }
            Err(e) => return Err(failed(e.into())),
        };
        let mut log = Self::of(file, files, home)?;
        if !log.try_lock()? {
            return Err(log.taken());
        }
        log.append(first)?;
        log.sync()?;
        if !is_named {
            let open = format!("/proc/self/fd/{}", log.file.as_raw_fd());
            linkat(CWD, open, CWD, &path, AtFlags::SYMLINK_FOLLOW).map_err(|e| failed(e.into()))?;
        }
        Ok(log)
    }

    /// Acquires the log of a stopped run, and returns its steps. A run of another process is a conflict.
    pub(crate) fn open(files: &RunFiles, home: &Home) -> Result<(Self, Vec<Step>)> {
        let path = files.state();
        let file = OpenOptions::new().read(true).append(true).open(&path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::new(Code::Conflict, "the run has ended")
                .hint(format!("cp-toolloop show {} prints it", files.run)),
            _ => Error::io("opening the run's state", e).in_file(&path),
        })?;
        let mut log = Self::of(file, files, home)?;
        let asked = Instant::now();
        while !log.try_lock()? {
            if asked.elapsed() > TAKEOVER {
                return Err(log.taken());
            }
            signals::check()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        let inode = |meta: std::io::Result<std::fs::Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
        if inode(log.file.metadata()) != inode(path.metadata()) {
            return Err(Error::new(Code::Conflict, "the run ended while this process waited for it"));
        }
        let steps = log.load()?;
        Ok((log, steps))
    }

    fn of(file: File, files: &RunFiles, home: &Home) -> Result<Self> {
        let (path, recording, effect) = (files.state(), files.recording(), signals::effect());
        Ok(Self { file, path, recording, key: key(home)?, end: End::default(), _effect: effect })
    }

    /// Writes one step to the kernel, so that killing this process cannot undo it.
    pub(crate) fn append(&mut self, step: &Step) -> Result<()> {
        let failed = |e: &dyn Display| Error::new(Code::Unknown, format!("encoding the run's state: {e}")).fatal();
        let step = serde_json::value::to_raw_value(step).map_err(|e| failed(&e))?;
        self.end.hash = self.end.hash_with(self.end.seq, step.get());
        let End { hash, seq } = self.end.clone();
        let (mut bytes, line) = (Vec::new(), Line { mac: seal(&self.key, &hash), hash, seq, step: &step });
        jsonl::write(&mut bytes, &line).map_err(|e| failed(&e))?;
        self.file.write_all(&bytes).map_err(|e| self.failed("writing", e).fatal())
    }

    /// Sets the newest ledger entry for the following steps.
    pub(crate) fn noted(&mut self, seq: u64) {
        self.end.seq = seq;
    }

    /// The newest ledger entry of the last step.
    pub(crate) fn seq(&self) -> u64 {
        self.end.seq
    }

    /// Lets a process that `start` starts inherit the descriptor of the lock, because its tool may still run after this
    /// process has ended.
    pub(crate) fn shared<T>(&self, start: impl FnOnce(i32) -> Result<T>) -> Result<T> {
        let failed = |e| Error::io("sharing the run's lock", e).in_file(&self.path).fatal();
        fcntl_setfd(&self.file, FdFlags::empty()).map_err(failed)?;
        let started = start(self.file.as_raw_fd());
        fcntl_setfd(&self.file, FdFlags::CLOEXEC).map_err(failed)?;
        started
    }

    /// Syncs all steps to the disk, before an effect that cannot be undone.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| self.failed("writing", e).fatal())
    }

    /// Removes the log after the run has ended. A recording is kept next to the ledger and at the requested path.
    pub(crate) fn close(&self, record: Option<&Path>) -> Result<()> {
        let failed = |e: std::io::Error| self.failed("closing", e);
        let Some(record) = record else { return std::fs::remove_file(&self.path).map_err(failed) };
        let kept = self.keep(record);
        std::fs::rename(&self.path, &self.recording).map_err(failed)?;
        kept
    }

    /// Keeps the recording of a stopped run. A recording next to the ledger is written only at the end of the run.
    pub(crate) fn keep(&self, record: &Path) -> Result<()> {
        if *record == self.recording {
            return Ok(());
        }
        let text = std::fs::read(&self.path).map_err(|e| self.failed("reading", e))?;
        write_whole(record, &text)
    }

    /// The steps in the file. An incomplete last line is removed; a modified line is an integrity error.
    fn load(&mut self) -> Result<Vec<Step>> {
        let mut text = Vec::new();
        (&self.file).read_to_end(&mut text).map_err(|e| self.failed("reading", e))?;
        let whole = whole_lines(&text);
        if whole.len() < text.len() {
            self.file.set_len(whole.len() as u64).map_err(|e| self.failed("reading", e))?;
        }
        let (steps, end) = parse(whole, Some(&self.key)).map_err(|e| e.in_file(&self.path))?;
        self.end = end;
        Ok(steps)
    }

    fn try_lock(&self) -> Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(Error::io("locking the run's state", e).in_file(&self.path).fatal()),
        }
    }

    fn taken(&self) -> Error {
        Error::new(Code::Conflict, "another process is running the run, or its last tool has not ended yet")
            .in_file(&self.path)
            .hint("wait for it, or cancel it")
    }

    fn failed(&self, doing: &str, e: std::io::Error) -> Error {
        Error::io(format!("{doing} the run's state"), e).in_file(&self.path)
    }
}

/// True if a process owns the run of this state file.
pub(crate) fn is_running(state: &Path) -> bool {
    let Ok(file) = File::open(state) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// The steps of a run that may be active in another process. The seals are not verified, because the steps are only
/// displayed.
pub(crate) fn peek(files: &RunFiles) -> Result<Vec<Step>> {
    read(&files.state(), |text| parse(whole_lines(text), None))
}

/// The steps of a recording, which may come from another home with other seals.
pub(crate) fn recorded(path: &Path, home: &Home) -> Result<Vec<Step>> {
    let key = key(home)?;
    let is_ours =
        |first: &[u8]| serde_json::from_slice::<Line<'_>>(first).is_ok_and(|line| line.mac == seal(&key, &line.hash));
    read(path, |text| parse(text, text.split(|byte| *byte == b'\n').next().is_some_and(is_ours).then_some(&key)))
}

fn read(path: &Path, parse: impl FnOnce(&[u8]) -> Result<(Vec<Step>, End)>) -> Result<Vec<Step>> {
    let text = std::fs::read(path).map_err(|e| Error::io("reading the steps of a run", e).in_file(path))?;
    parse(&text).map(|(steps, _)| steps).map_err(|e| e.in_file(path))
}

/// The key of this home's seals, which is created when it is first needed.
fn key(home: &Home) -> Result<Key> {
    Key::of_file(&home.keys().join("runs.key")).map_err(Error::fatal)
}

fn whole_lines(text: &[u8]) -> &[u8] {
    &text[..memchr::memrchr(b'\n', text).map_or(0, |at| at + 1)]
}

/// The steps of these lines, after a check of the hash chain, and of the seals if there is a key.
fn parse(text: &[u8], key: Option<&Key>) -> Result<(Vec<Step>, End)> {
    let (mut steps, mut end) = (Vec::new(), End::default());
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())) {
        let broken =
            |e: serde_json::Error| Error::new(Code::Integrity, format!("not a step of a run: {e}")).at_line(number);
        let line: Line<'_> = serde_json::from_slice(line).map_err(broken)?;
        let is_sealed = key.is_none_or(|key| seal(key, &line.hash) == line.mac);
        if !is_sealed || end.hash_with(line.seq, line.step.get()) != line.hash {
            let message = "the line does not follow from the one before it: the run's steps were changed";
            return Err(Error::new(Code::Integrity, message).at_line(number));
        }
        steps.push(serde_json::from_str(line.step.get()).map_err(broken)?);
        end = End { hash: line.hash, seq: line.seq };
    }
    Ok((steps, end))
}

impl End {
    /// The hash of a following step.
    fn hash_with(&self, seq: u64, step: &str) -> String {
        Hash::of(format!("{}\n{seq}\n{step}", self.hash).as_bytes()).to_string()
    }
}

fn seal(key: &Key, hash: &str) -> String {
    hex(&key.tag(&[hash.as_bytes()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::step::Decision;

    fn sealed_lines(key: &Key, steps: &[Step]) -> String {
        let (mut text, mut end) = (String::new(), End::default());
        for step in steps {
            let step = serde_json::value::to_raw_value(step).unwrap();
            end.hash = end.hash_with(0, step.get());
            let hash = end.hash.clone();
            text += &serde_json::to_string(&Line { mac: seal(key, &hash), hash, seq: 0, step: &step }).unwrap();
            text.push('\n');
        }
        text
    }

    #[test]
    fn seal_fails_if_step_is_changed_moved_or_removed() {
        let directory = tempfile::tempdir().unwrap();
        let [key, other] = ["a.key", "b.key"].map(|name| Key::of_file(&directory.path().join(name)).unwrap());
        let steps = [
            Step::Started(0),
            Step::Decided(0, Decision::Denied { why: "no".into(), by: String::new() }),
            Step::Started(1),
        ];
        let text = sealed_lines(&key, &steps);
        assert_eq!(parse(text.as_bytes(), Some(&key)).unwrap().0.len(), 3);
        let changed = text.replace("denied", "approved");
        for key in [Some(&key), None] {
            let refused = parse(changed.as_bytes(), key).unwrap_err();
            assert_eq!((refused.code(), refused.message().contains("line 2")), (Code::Integrity, true), "{refused}");
        }
        let lines: Vec<&str> = text.lines().collect();
        let without = format!("{}\n{}\n", lines[0], lines[2]);
        assert!(parse(without.as_bytes(), Some(&key)).is_err());
        assert!(parse(text.as_bytes(), Some(&other)).is_err());
        assert!(parse(text.as_bytes(), None).is_ok());
    }
}
