//! The exact state of a run that is not over: a sealed file beside its ledger, one step a line, written before what it is about.
//!
//! The ledger has no secrets and so cannot be resumed from; this file has the real bytes. It is private to its owner, each line is
//! sealed with a key of this home over the line before it, and it is removed when the run ends. Whoever holds its lock owns the run.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cp_common::home::{Home, make_directory};
use cp_common::keys::{hex, random};
use cp_common::wire::{Delta, Message, ToolResult};
use cp_common::{Code, Error, Result};
use hmac::{Hmac, KeyInit as _, Mac as _};
use rustix::fs::{FlockOperation, flock};
use rustix::io::{FdFlags, fcntl_setfd};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::Sha256;

use crate::conversation::Conversation;
use crate::plan::{Limits, Plan};
use crate::tally::Spent;

/// What the journal of a run that is over and was kept is called.
const RECORDED: &str = "recorded";
/// How long a resume waits for the parts of a killed run to leave.
const PATIENCE: Duration = Duration::from_secs(3);

/// One step of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// What the run was started with. The first step, and only that.
    Plan(Box<Plan>),
    /// A process took the run over.
    Owner(Owner),
    /// A resume changed the limits.
    Limits(Limits),
    /// What came of the model's next answer before it was whole, where the run is kept.
    Deltas(Vec<Delta>),
    /// The model answered.
    Message(Box<Message>),
    /// A call of the last message is about to be dispatched.
    Started(usize),
    /// A call of the last message is worked on by an agent, in the run of this id.
    Delegated(usize, String),
    /// What the agent of a call used.
    Spent(usize, Spent),
    /// A call of the last message was not run after all.
    Withdrawn(usize),
    /// A call of the last message has its result.
    Finished(usize, Box<ToolResult>),
    /// What the step before was about has been printed.
    Shown,
    /// A person decided about a call of the last message.
    Decided(usize, Decision),
}

/// The process that runs a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Owner {
    /// Its id.
    pub(crate) pid: u32,
    /// When it started, in the kernel's ticks: ids are used again.
    pub(crate) started: u64,
}

/// What a person decided about a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Decision {
    /// It may run, again if need be.
    Approved,
    /// It must not run; what to tell the model.
    Denied(String),
}

#[derive(Serialize, Deserialize)]
struct Sealed<'a> {
    mac: String,
    #[serde(borrow)]
    step: &'a RawValue,
}

/// An open journal: this process owns the run.
pub(crate) struct Journal {
    file: File,
    path: PathBuf,
    key: [u8; 32],
    mac: String,
}

/// Where the journal of a run that was kept lies.
pub(crate) fn recording_of(ledger: &Path) -> PathBuf {
    ledger.with_extension(RECORDED)
}

/// Where the journal of a run lies.
pub(crate) fn path_of(ledger: &Path) -> PathBuf {
    ledger.with_extension("sealed")
}

impl Journal {
    /// Starts the journal of a new run. It appears with its plan in it, and locked, or not at all.
    pub(crate) fn create(path: &Path, home: &Home, plan: &Plan) -> Result<Self> {
        let failed = |e: std::io::Error| Error::io("creating the run's state", e).in_file(path).fatal();
        let aside = path.with_extension(format!("new-{}", hex(&random::<4>()?)));
        let file =
            OpenOptions::new().read(true).append(true).create_new(true).mode(0o600).open(&aside).map_err(failed)?;
        let mut journal = Self { file, path: path.to_owned(), key: key(home)?, mac: String::new() };
        if !journal.try_lock()? {
            return Err(journal.taken());
        }
        let written = journal
            .append(&Step::Plan(Box::new(plan.clone())))
            .and_then(|()| journal.append(&Step::Owner(Owner::this())))
            .and_then(|()| journal.sync())
            .and_then(|()| std::fs::hard_link(&aside, path).map_err(failed));
        let _ = std::fs::remove_file(&aside);
        written.map(|()| journal)
    }

    /// Takes over the journal of a run that stopped, with the steps so far. A run that another process runs is a conflict.
    pub(crate) fn open(path: &Path, home: &Home) -> Result<(Self, Vec<Step>)> {
        let file = OpenOptions::new().read(true).append(true).open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(Code::Conflict, "the run is over: nothing is left to go on with")
            }
            _ => Error::io("opening the run's state", e).in_file(path),
        })?;
        let mut journal = Self { file, path: path.to_owned(), key: key(home)?, mac: String::new() };
        let asked = Instant::now();
        while !journal.try_lock()? {
            if asked.elapsed() > PATIENCE {
                return Err(journal.taken());
            }
            cp_common::signals::check()?;
            std::thread::sleep(Duration::from_millis(10));
        }
        let inode = |meta: std::io::Result<std::fs::Metadata>| meta.map(|meta| (meta.dev(), meta.ino())).ok();
        if inode(journal.file.metadata()) != inode(path.metadata()) {
            return Err(Error::new(Code::Conflict, "the run ended while this waited for it"));
        }
        let steps = journal.load()?;
        journal.append(&Step::Owner(Owner::this()))?;
        Ok((journal, steps))
    }

    /// Writes one step. It is in the kernel's hands when this returns: a kill cannot undo it.
    pub(crate) fn append(&mut self, step: &Step) -> Result<()> {
        let text = serde_json::value::to_raw_value(step)
            .map_err(|e| Error::new(Code::Unknown, format!("encoding the run's state: {e}")).fatal())?;
        let mac = seal(&self.key, &self.mac, text.get())?;
        let sealed = Sealed { mac, step: &text };
        let mut line = serde_json::to_vec(&sealed).map_err(|e| Error::new(Code::Unknown, e.to_string()).fatal())?;
        line.push(b'\n');
        self.mac = sealed.mac;
        self.file.write_all(&line).map_err(|e| Error::io("writing the run's state", e).in_file(&self.path).fatal())
    }

    /// Lets a part that `start` starts hold the lock too: until it has left, its tool may still be at work, and nobody takes over.
    pub(crate) fn shared<T>(&self, start: impl FnOnce() -> Result<T>) -> Result<T> {
        let failed = |e| Error::io("sharing the run's lock", e).in_file(&self.path).fatal();
        fcntl_setfd(&self.file, FdFlags::empty()).map_err(failed)?;
        let started = start();
        fcntl_setfd(&self.file, FdFlags::CLOEXEC).map_err(failed)?;
        started
    }

    /// Waits until the disk has every step: before what cannot be undone.
    pub(crate) fn sync(&self) -> Result<()> {
        self.file.sync_data().map_err(|e| Error::io("writing the run's state", e).in_file(&self.path).fatal())
    }

    /// Removes it: the run is over. A run that is recorded is kept, beside its ledger and where it was asked for.
    pub(crate) fn close(self, record: Option<&Path>) -> Result<()> {
        let failed = |e: std::io::Error| Error::io("closing the run's state", e).in_file(&self.path);
        let Some(record) = record else { return std::fs::remove_file(&self.path).map_err(failed) };
        let text = std::fs::read(&self.path).map_err(failed)?;
        let kept = cp_common::home::write_whole(record, &text);
        std::fs::rename(&self.path, self.path.with_extension(RECORDED)).map_err(failed)?;
        kept
    }

    /// The steps in the file. A torn last line is cut off; a line that was changed is damage.
    fn load(&mut self) -> Result<Vec<Step>> {
        let mut text = Vec::new();
        let failed = |e: std::io::Error| Error::io("reading the run's state", e).in_file(&self.path);
        (&self.file).read_to_end(&mut text).map_err(failed)?;
        let whole = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
        if whole < text.len() {
            self.file.set_len(whole as u64).map_err(failed)?;
        }
        let (steps, mac) = steps_of(&text[..whole], Some(&self.key)).map_err(|e| e.in_file(&self.path))?;
        self.mac = mac;
        Ok(steps)
    }

    fn try_lock(&self) -> Result<bool> {
        match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
            Err(e) => Err(Error::io("locking the run's state", e).in_file(&self.path).fatal()),
        }
    }

    fn taken(&self) -> Error {
        Error::new(Code::Conflict, "the run is running, or its last tool has not ended yet")
            .in_file(&self.path)
            .hint("wait for it, or cancel it")
    }
}

impl Owner {
    /// This process.
    pub(crate) fn this() -> Self {
        let pid = std::process::id();
        Self { pid, started: started(pid).unwrap_or(0) }
    }

    /// Whether the process is still there, and is the same one.
    pub(crate) fn is_alive(self) -> bool {
        self.started != 0 && started(self.pid) == Some(self.started)
    }
}

/// When a process started: the 22nd field of its `stat`, counted after the name, which may hold anything.
fn started(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

/// Whether somebody runs the run of this journal now.
pub(crate) fn is_running(path: &Path) -> bool {
    let Ok(file) = File::open(path) else { return false };
    flock(&file, FlockOperation::NonBlockingLockShared) == Err(rustix::io::Errno::WOULDBLOCK)
}

/// Where the run of a ledger stands. Its seals are not looked at: nothing is done by what is found.
pub(crate) fn standing(ledger: &Path) -> Result<Conversation> {
    let path = path_of(ledger);
    let text = std::fs::read(&path).map_err(|e| Error::io("reading the run's state", e).in_file(&path))?;
    let whole = memchr::memrchr(b'\n', &text).map_or(0, |at| at + 1);
    Conversation::of_steps(steps_of(&text[..whole], None)?.0).map(|(_, conversation)| conversation)
}

/// The steps of a journal, and the seal of the last one. Without a key the seals are not looked at: a recording from elsewhere.
pub(crate) fn steps_of(text: &[u8], key: Option<&[u8; 32]>) -> Result<(Vec<Step>, String)> {
    let (mut steps, mut mac) = (Vec::new(), String::new());
    for (number, line) in (1..).zip(text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty())) {
        let broken =
            |e: serde_json::Error| Error::new(Code::Integrity, format!("not a step of a run: {e}")).at_line(number);
        let sealed: Sealed<'_> = serde_json::from_slice(line).map_err(broken)?;
        if let Some(key) = key
            && seal(key, &mac, sealed.step.get())? != sealed.mac
        {
            return Err(Error::new(Code::Integrity, "the seal is broken: the run's state was changed").at_line(number));
        }
        steps.push(serde_json::from_str(sealed.step.get()).map_err(broken)?);
        mac = sealed.mac;
    }
    Ok((steps, mac))
}

fn seal(key: &[u8; 32], before: &str, step: &str) -> Result<String> {
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key).map_err(|_| Error::new(Code::Unknown, "the key of the seal is empty"))?;
    mac.update(before.as_bytes());
    mac.update(b"\n");
    mac.update(step.as_bytes());
    Ok(hex(&mac.finalize().into_bytes()))
}

/// The key of this home's seals, made when first needed.
pub(crate) fn key(home: &Home) -> Result<[u8; 32]> {
    let path = home.keys().join("runs.key");
    let failed = |e: std::io::Error| Error::io("reading the key of the seals", e).in_file(&path).fatal();
    make_directory(&home.keys())?;
    if !path.exists() {
        // Written aside and linked, so that two first runs agree on one key.
        let aside = home.keys().join(format!("runs.key.{}", hex(&random::<4>()?)));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside).map_err(failed)?;
        let made = file.write_all(&random::<32>()?).and_then(|()| file.sync_data());
        let linked = made.and_then(|()| std::fs::hard_link(&aside, &path));
        let _ = std::fs::remove_file(&aside);
        linked.or_else(|e| if path.exists() { Ok(()) } else { Err(failed(e)) })?;
    }
    let bytes = std::fs::read(&path).map_err(failed)?;
    bytes.try_into().map_err(|_| Error::new(Code::Integrity, "the key of the seals is damaged").in_file(&path).fatal())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed_lines(key: &[u8; 32], steps: &[Step]) -> String {
        let (mut text, mut mac) = (String::new(), String::new());
        for step in steps {
            let step = serde_json::value::to_raw_value(step).unwrap();
            mac = seal(key, &mac, step.get()).unwrap();
            text += &serde_json::to_string(&Sealed { mac: mac.clone(), step: &step }).unwrap();
            text.push('\n');
        }
        text
    }

    #[test]
    fn a_step_that_was_changed_moved_or_removed_breaks_the_seal() {
        let key = [7; 32];
        let steps = [Step::Started(0), Step::Decided(0, Decision::Denied("no".into())), Step::Started(1)];
        let text = sealed_lines(&key, &steps);
        assert_eq!(steps_of(text.as_bytes(), Some(&key)).unwrap().0.len(), 3);
        let changed = text.replace("denied", "approved");
        assert_eq!(steps_of(changed.as_bytes(), Some(&key)).unwrap_err().code(), Code::Integrity);
        let lines: Vec<&str> = text.lines().collect();
        let without = format!("{}\n{}\n", lines[0], lines[2]);
        assert!(steps_of(without.as_bytes(), Some(&key)).is_err());
        assert!(steps_of(text.as_bytes(), Some(&[8; 32])).is_err());
        assert!(steps_of(text.as_bytes(), None).is_ok());
    }

    #[test]
    fn a_process_is_known_by_its_id_and_its_start() {
        let this = Owner::this();
        assert!(this.is_alive());
        assert!(!Owner { started: this.started + 1, ..this }.is_alive());
    }
}
