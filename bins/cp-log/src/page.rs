//! `cp-log page`: one file of HTML with the records of a bundle, and a script that proves and draws them.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::read::source::{is_stdin, lines_of};
use sha2::{Digest as _, Sha256};

use crate::bundle::format::{self, Closing};
use crate::bundle::{self, Bundled, Output, Plan};
use crate::reading::run_ledger;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "page",
    class: Class::Query,
    output: "bundled",
    examples: &["{} append hello && {} page -o page.html", "{} append hello && {} bundle -o b && {} page b >page.html"],
    ..VerbDoc::EMPTY
};

/// Make one page of HTML that shows what happened, and proves it where it is opened
///
/// The page has the lines as they are, and asks no network. Its script checks the hashes, the chain and, with a key that its reader
/// gives, the signatures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the page to this new file, and answer with its counts (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A run, a session, a bundle, a ledger or a directory of ledgers; - is a bundle on standard input (default: all of home's ledgers)
    #[arg(value_name = "RUN|SESSION|BUNDLE")]
    what: Option<PathBuf>,
}

const TEMPLATE: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str =
    concat!(include_str!("../assets/proof.js"), include_str!("../assets/lines.js"), include_str!("../assets/page.js"));

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.output.is_none() && rustix::termios::isatty(rustix::stdio::stdout()) {
        return Err(Error::usage("standard output is a terminal, and a page is for a browser")
            .hint("give -o FILE, or redirect standard output"));
    }
    let failed = |e: std::io::Error| Error::io("cannot keep the page in a temporary file", e).fatal();
    // Nothing is printed until everything was read, so that a page is whole or not there.
    let mut page = BufWriter::new(tempfile::tempfile().map_err(failed)?);
    let (head, tail) = frame();
    page.write_all(head.as_bytes()).map_err(failed)?;
    let mut separator: &[u8] = b"[\n";
    let closing = records(args.what.as_deref(), context, &mut |record| {
        page.write_all(separator).and_then(|()| page.write_all(&escaped(record))).map_err(failed)?;
        separator = b",\n";
        Ok(())
    })?;
    page.write_all(b"\n]").and_then(|()| page.write_all(tail.as_bytes())).map_err(failed)?;
    let mut page = page.into_inner().map_err(|e| failed(e.into_error()))?;
    page.rewind().map_err(failed)?;
    let Some(file) = &args.output else { return print(page, context).map_err(Error::fatal) };
    let mut out = Output::new(Some(file), context)?;
    each_part(page, &mut |part| out.write(part))?;
    let written = out.finish()?.unwrap_or_default();
    context.out.answer(&Bundled::new(written, closing))
}

fn print(page: File, context: &mut Context) -> Result<()> {
    // A failure after this goes to standard error, because standard output has a page.
    context.out.ended_with(0);
    each_part(page, &mut |part| context.out.raw(part))
}

fn each_part(page: File, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    let (mut page, mut part) = (BufReader::new(page), vec![0; 1 << 16]);
    loop {
        let count = page.read(&mut part).map_err(|e| Error::io("cannot read the page again", e).fatal())?;
        if count == 0 {
            return Ok(());
        }
        each(&part[..count])?;
    }
}

/// What is before and behind the records. The policy of the page allows its own script and style, by their hashes.
fn frame() -> (String, &'static str) {
    let hash = |text: &str| format!("sha256-{}", BASE64.encode(Sha256::digest(text)));
    let (head, tail) = TEMPLATE.split_once("@RECORDS@").unwrap_or((TEMPLATE, ""));
    let head = head.replace("@SCRIPT_HASH@", &hash(SCRIPT)).replace("@STYLE_HASH@", &hash(STYLE));
    (head.replace("@STYLE@", STYLE).replace("@SCRIPT@", SCRIPT), tail)
}

/// A record in the form for a script element. Only characters in strings are escaped.
fn escaped(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(record.len());
    let mut rest = record;
    while let [first, ..] = rest {
        let (escape, length): (&[u8], usize) = match first {
            b'<' => (b"\\u003c", 1),
            b'>' => (b"\\u003e", 1),
            b'&' => (b"\\u0026", 1),
            _ if rest.starts_with("\u{2028}".as_bytes()) => (b"\\u2028", 3),
            _ if rest.starts_with("\u{2029}".as_bytes()) => (b"\\u2029", 3),
            byte => (std::slice::from_ref(byte), 1),
        };
        out.extend_from_slice(escape);
        rest = &rest[length..];
    }
    out
}

/// Passes the records of a bundle, or of what would be in one.
fn records(what: Option<&Path>, context: &mut Context, each: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<Closing> {
    let mut args = bundle::Args { since: None, output: None, files: Vec::new() };
    match what {
        None => {}
        Some(file) if is_stdin(file) || file.exists() => {
            if file.is_file() || is_stdin(file) {
                let mut lines = lines_of(file)?;
                if is_stdin(file) || format::begins_bundle(lines.peek()?) {
                    return unbundled(file, lines, each);
                }
            }
            args.files.push(file.to_owned());
        }
        Some(name) => {
            let name = name.to_string_lossy().into_owned();
            let is_run = run_ledger(&name, context)?.is_some();
            let options = &mut context.options;
            *(if is_run { &mut options.run } else { &mut options.session }) = Some(name);
        }
    }
    Plan::new(&args, context)?.write(&mut |line| each(line.trim_ascii_end()))
}

/// The records of a bundle, each of which must be as it was written.
fn unbundled(
    file: &Path,
    mut lines: cp_ledger::read::Lines,
    each: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<Closing> {
    let (mut hash, mut closing) = (Sha256::new(), None);
    while let Some(line) = lines.next()? {
        let wrong = |why: &str| Error::validation(format!("line {} of the bundle: {why}", line.number)).in_file(file);
        let (kind, data) = format::unsealed(line.bytes).map_err(|why| wrong(&why))?;
        if closing.is_some() || (line.number == 1) != (kind == format::BUNDLE) {
            return Err(wrong("a bundle begins with one head, and ends with one sum"));
        }
        if kind == format::SUMMARY {
            let found: Closing = format::read(&data).map_err(|why| wrong(&why))?;
            if found.sha256 != Hash::from_raw(&hash.clone().finalize().into()).to_string() {
                return Err(wrong("checksum mismatch"));
            }
            closing = Some(found);
        }
        hash.update(line.bytes);
        hash.update(b"\n");
        each(line.bytes)?;
    }
    closing.ok_or_else(|| Error::validation("the bundle is not whole").in_file(file).hint("ask for it again"))
}
