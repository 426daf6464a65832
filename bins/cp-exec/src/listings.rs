//! What directories contain, read once for all walks around a run.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC};
use rustix::fs::FileType;

use crate::file_id::FileId;
use crate::nofollow;

/// The names in a directory with their types, in byte order.
pub(crate) struct Listing {
    /// All names, because one allocation for each takes longer than to read it.
    names: Vec<u8>,
    /// The place of each name in them.
    entries: Vec<(Range<usize>, FileType)>,
}

impl Listing {
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&OsStr, FileType)> {
        self.entries.iter().map(|(place, kind)| (OsStr::from_bytes(&self.names[place.clone()]), *kind))
    }
}

/// A directory whose identity is the same as before has the same entries, because its time stamps follow each new,
/// removed or renamed entry.
static LISTINGS: LazyLock<Mutex<HashMap<FileId, Arc<Listing>>>> = LazyLock::new(Mutex::default);

/// The file systems of which the time stamps of a directory are certain.
const CERTAIN: [libc::c_long; 5] =
    [BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC];

/// The entries of an open directory.
pub(crate) fn of(directory: &OwnedFd) -> rustix::io::Result<Arc<Listing>> {
    let id = FileId::from(&rustix::fs::fstat(directory)?);
    if let Some(known) = listings().get(&id) {
        return Ok(known.clone());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let (mut names, mut entries) = (Vec::new(), Vec::new());
    nofollow::entries(directory, |name, kind| {
        let start = names.len();
        names.extend_from_slice(name.to_bytes());
        entries.push((start..names.len(), kind));
    })?;
    entries.sort_unstable_by(|(one, _), (other, _)| names[one.clone()].cmp(&names[other.clone()]));
    let listing = Arc::new(Listing { names, entries });
    if id.is_settled(i64::try_from(now).unwrap_or(0)) && CERTAIN.contains(&rustix::fs::fstatfs(directory)?.f_type) {
        listings().insert(id, listing.clone());
    }
    Ok(listing)
}

fn listings() -> MutexGuard<'static, HashMap<FileId, Arc<Listing>>> {
    LISTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets everything at the end of a run.
pub(crate) fn forget() {
    listings().clear();
}
