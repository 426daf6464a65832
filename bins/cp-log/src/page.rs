//! `cp-log page`: one file of HTML with ledgers, and a script that proves and draws them.

use std::path::PathBuf;

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Error, Result};
use cp_ledger::read::{End, Lines};
use sha2::{Digest as _, Sha256};

use crate::bundle::{Item, Plan, deliver};

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
/// The page has the lines as they are, and asks no network. Its script checks the hashes, the chain and, with a key
/// that its reader gives, the signatures.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Write the page to this new file, and answer with its counts (default: standard output)
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// A run, a session, a ledger, a bundle or a directory of ledgers (default: the run's, the session's, else all of
    /// home's)
    #[arg(value_name = "RUN|SESSION|LEDGER")]
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
    let plan = Plan::new(args.what.as_slice(), context)?;
    let (head, tail) = frame();
    deliver(&plan, args.output.as_deref(), context, |out| {
        out(head.as_bytes())?;
        let mut separator = "[\n";
        for item in &plan.items {
            let path = serde_json::to_vec(&item.part.path).map_err(|e| Error::validation(e.to_string()))?;
            out(&[separator.as_bytes(), b"{\"path\":", &escaped(&path)].concat())?;
            if item.is_blob { value(item, out) } else { lines(item, out) }?;
            separator = ",\n";
        }
        out(b"\n]")?;
        out(tail.as_bytes())
    })
}

/// A large value.
fn value(item: &Item, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    out(b",\"base64\":\"")?;
    item.copy(&mut |bytes| out(BASE64.encode(bytes).as_bytes()))?;
    out(b"\"}")
}

/// The whole lines of a file.
fn lines(item: &Item, out: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
    out(b",\"lines\":[")?;
    let mut lines = Lines::new(item.open()?, &item.source, 0, item.part.bytes);
    let mut separator: &[u8] = b"\n";
    while let Some(line) = lines.next()?.filter(|line| line.end != End::File) {
        let text = serde_json::to_vec(&String::from_utf8_lossy(line.bytes));
        out(&[separator, &escaped(&text.map_err(|e| Error::validation(e.to_string()))?)].concat())?;
        separator = b",\n";
    }
    out(b"]}")
}

/// What is before and behind the records. The policy of the page allows its own script and style, by their hashes.
fn frame() -> (String, &'static str) {
    let hash = |text: &str| format!("sha256-{}", BASE64.encode(Sha256::digest(text)));
    let (head, tail) = TEMPLATE.split_once("@RECORDS@").unwrap_or((TEMPLATE, ""));
    let head = head.replace("@SCRIPT_HASH@", &hash(SCRIPT)).replace("@STYLE_HASH@", &hash(STYLE));
    (head.replace("@STYLE@", STYLE).replace("@SCRIPT@", SCRIPT), tail)
}

/// JSON in the form for a script element. Only characters in strings are escaped.
fn escaped(json: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(json.len());
    let mut rest = json;
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
