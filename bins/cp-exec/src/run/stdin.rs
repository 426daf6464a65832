//! What a command reads on its standard input.

use std::os::fd::OwnedFd;

use cp_common::{Error, Result};

use crate::sandbox;

/// A file with these bytes, to be a command's standard input.
pub(crate) fn holding(bytes: &[u8]) -> Result<OwnedFd> {
    sandbox::memory_file("stdin", bytes).map_err(|e| Error::io("cannot prepare the standard input", e))
}

/// The descriptor of our own standard input, for a command that is to read it.
pub(crate) fn own() -> Result<OwnedFd> {
    rustix::stdio::stdin().try_clone_to_owned().map_err(|e| Error::io("cannot pass the standard input on", e))
}
