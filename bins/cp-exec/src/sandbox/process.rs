//! What every process of a run does alike: end with its parent, and leave without returning.

use std::os::fd::BorrowedFd;

use rustix::process::Signal;

use super::report::{Failure, Report};
use super::{sys, wire};

/// Has the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> Result<(), rustix::io::Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Reports a failure and leaves, from a child that cannot return.
pub(super) fn give_up(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    // A report that cannot be sent has no reader any more.
    drop(wire::send_report(socket, &Report::Failed(failure), None));
    sys::leave(125)
}
