//! What was read of a tree, kept until the file or the directory that it was read from changes.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use cp_common::clock::unix_seconds;

use crate::plane::read::Read;

/// The most bytes of files that are kept.
const BYTES: usize = 16 << 20;
/// The most directories that are kept.
const DIRECTORIES: usize = 4096;

/// Shows whether a file is still the same: nothing that a writer does leaves all of it as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    pub(super) size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    pub(super) fn of(kind: &Metadata) -> Self {
        Self {
            device: kind.dev(),
            inode: kind.ino(),
            size: kind.size(),
            modified: (kind.mtime(), kind.mtime_nsec()),
            changed: (kind.ctime(), kind.ctime_nsec()),
        }
    }

    /// Whether a change from now on would show. Clocks of file systems tick slowly: of two writes in one tick the second does not.
    pub(super) fn is_settled(&self) -> bool {
        u64::try_from(self.changed.0).is_ok_and(|changed| changed + 1 < unix_seconds())
    }
}

/// The end of a file, or all of it.
#[derive(Clone, Debug)]
pub(super) struct Part {
    pub(super) bytes: Rc<[u8]>,
    pub(super) read: Read,
}

/// A file, and how much of its end.
pub(super) type Name = (PathBuf, u64);

#[derive(Debug)]
struct File {
    stamp: Stamp,
    part: Part,
    /// What the bytes say, once that was asked.
    said: Option<Rc<dyn Any>>,
}

/// What is kept of a tree.
#[derive(Debug, Default)]
pub(super) struct Kept {
    files: RefCell<HashMap<Name, File>>,
    directories: RefCell<HashMap<PathBuf, (Stamp, Vec<String>)>>,
}

impl Kept {
    /// What was read of a file that is `now` so, if it was so then.
    pub(super) fn part(&self, name: &Name, now: Stamp) -> Option<Part> {
        self.files.borrow().get(name).filter(|file| file.stamp == now).map(|file| file.part.clone())
    }

    /// Keeps what was read of a file that was so, and settled, before it was read.
    pub(super) fn keep(&self, name: Name, stamp: Stamp, part: &Part) {
        if stamp.size.min(name.1) != part.bytes.len() as u64 || part.bytes.len() > BYTES {
            return;
        }
        let mut files = self.files.borrow_mut();
        let total: usize = files.values().map(|file| file.part.bytes.len()).sum();
        if total + part.bytes.len() > BYTES {
            files.clear();
        }
        files.insert(name, File { stamp, part: part.clone(), said: None });
    }

    /// What these bytes say: the same bytes, not others like them, say the same.
    pub(super) fn said<T: 'static, E>(
        &self,
        name: &Name,
        part: &Part,
        read: impl FnOnce(&Part) -> Result<T, E>,
    ) -> Result<Rc<T>, E> {
        let mut files = self.files.borrow_mut();
        let mut file = files.get_mut(name).filter(|file| Rc::ptr_eq(&file.part.bytes, &part.bytes));
        let known = file.as_ref().and_then(|file| file.said.clone()?.downcast().ok());
        if let Some(known) = known {
            return Ok(known);
        }
        let said = Rc::new(read(part)?);
        if let Some(file) = &mut file {
            file.said = Some(Rc::<T>::clone(&said));
        }
        Ok(said)
    }

    /// The names in a directory that is `now` so, which `list` finds if they are not known.
    pub(super) fn names<E>(
        &self,
        directory: &Path,
        now: Stamp,
        list: impl FnOnce() -> Result<Vec<String>, E>,
    ) -> Result<Vec<String>, E> {
        let mut directories = self.directories.borrow_mut();
        if let Some((_, names)) = directories.get(directory).filter(|(stamp, _)| *stamp == now) {
            return Ok(names.clone());
        }
        let is_settled = now.is_settled();
        let names = list()?;
        if is_settled {
            if directories.len() >= DIRECTORIES {
                directories.clear();
            }
            directories.insert(directory.to_owned(), (now, names.clone()));
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_listed_again_once_it_changed_and_while_it_may_change_unseen() {
        let kept = Kept::default();
        let list = |stamp: Stamp, name: &str| {
            kept.names(Path::new("d"), stamp, || Ok::<_, std::io::Error>(vec![name.to_owned()])).unwrap()
        };
        let old = Stamp { device: 1, inode: 1, size: 1, modified: (0, 0), changed: (0, 0) };
        assert_eq!([list(old, "a"), list(old, "b")], [["a"], ["a"]]);
        assert_eq!(list(Stamp { changed: (0, 1), ..old }, "c"), ["c"]);
        let now = i64::try_from(unix_seconds()).unwrap();
        let fresh = Stamp { changed: (now, 0), ..old };
        assert_eq!([list(fresh, "d"), list(fresh, "e")], [["d"], ["e"]]);
    }
}
