//! Functions for every process of a run: end with its parent, and exit without returning.

use std::os::fd::BorrowedFd;

use rustix::process::Signal;

use super::report::{Failure, Report};
use super::{sys, wire};

/// Makes the kernel kill this process when its parent ends.
pub(super) fn die_with_parent() -> Result<(), rustix::io::Errno> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
}

/// Reports a failure and exits, in a child that cannot return.
pub(super) fn report_and_exit(socket: BorrowedFd<'_>, failure: Failure) -> ! {
    // If the report cannot be sent, the supervisor has ended.
    drop(wire::send_report(socket, &Report::Failed(failure), None));
    sys::leave(125)
}
