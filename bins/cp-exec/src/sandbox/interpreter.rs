//! The program that the kernel starts for a file: the interpreter that the first line of a script names, or the loader
//! of an ELF program. Reads a file as `binfmt_script` and `binfmt_elf` of the kernel do.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The number of bytes that the kernel reads to recognize a file.
pub(crate) const HEAD: usize = 256;
/// The most bytes of program headers that the kernel accepts.
const HEADERS: usize = 1 << 16;
const PT_INTERP: u64 = 3;

/// The program that the kernel starts for a file.
pub(super) enum Interpreter {
    /// It gets the one word of the first line and the path of the script as arguments.
    OfScript(PathBuf, Option<OsString>),
    /// It is mapped beside the program and gets control first.
    OfElf(PathBuf),
}

/// The interpreters of a file. An ELF file is read in both sizes, because the kernel does not look at its class.
pub(super) fn interpreters(file: &File) -> io::Result<Vec<Interpreter>> {
    let mut head = [0; HEAD];
    let mut length = 0;
    while let read @ 1.. = file.read_at(&mut head[length..], length as u64)? {
        length += read;
    }
    if !head.starts_with(b"\x7fELF") {
        return Ok(first_line(&head).map(|(path, word)| Interpreter::OfScript(path, word)).into_iter().collect());
    }
    let loaders = [true, false].into_iter().filter_map(|is_wide| loader(file, &head, is_wide).transpose());
    loaders.map(|path| path.map(Interpreter::OfElf)).collect()
}

/// True for an ELF program of this machine, which the kernel executes itself.
pub(super) fn is_native(file: &File) -> bool {
    /// The end of the number of the machine.
    const MACHINE: usize = 20;
    let head = |file: &File| {
        let mut head = [0; MACHINE];
        file.read_exact_at(&mut head, 0).is_ok().then_some(head)
    };
    let own = File::open("/proc/self/exe").ok().and_then(|own| head(&own));
    head(file).zip(own).is_some_and(|(file, own)| file[..4] == own[..4] && file[MACHINE - 2..] == own[MACHINE - 2..])
}

/// The interpreter that the first line of a script names, and its one word. `None` if the kernel would not start it.
pub(crate) fn first_line(head: &[u8; HEAD]) -> Option<(PathBuf, Option<OsString>)> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let line = head.strip_prefix(b"#!")?;
    let line = if let Some(end) = line.iter().position(|byte| *byte == b'\n') {
        &line[..end]
    } else {
        // The name is complete only if something follows it.
        let start = line.iter().position(|byte| !is_blank(byte))?;
        line[start..].iter().any(|byte| is_blank(byte) || *byte == 0).then_some(line)?
    };
    let until_nul = |text: &[u8]| text.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    let start = line.iter().position(|byte| !is_blank(byte))?;
    let end = line.iter().rposition(|byte| !is_blank(byte))? + 1;
    let line = &line[start..end];
    let name_end = line.iter().position(|byte| is_blank(byte) || *byte == 0).unwrap_or(line.len());
    let (name, rest) = line.split_at(name_end);
    let word = rest.iter().position(|byte| !is_blank(byte)).map(|at| until_nul(&rest[at..]));
    let word = word.filter(|word| !word.is_empty()).map(OsString::from_vec);
    Some((PathBuf::from(OsStr::from_bytes(name)), word))
}

/// True for the name of a dynamic loader.
pub(super) fn is_loader(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name == b"libc.so" || name.starts_with(b"ld") && memchr::memmem::find(name, b".so").is_some()
}

/// The program that a loader starts if it is executed itself, as an index of its arguments.
pub(super) fn operand_of_loader(argv: &[String]) -> Option<usize> {
    const VALUED: [&str; 7] = [
        "--library-path",
        "--inhibit-rpath",
        "--audit",
        "--preload",
        "--argv0",
        "--glibc-hwcaps-prepend",
        "--glibc-hwcaps-mask",
    ];
    let mut at = 1;
    loop {
        match argv.get(at)?.as_str() {
            option if VALUED.contains(&option) => at += 2,
            "--" => return argv.get(at + 1).map(|_| at + 1),
            option if option.starts_with("--") => at += 1,
            _ => return Some(at),
        }
    }
}

/// The loader that an ELF file names, read as one of 64 or of 32 bits.
fn loader(file: &File, head: &[u8], is_wide: bool) -> io::Result<Option<PathBuf>> {
    let address = if is_wide { 8 } else { 4 };
    // Offsets in the header: the offset, the size and the number of the program headers. In a program header: its size,
    // and the offset and the size of its segment.
    let [headers, header_size, number, size, segment, segment_size] =
        if is_wide { [32, 54, 56, 56, 8, 32] } else { [28, 42, 44, 32, 4, 16] };
    let length = usize::try_from(value(head, number, 2)).unwrap_or(HEADERS) * size;
    if value(head, header_size, 2) != size as u64 || length > HEADERS {
        return Ok(None);
    }
    let mut table = vec![0; length];
    if file.read_exact_at(&mut table, value(head, headers, address)).is_err() {
        // The kernel does not start a file that ends before its headers.
        return Ok(None);
    }
    let Some(header) = table.chunks(size).find(|header| value(header, 0, 4) == PT_INTERP) else { return Ok(None) };
    let length = usize::try_from(value(header, segment_size, address)).unwrap_or(usize::MAX);
    if length > libc::PATH_MAX.unsigned_abs() as usize {
        return Ok(None);
    }
    let mut path = vec![0; length];
    file.read_exact_at(&mut path, value(header, segment, address))?;
    path.truncate(memchr::memchr(0, &path).unwrap_or(length));
    Ok(Some(PathBuf::from(OsString::from_vec(path))))
}

/// A number in the byte order of both supported architectures.
fn value(bytes: &[u8], at: usize, length: usize) -> u64 {
    let mut value = [0; 8];
    value[..length].copy_from_slice(&bytes[at..at + length]);
    u64::from_le_bytes(value)
}
