//! Accepting a rollback: the intent is recorded before the effect, and the result after it. After a crash between two
//! steps, the next writer that appends completes the operation.

use std::io::ErrorKind;
use std::path::PathBuf;

use cp_common::wire::Receipt;
use cp_common::{Error, Result, json};
use serde_json::value::RawValue;

use super::ready::not_a_ledger;
use super::{Known, Ledger, ready};
use crate::file::sync_directory;
use crate::format::Entry;
use crate::format::line::Line;
use crate::proof::checkpoint::{checkpoint_path, read_checkpoint};
use crate::read::tail::{Asks, Last, Tail, read_all};

impl Ledger {
    /// Accepts that there are fewer lines than the checkpoint says. `None` if there are not fewer.
    pub fn accept_rollback(&mut self) -> Result<Option<Receipt>> {
        let done = self.lock().and_then(|locked| self.roll_back(locked));
        self.unlock();
        done
    }

    fn roll_back(&mut self, (inode, size): (u64, u64)) -> Result<Option<Receipt>> {
        self.known = None;
        let tail = self.tail(size)?;
        let (next, hash, asks) = match tail.last {
            Last::Intact { seq, hash, asks } => (seq + 1, hash, asks),
            Last::None | Last::Damaged => return Err(not_a_ledger(&self.path)),
        };
        let checkpoint = checkpoint_path(&self.path);
        let signed = read_checkpoint(&checkpoint)?.map(|(_, checkpoint)| checkpoint.size);
        let accepted = match asks {
            // An earlier call recorded the intent, and was interrupted.
            Asks::Rollback => self.move_checkpoint_aside(&tail)?.is_some(),
            Asks::Rotation | Asks::Nothing => false,
        };
        let mut held = (inode, size);
        match signed {
            _ if accepted => {}
            Some(signed) if next < signed => {
                if size > tail.end {
                    // Told after the intent, which is about the lines that are whole.
                    ready::seal(self.file.file(), &self.path, tail.end, size, next + 1)?;
                }
                let known = Known { inode, size: tail.end, next, hash };
                let aside = checkpoint.with_extension(format!("checkpoint.{signed}"));
                let intent = Entry::new("ledger.rollback")
                    .with("signed", &signed)
                    .with("lines", &next)
                    .with("checkpoint", &aside.file_name().unwrap_or_default().to_string_lossy());
                held.1 = self.write_own(known, &[intent])?.size;
                self.sync_now()?;
                self.known = None;
            }
            Some(_) | None => return Ok(None),
        }
        let known = self.settle(held)?;
        self.sync_now()?;
        Ok(known.map(|known| self.receipt(known.next - 1, &known.hash)))
    }

    /// Moves the checkpoint aside, as the last line says, unless that was done. Returns the entry that is still to be
    /// written; none if the line is about something else.
    pub(super) fn move_checkpoint_aside(&self, tail: &Tail) -> Result<Option<Entry>> {
        let failed = |e| Error::io("cannot move the checkpoint aside", e).in_file(&self.path).fatal();
        let mut bytes = vec![0; usize::try_from(tail.end - tail.start).unwrap_or_default()];
        read_all(self.file.file(), &mut bytes, tail.start).map_err(failed)?;
        let line = Line::parse(bytes.trim_ascii_end());
        let data = line.as_ref().and_then(|line| line.member("data")).unwrap_or(b"{}");
        let member = |name: &str| line.as_ref()?.data_member(name);
        let name = member("checkpoint").and_then(json::unquote).filter(|name| !name.contains('/'));
        let signed = member("signed").and_then(|size| std::str::from_utf8(size).ok()?.parse::<u64>().ok());
        let (Some(name), Some(signed)) = (name, signed) else { return Ok(None) };
        let checkpoint = checkpoint_path(&self.path);
        let aside: PathBuf = checkpoint.with_file_name(name);
        let there = read_checkpoint(&checkpoint)?.map(|(_, there)| there.size);
        if there.is_some_and(|there| there != signed) || (there.is_none() && !aside.exists()) {
            // About another checkpoint: appending such a line must not suffice to remove this one.
            return Ok(None);
        }
        if there.is_some() {
            match std::fs::rename(&checkpoint, &aside) {
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                renamed => renamed.map_err(failed)?,
            }
            sync_directory(&self.path)?;
        }
        let data: &RawValue = serde_json::from_slice(data).map_err(|e| failed(e.into()))?;
        Ok(Some(Entry::new("ledger.rolled_back").data(data)))
    }
}
