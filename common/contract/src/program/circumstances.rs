//! Under what a request is made: tokens and request ids hold only where all of it is as it was.

use std::path::Path;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::context::Context;
use crate::keys::hex;
use crate::wire::{Code, Error, Result};

/// The account, as `uid@host`.
pub(super) fn account() -> String {
    let system = rustix::system::uname();
    format!("{}@{}", rustix::process::getuid().as_raw(), system.nodename().to_string_lossy())
}

/// The hash of the policy file; none where there is none.
pub(super) fn policy(context: &Context) -> Result<Option<String>> {
    let path = context.home.policy_file();
    match std::fs::read(&path) {
        Ok(bytes) => Ok(Some(hex(&Sha256::digest(&bytes)))),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(Error::io("reading the policy", e).in_file(&path)),
    }
}

/// A home as it is bound to: where it really lies.
pub(super) fn place(home: &Path) -> String {
    crate::home::resolved(home).display().to_string()
}

/// What is bound to, as bytes.
pub(super) fn encoded(what: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(what)
        .map_err(|e| Error::new(Code::Unknown, format!("what is asked cannot be written down: {e}")))
}
