//! The `/tmp` of a session: a directory below the home that is shared by the commands of the session and bounded in
//! size.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

use cp_common::home::make_directory;
use cp_common::{Error, Result};
use ignore::WalkBuilder;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, UTIME_NOW};

use crate::refusal::refuse;

/// A directory that was not used for this long is removed.
const LIFETIME: Duration = Duration::from_hours(7 * 24);

/// Prepares the directory for a command, and removes the directories of ended sessions.
pub(crate) fn prepare(directory: &Path, most_bytes: u64, most_entries: u64) -> Result<()> {
    make_directory(directory)?;
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    rustix::fs::utimensat(CWD, directory, &Timestamps { last_access: now, last_modification: now }, AtFlags::empty())
        .map_err(|e| Error::io("the session's /tmp", e).in_file(directory))?;
    directory.parent().into_iter().for_each(remove_unused);
    if fits(directory, most_bytes, most_entries) {
        return Ok(());
    }
    Err(refuse(
        "session_tmp",
        format!("the session's /tmp holds more than {most_bytes} bytes or {most_entries} entries"),
    )
    .with("path", directory.display().to_string())
    .hint("begin a new session; the owner can remove files from that directory, or raise exec.scratch"))
}

fn remove_unused(all: &Path) {
    let is_unused = |entry: &fs::DirEntry| {
        let modified = entry.metadata().and_then(|meta| meta.modified());
        modified.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age > LIFETIME))
    };
    for entry in fs::read_dir(all).into_iter().flatten().flatten().filter(is_unused) {
        // If removal fails now, the next start tries again.
        drop(fs::remove_dir_all(entry.path()));
    }
}

/// True if a directory holds at most so many bytes and entries.
fn fits(directory: &Path, most_bytes: u64, most_entries: u64) -> bool {
    let entries = WalkBuilder::new(directory).standard_filters(false).build();
    // Another command of the session may have removed an entry in the meantime, or made a directory unreadable.
    let entries = entries.flatten().filter(|entry| entry.depth() > 0);
    let mut sizes = entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks() * 512));
    let (mut bytes, mut count) = (0, 0);
    sizes.all(|size| {
        (bytes, count) = (bytes + size, count + 1);
        bytes <= most_bytes && count <= most_entries
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn session_tmp_is_bounded_and_unused_directories_are_removed() {
        let place = tempfile::tempdir().unwrap();
        let (own, old) = (place.path().join("own"), place.path().join("old"));
        for directory in [&own, &old] {
            fs::create_dir_all(directory.join("below")).unwrap();
            fs::write(directory.join("below/file"), vec![1; 100_000]).unwrap();
        }
        assert!(prepare(&own, 1 << 20, 100).is_ok() && old.exists());
        for (bytes, entries) in [(50_000, 100), (1 << 20, 1)] {
            assert_eq!(prepare(&own, bytes, entries).unwrap_err().details()["rule"], "session_tmp");
        }
        let past = SystemTime::now() - LIFETIME - Duration::from_mins(1);
        fs::File::open(&old).unwrap().set_modified(past).unwrap();
        fs::File::open(&own).unwrap().set_modified(past).unwrap();
        prepare(&own, 1 << 20, 100).unwrap();
        assert!(own.exists() && !old.exists());
    }
}
