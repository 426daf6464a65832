//! Ctrl-C during a turn. A filter that was interrupted once is to end, and `cp_common::signals` never forgets; a session with a person
//! outlives many interruptions, and keeps a mark of its own that can be wiped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use cp_common::{Code, Error, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

static SEEN: OnceLock<Arc<AtomicBool>> = OnceLock::new();
/// What ends the session, and is never forgotten.
static ENDED: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Begins to notice. What ends the session ends the turn under way as well.
pub(crate) fn watch() -> Result<()> {
    for (mark, signals) in [(&SEEN, &[SIGINT][..]), (&ENDED, &[SIGTERM, SIGHUP])] {
        let mark = mark.get_or_init(Arc::default);
        for signal in signals {
            signal_hook::flag::register(*signal, Arc::clone(mark))
                .map_err(|e| Error::new(Code::Io, format!("noticing signals: {e}")))?;
        }
    }
    Ok(())
}

/// Whether one has come since it was last forgotten.
pub(crate) fn seen() -> bool {
    [&SEEN, &ENDED].iter().any(|mark| mark.get().is_some_and(|seen| seen.load(Ordering::Relaxed)))
}

/// Forgets it: what it was meant for has stopped, or was never begun.
pub(crate) fn forget() {
    if let Some(seen) = SEEN.get() {
        seen.store(false, Ordering::Relaxed);
    }
}

/// What a turn ends with that was interrupted.
pub(crate) fn error() -> Error {
    Error::new(Code::Interrupted, "interrupted by a signal")
}
