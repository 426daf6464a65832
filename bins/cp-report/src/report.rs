//! `cp-report`: a bundle in, one page out. With `--format json`, what the page says, as records.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use cp_common::output::Format;
use cp_common::program::{Class, Input as Takes, VerbDoc};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result};
use cp_ledger::proof::note::Verifier;
use cp_ledger::read::source::is_stdin;
use serde::Serialize;

use crate::bundle::{Blob, Chunk, Head, Ledger, Reader, Record, Spool, each, proof};
use crate::model::{Entry, Overview, Pairs, Shown, shown};
use crate::page::{Heading, Input, Placed, heading, write};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "",
    class: Class::Query,
    output: "item",
    also: &["summary"],
    input: &[Takes::Bytes],
    examples: &[
        "cp-log append hello && cp-log bundle | {} >page.html",
        "cp-log append hello && cp-log bundle --since 7d | {} --overview >week.html",
        "cp-log append hello && cp-log bundle | {} --json",
    ],
    ..VerbDoc::EMPTY
};

/// Make a page of a bundle, which shows what happened and proves itself
///
/// The page is one file of HTML and needs nothing else. It has the lines of the bundle as they are, and its script checks them where it
/// is opened. With --format json what the page says comes as records.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Sums first: runs, days, models, refusals, failures, tools; all lines folded
    #[arg(long)]
    overview: bool,
    /// A public key to embed in the page, which may have signed the checkpoints (repeatable)
    #[arg(long = "trust", alias = "key", value_name = "K.pub", help_heading = "Proof")]
    key: Vec<PathBuf>,
    /// The bundle; - is standard input
    #[arg(value_name = "FILE|-", default_value = "-")]
    file: PathBuf,
}

/// A part of what the page says. One of `heading`, `ledger`, `line` and `blob` is there.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["heading", "overview", "ledger", "line", "blob"])))]
pub(crate) struct Item<'a> {
    /// The heading above the lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    heading: Option<&'a Heading>,
    /// The sums of the heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    overview: Option<&'a Overview>,
    /// A ledger; its lines follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    ledger: Option<&'a Ledger>,
    /// The run whose ledger it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<&'a str>,
    /// The id of the line, on this page and on every other page of the same ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    /// The line of the same ledger that this one answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<u64>,
    /// The place of the line in its ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    /// The time that the line says.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<&'a str>,
    /// The line as it is shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<Shown>,
    /// A large value, or a part of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<Blob<'a>>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: &'static [&'static str],
}

impl Reply for Item<'_> {
    fn text(&self) -> String {
        String::new()
    }
}

/// A bundle that was read once.
struct Read {
    head: Head,
    overview: Overview,
    ledgers: Vec<Placed>,
    spool: Spool,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if is_stdin(&args.file) && std::io::stdin().is_terminal() {
        return Err(Error::usage("standard input is a terminal, not a bundle")
            .hint("cp-log bundle --run RUN | cp-report >page.html"));
    }
    let keys: Vec<String> = args.key.iter().map(|key| Ok(Verifier::load(key)?.to_text())).collect::<Result<_>>()?;
    let Read { head, overview, ledgers, spool } = read(args)?;
    let heading = heading(&head, &ledgers, &overview, args.overview);
    let size = spool.size;
    let file = spool.finish()?;
    let is_json = context.options.json || context.options.format == Some(Format::Json);
    if !is_json && context.out.fields().is_none() {
        // A failure after this goes to standard error, because standard output has a page.
        context.out.ended_with(0);
        let input = Input {
            file: &file,
            size,
            ledgers: &ledgers,
            overview: &overview,
            keys: &keys,
            is_overview: args.overview,
        };
        return write(&heading, &input, &mut |bytes| context.out.raw(bytes));
    }
    context.out.streaming()?;
    let untrusted = &["/heading", "/overview"];
    let (heading, sums) = (Some(&heading), Some(&overview));
    context.out.record(Kind::Item, &Item { heading, overview: sums, untrusted, ..Item::default() })?;
    let mut reader = Reader::new(&file, 0, size);
    let (mut index, mut pairs) = (0, Pairs::default());
    while let Some((chunk, bytes)) = reader.next()? {
        match chunk {
            Chunk::Ledger => {
                let Placed { ledger, run, id, .. } = &ledgers[index];
                (index, pairs) = (index + 1, Pairs::default());
                context.out.record(
                    Kind::Item,
                    &Item {
                        ledger: Some(ledger),
                        run: run.as_deref(),
                        id: Some(format!("l{id}")),
                        untrusted: &["/ledger"],
                        ..Item::default()
                    },
                )?;
            }
            Chunk::Line => {
                let entry = Entry::read(std::str::from_utf8(bytes).unwrap_or_default());
                let id = ledgers.get(index.saturating_sub(1)).map(|placed| &*placed.id).unwrap_or_default();
                let item = Item {
                    id: entry.as_ref().map(|entry| format!("l{id}-{}", entry.seq)),
                    answers: entry.as_ref().and_then(|entry| pairs.see(entry).0),
                    seq: entry.as_ref().map(|entry| entry.seq),
                    ts: entry.as_ref().map(|entry| entry.ts),
                    line: Some(entry.as_ref().map_or_else(Shown::of_nothing, shown)),
                    untrusted: &["/line"],
                    ..Item::default()
                };
                context.out.record(Kind::Item, &item)?;
                context.out.item_succeeded();
            }
            Chunk::Blob => {
                let blob = serde_json::from_slice(bytes).map_err(|e| Error::validation(e.to_string()).fatal())?;
                context.out.record(Kind::Item, &Item { blob: Some(blob), untrusted: &["/blob"], ..Item::default() })?;
            }
            Chunk::Proof => {}
        }
    }
    Ok(())
}

/// Reads the bundle, folds its lines and puts them aside.
fn read(args: &Args) -> Result<Read> {
    let (mut head, mut overview, mut ledgers) = (Head::default(), Overview::default(), Vec::<Placed>::new());
    let (mut spool, mut pairs) = (Spool::new()?, Pairs::default());
    each(&args.file, &mut |record| match record {
        Record::Head(found) => {
            head = found;
            Ok(())
        }
        Record::Ledger(ledger) => {
            if let Some(before) = ledgers.last_mut() {
                before.unanswered = std::mem::take(&mut pairs).left();
            }
            ledgers.push(Placed::new(spool.size, ledger, &ledgers));
            spool.push(Chunk::Ledger, b"")
        }
        Record::Line(line) => {
            let index = ledgers.len().saturating_sub(1);
            if let Some(entry) = Entry::read(&line.raw) {
                overview.add(index, &entry);
                pairs.see(&entry);
                if let Some(placed) = ledgers.last_mut() {
                    placed.is_spoken |= matches!(&*entry.event, "message" | "run_start");
                    if entry.event == "run_start" {
                        placed.run = entry.run.as_deref().map(str::to_owned);
                    }
                }
            }
            if let Some(proof) = proof(&line) {
                spool.push(Chunk::Proof, proof.as_bytes())?;
            }
            spool.push(Chunk::Line, line.raw.as_bytes())
        }
        Record::Blob(blob) => {
            let bytes = serde_json::to_vec(&blob).map_err(|e| Error::validation(e.to_string()).fatal())?;
            spool.push(Chunk::Blob, &bytes)
        }
    })?;
    overview.finish();
    if let Some(last) = ledgers.last_mut() {
        last.unanswered = pairs.left();
    }
    Ok(Read { head, overview, ledgers, spool })
}
