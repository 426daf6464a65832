//! Detects a process that was started without standard output (`>&-`).
//!
//! Before `main`, Rust's runtime opens `/dev/null` in place of a closed standard stream; from then on every write
//! succeeds but the output is lost. The replacement cannot be distinguished from a redirection, because Python, Node
//! and daemons also open `/dev/null` for reading and writing. Therefore the check runs before the runtime, in a
//! function that the loader calls first. It does not detect a descriptor that is open but not writable; the first write
//! reports that.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};

use crate::wire::{Code, Error, Result};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // Only one system call and one store, because nothing else is initialized yet.
    if fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF) {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
#[used]
#[expect(unsafe_code, reason = "the only place that is before the runtime; the function needs nothing of it")]
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = look;

/// Fails if standard output is closed, because nobody could read the result.
pub(crate) fn check_open() -> Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        let error = Error::new(Code::Io, "standard output is closed, so nothing is done");
        return Err(error.hint("send it to /dev/null if nobody needs it").fatal());
    }
    Ok(())
}
