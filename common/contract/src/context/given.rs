//! Reads files that options name. A file that the caller names is trusted, so it may be a pipe: a FIFO, `<(command)`,
//! or `-` for standard input. Do not use this for files that a program discovers, because a FIFO among them would block
//! the program forever.
//!
//! Also standard input that a verb does not read, because its command line has the whole input. Nothing is consumed from
//! it: it may belong to a loop that called this program.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, Write};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, SeekFrom, fstat, seek};

use crate::context::Context;
use crate::output::Severity;
use crate::signals;
use crate::wire::{Code, Error, Result};

/// The longest input from a pipe, in bytes.
const LONGEST_PIPE: u64 = 1 << 30;

/// True if `file` names standard input.
pub(crate) fn is_input(file: &OsStr) -> bool {
    file == "-" || file == "/dev/stdin"
}

/// Rejects a command line that reads standard input twice: by several of these files, or by one of them and as the
/// program's input.
pub fn check_input<'a>(files: impl IntoIterator<Item = &'a OsStr>, is_read: bool) -> Result<()> {
    if files.into_iter().filter(|file| is_input(file)).count() + usize::from(is_read) < 2 {
        return Ok(());
    }
    let message = "standard input can be read only once, and is named by an option";
    Err(Error::usage(message).hint("give the text as an argument, or name a file or <(command) in the option"))
}

/// Returns the bytes of a file, at most `limit`. A signal ends the wait.
pub fn bytes(file: &Path, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    copy(file, limit, &mut bytes)?;
    Ok(bytes)
}

/// Decodes UTF-8, without the byte order mark that some editors write at its start. The error names the offset. Bytes
/// with a NUL are not text: archives, films and UTF-16 may be valid UTF-8.
pub fn text_of(bytes: &[u8]) -> Result<&str> {
    let refused = |what: &str, at: usize| {
        let error = Error::validation(format!("the text {what}: byte {at}")).with("offset", at);
        error.hint("convert it, for example with iconv")
    };
    let text = std::str::from_utf8(bytes).map_err(|e| refused("is not UTF-8", e.valid_up_to()))?;
    match text.find('\0') {
        Some(at) => Err(refused("has a NUL", at)),
        None => Ok(text.strip_prefix('\u{feff}').unwrap_or(text)),
    }
}

/// Returns a text without its last line end.
pub(crate) fn without_line_end(text: &[u8]) -> &[u8] {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    text.strip_suffix(b"\r").unwrap_or(text)
}

/// Opens a regular file. Other input is copied to an anonymous temporary file first.
pub fn seekable(file: &Path) -> Result<File> {
    if file.is_file() && !is_input(file.as_os_str()) {
        return File::open(file).map_err(|e| unreadable(e, "file", file));
    }
    let mut whole = tempfile::tempfile().map_err(|e| Error::io("creating a temporary file", e))?;
    copy(file, LONGEST_PIPE, &mut whole)?;
    whole.rewind()?;
    Ok(whole)
}

fn copy(file: &Path, limit: u64, into: &mut dyn Write) -> Result<()> {
    // With `O_NONBLOCK`, neither opening nor reading a pipe without a writer blocks, so that a signal ends each wait.
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let mut input = if is_input(file.as_os_str()) {
        File::from(rustix::io::dup(rustix::stdio::stdin())?)
    } else {
        OpenOptions::new().read(true).custom_flags(nonblocking).open(file).map_err(|e| unreadable(e, "file", file))?
    };
    let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        signals::wait_readable(input.as_fd(), None)?;
        let read = match input.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => read,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => continue,
            Err(e) => return Err(unreadable(e, "file", file)),
        };
        total += read as u64;
        if total > limit {
            let error = Error::validation(format!("too large: the limit is {limit} bytes")).in_file(file);
            return Err(error.with("limit", limit));
        }
        into.write_all(&buffer[..read]).map_err(|e| Error::io("reading", e).in_file(file))?;
    }
}

/// Returns the real path of a directory that an option names.
pub fn directory(option: &str, named: &Path) -> Result<PathBuf> {
    let hinted = |error: Error| error.hint(format!("{option} takes an existing directory"));
    let real = named.canonicalize().map_err(|e| hinted(unreadable(e, "directory", named)))?;
    if real.is_dir() { Ok(real) } else { Err(hinted(Error::validation("not a directory").in_file(named))) }
}

/// Makes the error of a path that cannot be read; `kind` names what it should be.
pub fn unreadable(e: std::io::Error, kind: &str, path: &Path) -> Error {
    let error = match e.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Error::not_found(format!("no such {kind}")),
        ErrorKind::PermissionDenied => Error::new(Code::Forbidden, "permission denied"),
        _ => Error::io("reading", e),
    };
    error.in_file(path)
}

/// Returns the number of bytes of a pipe, socket or file on standard input that can be read now, and if they begin the
/// file.
fn unread_input() -> (u64, bool) {
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
pub fn has_unread_input() -> bool {
    unread_input().0 > 0
}

/// Fails before the effect of a verb if standard input is a file that nobody has read from, because the caller
/// redirected it for this verb. The hint names the option that reads it.
pub fn refuse_unread_file(hint: &str) -> Result<()> {
    match unread_input() {
        (1.., true) => Err(Error::usage(
            "standard input is a file that would not be read, because the command line has the whole input",
        )
        .hint(format!("{hint}, or redirect from /dev/null"))),
        _ => Ok(()),
    }
}

/// Warns after the effect of a verb if standard input has bytes, because a forgotten `-` is a common mistake. A pipe
/// may get its bytes later than this program starts.
pub fn note_unread_input(hint: &str, context: &mut Context) {
    if has_unread_input() {
        let message = format!("standard input was not read: {hint}, or redirect from /dev/null");
        context.warn(&message);
        context.out.notice("stdin_ignored", Severity::Warning, message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipe_is_read_to_end_or_limit() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        let give = |text: &'static str| {
            let pipe = pipe.clone();
            std::thread::spawn(move || {
                // The reader opens the pipe first and waits for its writer.
                std::thread::sleep(std::time::Duration::from_millis(50));
                std::fs::write(pipe, text).unwrap();
            })
        };
        let writer = give("from a pipe");
        assert_eq!(bytes(&pipe, 11).unwrap(), b"from a pipe");
        writer.join().unwrap();
        let writer = give("from a pipe");
        assert_eq!(bytes(&pipe, 10).unwrap_err().details()["limit"], 10);
        writer.join().unwrap();
        let writer = give("one\ntwo\n");
        assert_eq!(std::io::read_to_string(seekable(&pipe).unwrap()).unwrap(), "one\ntwo\n");
        writer.join().unwrap();
    }

    #[test]
    fn bytes_with_nul_are_not_text() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
        for bytes in [&b"\0\0\0 ftypisom"[..], b"a.txt\0\0ustar", b"end\0", &utf16("a"), b"\xFF"] {
            assert!(text_of(bytes).is_err(), "{bytes:?}");
        }
        assert_eq!(text_of("\u{feff}a\x01é".as_bytes()).unwrap(), "a\x01é", "the control");
    }

    #[test]
    fn standard_input_named_twice_fails() {
        let check = |files: &[&str], is_read| check_input(files.iter().map(OsStr::new), is_read).is_ok();
        assert!(check(&["-", "a"], false) && check(&["a"], true));
        assert!(!check(&["-"], true) && !check(&["-", "/dev/stdin"], false));
    }
}
