//! The output of an earlier run, which the next run continues: one process at a time, and only whole lines.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::context::given;
use crate::wire::{Code, Error, Result};

/// Passes each line of the earlier output to `each`. Creates a missing file, truncates a partial last line of a killed
/// writer, and locks the file until this process ends. A dry run only reads; a pipe is not locked.
pub fn read(output: &Path, is_dry: bool, mut each: impl FnMut(&[u8])) -> Result<()> {
    let is_stream = given::is_input(output.as_os_str()) || output.exists() && !output.is_file();
    let is_ours = !is_dry && !is_stream;
    let file = match is_ours {
        true => opened(output).and_then(|file| held(file, output)),
        false if is_stream || output.exists() => given::seekable(output),
        false => given::seekable(Path::new("/dev/null")),
    };
    let file = file.map_err(Error::fatal)?;
    let wrong = |e: std::io::Error| Error::io("reading the earlier output", e).in_file(output).fatal();
    let mut reader = BufReader::new(&file);
    let (mut line, mut whole) = (Vec::new(), 0);
    while reader.read_until(b'\n', &mut line).map_err(wrong)? > 0 {
        if !line.ends_with(b"\n") {
            if is_ours {
                file.set_len(whole).map_err(wrong)?;
            }
            break;
        }
        whole += line.len() as u64;
        each(&line);
        line.clear();
    }
    // The lock must outlive all other values, because the closing line is written last.
    std::mem::forget(file);
    Ok(())
}

/// Locks the file that standard output is redirected to until this process ends, if it is a file and not locked
/// already.
pub fn hold_stdout() {
    let output = Path::new("/proc/self/fd/1");
    if output.is_file()
        && let Ok(file) = File::open(output)
        && let Ok(file) = held(file, output)
    {
        std::mem::forget(file);
    }
}

fn opened(output: &Path) -> Result<File> {
    match OpenOptions::new().read(true).append(true).create(true).open(output) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => given::seekable(output),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Error::not_found("no such directory").in_file(output)),
        opened => opened.map_err(|e| Error::io("opening the earlier output", e).in_file(output)),
    }
}

fn held(file: File, output: &Path) -> Result<File> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(Error::new(Code::Conflict, "another process writes this output now")
            .in_file(output)
            .hint("wait until it has ended; each shard needs an output of its own")),
        Err(e) => Err(Error::io("cannot lock", e).in_file(output)),
    }
}
