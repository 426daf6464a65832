//! Changing files: what they held is kept and on the disk before, and they change whole or not at all.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use cp_common::home::{lock, make_directory};
use cp_common::wire::Receipt;
use cp_common::{Code, Error, Result, signals};
use cp_ledger::format::line::Hash;
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Stat, Uid};
use serde_json::{Value, json};

use super::paths::open;
use crate::place;
use crate::policy::Policy;
use crate::run::Engine;

/// The longest file that is changed, because all of it is kept.
const LONGEST: u64 = 256 << 20;

/// A regular file as it is.
pub(crate) struct Present {
    pub bytes: Vec<u8>,
    pub hash: Hash,
    pub permissions: u32,
    owner: (u32, u32),
    stamp: Stamp,
}

/// What tells that it is still the same file, unchanged.
type Stamp = (u64, u64, i64, i64, i64);

/// What a file is to hold, with its permissions where it does not keep those it has.
pub(crate) struct After {
    bytes: Vec<u8>,
    hash: Hash,
    permissions: Option<u32>,
}

impl After {
    pub(crate) fn new(bytes: Vec<u8>, permissions: Option<u32>) -> Self {
        Self { hash: Hash::of(&bytes), bytes, permissions }
    }

    /// The hash of what it is to hold, and how long that is.
    pub(super) fn summary(&self) -> (String, usize) {
        (self.hash.to_string(), self.bytes.len())
    }
}

/// A file that is about to change.
pub(crate) struct Pending {
    pub path: PathBuf,
    /// How, as the record says it.
    pub mode: &'static str,
    pub before: Option<Present>,
    /// None: it is removed.
    pub after: Option<After>,
}

/// Held from the look at a file to its change, so that of two changes at once neither is lost.
pub(super) fn locked(policy: &Policy) -> Result<File> {
    let state = policy.cp_home.join("state");
    make_directory(&state)?;
    let path = state.join("files.lock");
    let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(|e| Error::io("opening the lock", e).in_file(&path).fatal())?;
    lock(&file)?;
    Ok(file)
}

/// The file at a path; none if nothing is there.
pub(crate) fn present(path: &Path) -> Result<Option<Present>> {
    let mut file = match open(path, "file", OFlags::empty()) {
        Err(error) if error.code() == Code::NotFound => return Ok(None),
        file => file?,
    };
    let failed = |e: std::io::Error| Error::io("cannot be read", e).in_file(path);
    let meta = file.metadata().map_err(failed)?;
    if !meta.is_file() {
        return Err(Error::validation(format!("{} exists and is not a regular file", path.display())));
    }
    if meta.len() > LONGEST {
        return Err(Error::validation(format!("{} has {} bytes", path.display(), meta.len()))
            .hint(format!("what it holds is kept before a change, up to {LONGEST} bytes")));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    file.read_to_end(&mut bytes).map_err(failed)?;
    let stamp = stamp(&rustix::fs::fstat(&file).map_err(|e| failed(e.into()))?);
    let hash = Hash::of(&bytes);
    Ok(Some(Present { bytes, hash, permissions: meta.mode() & 0o777, owner: (meta.uid(), meta.gid()), stamp }))
}

fn stamp(stat: &Stat) -> Stamp {
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds of a second")]
    let nanoseconds = stat.st_mtime_nsec as i64;
    (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime, nanoseconds)
}

/// Puts changes on the record, with what the files held and will hold as blobs of the ledger, and then makes them.
pub(super) fn change(
    engine: &mut Engine,
    operation: &str,
    changes: &[Pending],
    confirmed: Option<&str>,
) -> Result<Receipt> {
    let mut writes = Vec::new();
    for pending in changes {
        writes.push(pending.kept(engine)?);
    }
    let mut what = json!({ "writes": writes, "confirmed": confirmed });
    if let Some(call) = &engine.policy.actor.call {
        what["call"] = call.as_str().into();
    }
    let receipt = engine.journal.operation(operation, &what)?;
    // Several change together, and a signal does not come between them.
    let _effect = signals::effect();
    changes.iter().try_for_each(Pending::carry_out)?;
    Ok(receipt)
}

impl Pending {
    /// Keeps what it holds and what it will hold. What the record says of the change.
    fn kept(&self, engine: &mut Engine) -> Result<Value> {
        let mut keep = |hash: &Hash, bytes: &[u8], permissions: Option<u32>| -> Result<Value> {
            engine.journal.keep(hash, bytes)?;
            let permissions = permissions.map(|permissions| format!("{permissions:o}"));
            Ok(json!({ "blob": hash.to_string(), "len": bytes.len(), "permissions": permissions }))
        };
        let before =
            self.before.as_ref().map(|file| keep(&file.hash, &file.bytes, Some(file.permissions))).transpose()?;
        let kept = self.before.as_ref().map(|file| file.permissions);
        let after =
            self.after.as_ref().map(|file| keep(&file.hash, &file.bytes, file.permissions.or(kept))).transpose()?;
        let mut write = json!({ "path": self.path.display().to_string(), "mode": self.mode });
        if let (Some(file), Some(after)) = (&self.after, &after) {
            write["sha256"] = after["blob"].clone();
            write["bytes"] = file.bytes.len().into();
        }
        write["before"] = before.into();
        write["after"] = after.into();
        Ok(write)
    }

    /// Makes the change. The path was resolved before, so a link on the way to it now was put there since.
    pub(crate) fn carry_out(&self) -> Result<()> {
        let (Some(name), Some(parent)) = (self.path.file_name(), self.path.parent()) else {
            return Err(Error::validation("not a file name").with("rule", "path"));
        };
        let directory = place::open_with(parent, OFlags::PATH | OFlags::DIRECTORY).map_err(|e| match e {
            rustix::io::Errno::NOENT => Error::not_found(format!("directory not found: {}", parent.display()))
                .with("rule", "parent")
                .hint("make the directory first, for example with `mkdir -p`, where that command is allowed"),
            e => Error::io("cannot be opened", e).in_file(parent),
        })?;
        let failed = |e: std::io::Error| match e.kind() {
            std::io::ErrorKind::AlreadyExists => self.overtaken(),
            _ => Error::io("cannot be written", e).in_file(&self.path),
        };
        let Some(after) = &self.after else {
            self.is_unchanged(&directory, name)?;
            return rustix::fs::unlinkat(&directory, name, AtFlags::empty()).map_err(|e| failed(e.into()));
        };
        let temporary = format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id());
        let written = self.write(&directory, &temporary, after).map_err(failed);
        let placed = written.and_then(|()| match &self.before {
            Some(_) => {
                self.is_unchanged(&directory, name)?;
                rustix::fs::renameat(&directory, &temporary, &directory, name).map_err(|e| failed(e.into()))
            }
            // Without replacing: a file that came meanwhile stays.
            None => rustix::fs::linkat(&directory, &temporary, &directory, name, AtFlags::empty())
                .map_err(|e| failed(e.into())),
        });
        if placed.is_err() || self.before.is_none() {
            let _ = rustix::fs::unlinkat(&directory, &temporary, AtFlags::empty());
        }
        placed
    }

    /// Writes the new content beside the file, with the owner and the permissions that it is to have.
    fn write(&self, directory: impl std::os::fd::AsFd, temporary: &str, after: &After) -> std::io::Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(directory, temporary, flags, Mode::from_raw_mode(0o644))?;
        if let Some(before) = &self.before {
            let stat = rustix::fs::fstat(&file)?;
            let (uid, gid) = before.owner;
            if (stat.st_uid, stat.st_gid) != before.owner {
                rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
        }
        let kept = self.before.as_ref().map(|before| before.permissions);
        if let Some(permissions) = after.permissions.or(kept) {
            rustix::fs::fchmod(file.as_fd(), Mode::from_raw_mode(permissions))?;
        }
        let mut file = File::from(file);
        file.write_all(&after.bytes)?;
        file.sync_all()
    }

    fn is_unchanged(&self, directory: impl std::os::fd::AsFd, name: &std::ffi::OsStr) -> Result<()> {
        let now = rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|stat| stamp(&stat));
        if now == self.before.as_ref().map(|before| before.stamp) { Ok(()) } else { Err(self.overtaken()) }
    }

    fn overtaken(&self) -> Error {
        Error::new(Code::Conflict, format!("{} was changed meanwhile", self.path.display()))
            .with("rule", "changed")
            .with("path", self.path.display().to_string())
            .hint("read it again")
    }
}
