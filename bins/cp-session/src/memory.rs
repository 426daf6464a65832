//! Memories: one ledger for each kind, below `memory/`.

use std::path::PathBuf;

use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};

/// The kind that rounds of a session are remembered as.
const REGISTERED: &str = "session_turn";

/// The ledger of a kind. A kind is a lower-case name.
pub(crate) fn file_of(kind: &str, context: &Context) -> Result<PathBuf> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if kind.is_empty() || kind.len() > 64 || !kind.bytes().all(allowed) {
        return Err(Error::validation(format!(
            "`{kind}` is not a valid kind of memory: use lower-case letters, digits and _"
        )));
    }
    Ok(context.home.path("memory").join(format!("{kind}.jsonl")))
}

/// The ledger of a kind that something was remembered in; `None` for a registered kind that is still empty.
pub(crate) fn existing(kind: &str, context: &Context) -> Result<Option<PathBuf>> {
    let file = file_of(kind, context)?;
    if file.is_file() {
        return Ok(Some(file));
    }
    if kind == REGISTERED {
        return Ok(None);
    }
    let listing = std::fs::read_dir(context.home.path("memory")).into_iter().flatten().flatten();
    let names: Vec<String> =
        listing.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".jsonl")?.to_owned())).collect();
    let error = Error::not_found(format!("there is no memory of the kind `{kind}`")).with("kind", kind);
    Err(match nearest(kind, names.iter().map(String::as_str)) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error.hint(format!("cp-session remember --kind {kind} creates it")),
    })
}
