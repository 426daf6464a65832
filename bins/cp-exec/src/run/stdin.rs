//! The standard input of a command, always a copy. Through the descriptor of a file a command could change the mode
//! of the file, and on some machines open it again for writing, even outside of the sandbox.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use cp_common::{Error, Result};

use crate::sandbox;

/// Files up to this size are copied into memory, so that the command can seek. Longer files, pipes, terminals and
/// sockets are copied through a new pipe.
const COPIED: u64 = 16 << 20;

/// A file in memory with these bytes.
pub(crate) fn from_bytes(bytes: &[u8]) -> Result<OwnedFd> {
    sandbox::memory_file("stdin", bytes).map_err(|e| Error::io("cannot prepare the standard input", e))
}

/// The content of a file.
pub(crate) fn of_file(path: &Path) -> Result<OwnedFd> {
    let file = File::open(path).map_err(|e| Error::io("--stdin", e).in_file(path))?;
    contents(file).map_err(|e| Error::io("--stdin", e).in_file(path))
}

/// The content of our own standard input. A pipe is not passed on, because a command could open it for writing
/// through `/proc/self/fd/0`, and other processes may read from the same pipe.
pub(crate) fn from_stdin() -> Result<OwnedFd> {
    let failed = |e| Error::io("cannot pass the standard input on", e);
    let ours = rustix::stdio::stdin().try_clone_to_owned().map_err(failed)?;
    contents(ours.into()).map_err(failed)
}

fn contents(mut file: File) -> std::io::Result<OwnedFd> {
    let meta = file.metadata()?;
    if meta.is_file() && meta.len() <= COPIED {
        let mut bytes = Vec::new();
        (&mut file).take(COPIED + 1).read_to_end(&mut bytes)?;
        // A file that grows in the meantime is passed through a pipe.
        if bytes.len() as u64 <= COPIED {
            return sandbox::memory_file("stdin", &bytes);
        }
        return fed(std::io::Cursor::new(bytes).chain(file));
    }
    fed(file)
}

/// A pipe that these bytes come through. Whoever feeds it ends with the command that reads it, or with this program.
fn fed(mut from: impl Read + Send + 'static) -> std::io::Result<OwnedFd> {
    let (reader, mut writer) = os_pipe::pipe()?;
    std::thread::Builder::new().name("stdin".to_owned()).spawn(move || {
        let mut buffer = vec![0; 64 * 1024];
        // The loop ends if the command stops reading, or if the input cannot be read.
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if writer.write_all(&buffer[..length]).is_err() {
                return;
            }
        }
    })?;
    Ok(reader.into())
}
