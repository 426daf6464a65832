//! Standard input that a verb does not read, because its command line has the whole input. Nothing is consumed from it:
//! it may belong to a loop that called this program.

use rustix::fs::{FileType, SeekFrom, fstat, seek};

use crate::context::Context;
use crate::output::Severity;
use crate::wire::{Error, Result};

/// Returns the number of bytes of a pipe, socket or file on standard input that can be read now, and if they begin the
/// file.
fn waiting() -> (u64, bool) {
    let stdin = rustix::stdio::stdin();
    let Ok(stat) = fstat(stdin) else { return (0, false) };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {
            let here = seek(stdin, SeekFrom::Current(0)).unwrap_or(0);
            (u64::try_from(stat.st_size).unwrap_or(0).saturating_sub(here), here == 0)
        }
        FileType::Fifo | FileType::Socket => (rustix::io::ioctl_fionread(stdin).unwrap_or(0), false),
        _ => (0, false),
    }
}

/// True if standard input has unread bytes: in a pipe or a file, never on a terminal.
pub fn has_bytes() -> bool {
    waiting().0 > 0
}

/// Fails before the effect of a verb if standard input is a file that nobody has read from, because the caller
/// redirected it for this verb. The hint names the option that reads it.
pub fn refuse_file(hint: &str) -> Result<()> {
    match waiting() {
        (1.., true) => Err(Error::usage(
            "standard input is a file that would not be read, because the command line has the whole input",
        )
        .hint(format!("{hint}, or redirect from /dev/null"))),
        _ => Ok(()),
    }
}

/// Warns after the effect of a verb if standard input has bytes, because a forgotten `-` is a common mistake. A pipe
/// may get its bytes later than this program starts.
pub fn note(hint: &str, context: &mut Context) {
    if has_bytes() {
        let message = format!("standard input was not read: {hint}, or redirect from /dev/null");
        context.warn(&message);
        context.out.notice("stdin_ignored", Severity::Warning, message);
    }
}
