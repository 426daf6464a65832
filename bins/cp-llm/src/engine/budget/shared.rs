//! The budget file that processes share. It is replaced as a whole under a lock; a file with other content is never written. The owner of a
//! reservation keeps a second file locked; if that lock can be taken, the owner is dead.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cp_common::home::{locked, write_whole};
use cp_common::keys::{hex, random};
use cp_common::{Error, Result};

use super::file::{Amount, BudgetFile};
use crate::engine::recordings::beside;

/// The largest valid file.
const LONGEST: u64 = 1 << 20;

/// The path of a budget file.
pub(super) struct SharedFile {
    path: PathBuf,
}

/// This process as the owner of a reservation. Its lock file is removed with it.
pub(super) struct Owner {
    pub id: String,
    path: PathBuf,
    file: File,
}

impl SharedFile {
    /// Opens or creates the budget file at a path.
    pub(super) fn at(path: &Path) -> Result<Self> {
        let of = |e: std::io::Error| Error::io("the budget file", e).in_file(path).fatal();
        match path.metadata() {
            Ok(found) if !found.is_file() => return Err(not_a_budget_file(path, "it is not a regular file")),
            Ok(_) => {}
            Err(_) => drop(open(path).map_err(of)?),
        }
        // The target of a symbolic link is replaced, not the link.
        Ok(Self { path: path.canonicalize().map_err(of)? })
    }

    /// Changes the content, and returns after it was synced.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BudgetFile) -> T) -> Result<T> {
        let file = locked(&self.path, || open(&self.path).map_err(|e| self.wrong(e)))?;
        let before = self.parsed(&file)?;
        let mut content = before.clone();
        self.release_dead_owners(&mut content);
        let outcome = change(&mut content);
        if content != before {
            let mut text = serde_json::to_vec(&content).map_err(|e| Error::io("the budget file", e).fatal())?;
            text.push(b'\n');
            write_whole(&self.path, &text).map_err(Error::fatal)?;
        }
        Ok(outcome)
    }

    /// Reads the content. The file is replaced as a whole, so no lock is needed.
    pub(super) fn read(&self) -> Result<BudgetFile> {
        self.parsed(&open(&self.path).map_err(|e| self.wrong(e))?)
    }

    fn parsed(&self, file: &File) -> Result<BudgetFile> {
        let mut text = Vec::new();
        file.take(LONGEST + 1).read_to_end(&mut text).map_err(|e| self.wrong(e))?;
        if text.len() as u64 > LONGEST {
            return Err(not_a_budget_file(&self.path, "it is too long"));
        }
        BudgetFile::parse(&text).map_err(|why| not_a_budget_file(&self.path, &why))
    }

    /// Releases the reservations of dead owners. Their pending requests may have been paid for, so they count as spent.
    fn release_dead_owners(&self, content: &mut BudgetFile) {
        let mut spent = content.spent;
        content.reserved.retain(|reserved| match self.owner_state(&reserved.id) {
            OwnerState::Alive => true,
            OwnerState::Gone(pending) => {
                let amount = reserved.amount();
                spent = spent.plus(pending.map_or(amount, |pending| pending.min(amount)));
                false
            }
        });
        content.spent = spent;
    }

    /// Finds out whether the owner of a reservation is alive.
    fn owner_state(&self, id: &str) -> OwnerState {
        let path = beside(&self.path, id);
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == ErrorKind::NotFound => return OwnerState::Gone(None),
            // The file of another user cannot be checked.
            Err(_) => return OwnerState::Alive,
        };
        if file.try_lock().is_err() {
            return OwnerState::Alive;
        }
        let mut text = String::new();
        let pending = file.read_to_string(&mut text).ok().and_then(|_| {
            let (tokens, usd) = text.trim().split_once(' ')?;
            Some(Amount {
                tokens: tokens.trim().parse().ok()?,
                usd: usd.trim().parse().ok().filter(|usd| *usd >= 0.0)?,
            })
        });
        // Names are never reused.
        let _ = std::fs::remove_file(path);
        OwnerState::Gone(pending)
    }

    /// Creates and locks a file for this process.
    pub(super) fn owner(&self) -> Result<Owner> {
        let id = hex(&random::<8>()?);
        let path = beside(&self.path, &id);
        let wrong = |e: std::io::Error| Error::io("the owner's file of a budget", e).in_file(&path).fatal();
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).map_err(wrong)?;
        file.try_lock().map_err(|e| match e {
            TryLockError::Error(e) => wrong(e),
            TryLockError::WouldBlock => wrong(ErrorKind::WouldBlock.into()),
        })?;
        Ok(Owner { id, path, file })
    }

    fn wrong(&self, e: std::io::Error) -> Error {
        Error::io("the budget file", e).in_file(&self.path).fatal()
    }
}

/// The state of an owner; for a dead one with the amount that it had pending, if it is known.
enum OwnerState {
    Alive,
    Gone(Option<Amount>),
}

impl Owner {
    /// Writes the amount that is pending and not yet in the budget file, for the case that this process is killed. It is not synced, because the
    /// kernel keeps it then; after a power failure the whole reservation counts.
    pub(super) fn record_pending(&self, pending: Amount) {
        let line = format!("{:>20} {:>24.9}\n", pending.tokens, pending.usd);
        // If writing fails, the whole reservation counts.
        let _ = self.file.write_all_at(line.as_bytes(), 0).or_else(|_| self.file.set_len(0));
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

fn not_a_budget_file(path: &Path, why: &str) -> Error {
    Error::config(format!("not a budget file: {why}")).in_file(path).hint("name another file for --budget-file").fatal()
}
