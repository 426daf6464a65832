//! The environment that confirm tokens and request ids are bound to: account, home and policy.

use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::keys::hex;
use crate::wire::{Code, Error, Result};

/// Returns the account, as `uid@host`.
pub(super) fn account() -> String {
    let system = rustix::system::uname();
    format!("{}@{}", rustix::process::getuid().as_raw(), system.nodename().to_string_lossy())
}

/// Returns the hash of the policy file; `None` if there is no policy file.
pub(super) fn policy(context: &Context) -> Result<Option<String>> {
    let path = context.home.policy_file();
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(hex(&Sha256::digest(&bytes)))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the policy", e).in_file(&path)),
    }
}

/// Returns the home's path with symbolic links resolved.
pub(super) fn place(home: &Path) -> String {
    crate::home::resolved(home).display().to_string()
}

/// Encodes a bound value as bytes.
pub(super) fn encoded(what: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(what)
        .map_err(|e| Error::new(Code::Unknown, format!("what is asked cannot be written down: {e}")))
}
