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
    examples: &["{} append hello && {} page -o page.html", "{} append hello && {} bundle -o b && {} page b >page.html"],
    ..VerbDoc::new("page", Class::Query, "bundled")
};

/// Make one HTML page that shows and proves what happened
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
            out(format!("{separator}{{\"path\":{}", escaped(&item.part.path)?).as_bytes())?;
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
        out(&[separator, escaped(&String::from_utf8_lossy(line.bytes))?.as_bytes()].concat())?;
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

/// A text as JSON in a script element, which `<` alone can end.
fn escaped(text: &str) -> Result<String> {
    let json = serde_json::to_string(text).map_err(|e| Error::validation(e.to_string()))?;
    Ok(json.replace('<', "\\u003c"))
}
