//! Files that options and settings name.

use std::io::ErrorKind;
use std::path::Path;

use cp_common::{Code, Error};

/// The failure to open or read a file that an option names.
pub(crate) fn unreadable(e: std::io::Error, file: &Path) -> Error {
    let code = if e.kind() == ErrorKind::NotFound { Code::NotFound } else { Code::Io };
    Error::new(code, Error::from(e).message()).in_file(file).fatal()
}
