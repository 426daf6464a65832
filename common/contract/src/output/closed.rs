//! Whether this process was started without a standard output (`>&-`).
//!
//! Rust's runtime opens `/dev/null` in the place of a closed standard stream before `main`, and from then on every write succeeds but
//! the output is lost. The replacement cannot be distinguished from a redirection: Python, Node and daemons open `/dev/null` for reading and
//! writing too. So the check runs before that of the runtime, in a function that the loader calls first. A descriptor that is
//! there and cannot be written is not seen here; the first write reports it.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, fcntl_getfd};

use crate::wire::{Code, Error, Result};

static CLOSED: AtomicBool = AtomicBool::new(false);

extern "C" fn look() {
    // One system call and one store: nothing else is ready yet.
    if fcntl_getfd(rustix::stdio::stdout()) == Err(Errno::BADF) {
        CLOSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(target_os = "linux")]
#[used]
#[expect(unsafe_code, reason = "the only place that is before the runtime; the function needs nothing of it")]
#[unsafe(link_section = ".init_array")]
static FIRST: extern "C" fn() = look;

/// Fails where nobody could see what is done.
pub(crate) fn check_open() -> Result<()> {
    if CLOSED.load(Ordering::Relaxed) {
        let error = Error::new(Code::Io, "standard output is closed, so nothing is done");
        return Err(error.hint("send it to /dev/null if nobody needs it").fatal());
    }
    Ok(())
}
