//! The one identity of a file: which file it is, and whether its content is the same as before.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{Stat, Timespec, Timestamps, UTIME_NOW};
use serde::{Deserialize, Serialize};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::nofollow::Node;

/// A file whose time stamps are newer than this, in nanoseconds, could change again without other time stamps, because
/// some file systems have a resolution of 2 s.
const SETTLED: i64 = 2_000_000_000;

/// Device, inode, size, modification and change time, in nanoseconds since 1970.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    Deserialize,
    Serialize,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(C)]
pub(crate) struct FileId {
    pub dev: u64,
    pub ino: u64,
    pub size: u64,
    pub mtime: i64,
    pub ctime: i64,
}

impl FileId {
    fn new([dev, ino, size]: [u64; 3], times: [(i64, i64); 2]) -> Self {
        let nanoseconds = |(seconds, rest): (i64, i64)| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
        let [mtime, ctime] = times.map(nanoseconds);
        Self { dev, ino, size, mtime, ctime }
    }

    pub(crate) fn node(&self) -> Node {
        (self.dev, self.ino)
    }

    /// True if a change after this time is certain to give the file another identity.
    pub(crate) fn is_settled(&self, now: i64) -> bool {
        self.mtime.max(self.ctime) < now.saturating_sub(SETTLED)
    }

    /// The identity without what another name or other permissions change.
    pub(crate) fn without_change_time(self) -> Self {
        Self { ctime: 0, ..self }
    }
}

impl From<&Stat> for FileId {
    #[expect(clippy::cast_possible_wrap, reason = "nanoseconds of a second")]
    fn from(stat: &Stat) -> Self {
        let times = [(stat.st_mtime, stat.st_mtime_nsec as i64), (stat.st_ctime, stat.st_ctime_nsec as i64)];
        Self::new([stat.st_dev, stat.st_ino, stat.st_size.cast_unsigned()], times)
    }
}

impl From<&Metadata> for FileId {
    fn from(meta: &Metadata) -> Self {
        let times = [(meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec())];
        Self::new([meta.dev(), meta.ino(), meta.len()], times)
    }
}

/// Sets the times of a file to the current time of the kernel, which also stamps changed files, and returns it.
pub(crate) fn touch(file: &File) -> io::Result<i64> {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::futimens(file, &Timestamps { last_access: now, last_modification: now })?;
    Ok(FileId::from(&file.metadata()?).mtime)
}
