//! Ctrl-C during a turn. A filter that was interrupted once is to end, and `cp_common::signals` never forgets; a session with a person
//! outlives many interruptions, and keeps a mark of its own that can be wiped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cp_common::{Code, Error, Result};
use signal_hook::consts::SIGINT;

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Begins to notice.
pub(crate) fn watch() -> Result<()> {
    let seen = SEEN.get_or_init(Arc::default);
    signal_hook::flag::register(SIGINT, Arc::clone(seen))
        .map(|_| ())
        .map_err(|e| Error::new(Code::Io, format!("noticing signals: {e}")))
}

/// Whether one has come since it was last forgotten.
pub(crate) fn seen() -> bool {
    SEEN.get().is_some_and(|seen| seen.load(Ordering::Relaxed))
}

/// Forgets it: what it was meant for has stopped.
pub(crate) fn forget() {
    if let Some(seen) = SEEN.get() {
        seen.store(false, Ordering::Relaxed);
    }
}

/// What a turn ends with that was interrupted.
pub(crate) fn error() -> Error {
    Error::new(Code::Interrupted, "interrupted by a signal")
}
