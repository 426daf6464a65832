//! A file that several processes append to: one lock, one write, and names that are durable.

mod shared;

use std::fs::File;
use std::path::Path;

use cp_common::{Code, Error, Result};

pub use self::shared::append_line;
pub(crate) use self::shared::{Absent, Shared};

/// Makes the names in a file's directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)
        .and_then(|directory| directory.sync_all())
        .map_err(|e| Error::new(Code::Io, format!("cannot sync the directory: {e}")).in_file(directory).fatal())
}
