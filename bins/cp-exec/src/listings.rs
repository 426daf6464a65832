//! What directories contain, read once for all walks around a run.

use std::collections::HashMap;
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use libc::{BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC};
use rustix::fs::FileType;

use crate::file_id::FileId;
use crate::nofollow::entries;

/// The names in a directory with their types, in byte order.
type Listing = Arc<Vec<(CString, FileType)>>;

/// A directory whose identity is the same as before has the same entries, because its time stamps follow each new,
/// removed or renamed entry.
static LISTINGS: LazyLock<Mutex<HashMap<FileId, Listing>>> = LazyLock::new(Mutex::default);

/// The file systems of which the time stamps of a directory are certain.
const CERTAIN: [libc::c_long; 5] =
    [BTRFS_SUPER_MAGIC, EXT4_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, TMPFS_MAGIC, XFS_SUPER_MAGIC];

/// The entries of an open directory.
pub(crate) fn of(directory: &OwnedFd) -> rustix::io::Result<Listing> {
    let id = FileId::from(&rustix::fs::fstat(directory)?);
    if let Some(known) = listings().get(&id) {
        return Ok(known.clone());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let mut listing = Vec::new();
    entries(directory, |name, kind| listing.push((name.to_owned(), kind)))?;
    listing.sort_unstable_by(|one, other| one.0.cmp(&other.0));
    let listing = Arc::new(listing);
    if id.is_settled(i64::try_from(now).unwrap_or(0)) && CERTAIN.contains(&rustix::fs::fstatfs(directory)?.f_type) {
        listings().insert(id, listing.clone());
    }
    Ok(listing)
}

fn listings() -> MutexGuard<'static, HashMap<FileId, Listing>> {
    LISTINGS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Forgets everything at the end of a run.
pub(crate) fn forget() {
    listings().clear();
}
