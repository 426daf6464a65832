//! The output of an earlier run, which the next run continues: one process at a time, and only whole lines.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::context::given;
use crate::output::Format;
use crate::wire::record::Record;
use crate::wire::{Code, Error, Result};

/// What each record begins with.
const BEGINNINGS: [&[u8]; 2] = [br#"{"ok":true,"schema_version":""#, br#"{"ok":false,"schema_version":""#];
/// The hint about an output without records.
const RECORDS: &str = "name a new file, and write records into it: leave out --format";

/// Passes each record of the earlier output to `each`. Creates a missing file, truncates a partial last record of a
/// killed writer, and locks the file until this process ends. A dry run only reads; a pipe is not locked. Fails, and
/// changes nothing, if the file has other lines, or if this run would add some in another format.
pub fn read(output: &Path, format: Format, is_dry: bool, mut each: impl FnMut(&Record<'_>)) -> Result<()> {
    if format != Format::Json && is_stdout(output) {
        return Err(Error::usage("only an output of records can be continued").in_file(output).hint(RECORDS).fatal());
    }
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
    let (mut line, mut whole, mut number) = (Vec::new(), 0, 1);
    while reader.read_until(b'\n', &mut line).map_err(wrong)? > 0 {
        let is_whole = line.ends_with(b"\n");
        let is_record = if is_whole { Record::looks_like_one(&line) } else { begins_record(&line) };
        if !is_record {
            let message = format!("line {number} is not a record of an earlier run");
            return Err(Error::validation(message).in_file(output).hint(RECORDS).fatal());
        }
        if !is_whole {
            if is_ours {
                file.set_len(whole).map_err(wrong)?;
            }
            break;
        }
        // What a kill has damaged answers nothing.
        Record::parse(&line).iter().for_each(&mut each);
        whole += line.len() as u64;
        number += 1;
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

/// True for the beginning of a record, however short.
fn begins_record(line: &[u8]) -> bool {
    BEGINNINGS.iter().any(|beginning| line.starts_with(beginning) || beginning.starts_with(line))
}

/// True if standard output is redirected to a file.
fn is_stdout(file: &Path) -> bool {
    let node = |path: &Path| path.metadata().ok().filter(Metadata::is_file).map(|meta| (meta.dev(), meta.ino()));
    node(file).is_some_and(|file| node(Path::new("/proc/self/fd/1")) == Some(file))
}

fn opened(output: &Path) -> Result<File> {
    match OpenOptions::new().read(true).append(true).create(true).open(output) {
        Err(e) if e.kind() == ErrorKind::PermissionDenied => given::seekable(output),
        Err(e) if e.kind() == ErrorKind::NotFound => Err(Error::not_found("no such directory").in_file(output)),
        opened => opened.map_err(|e| Error::io("opening the earlier output", e).in_file(output)),
    }
}

/// The time in which a writer that was killed releases its output: a process that it was starting has it until then.
const RELEASING: Duration = Duration::from_millis(500);

fn held(file: File, output: &Path) -> Result<File> {
    let end = Instant::now() + RELEASING;
    loop {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(file),
            Err(Errno::WOULDBLOCK) if Instant::now() < end => sleep(Duration::from_millis(10)),
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::new(Code::Conflict, "another process writes this output now")
                    .in_file(output)
                    .hint("wait until it has ended; each shard needs an output of its own"));
            }
            Err(e) => return Err(Error::io("cannot lock", e).in_file(output)),
        }
    }
}
