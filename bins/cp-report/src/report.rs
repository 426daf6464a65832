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

use crate::audit::{Audit, audit};
use crate::bundle::{Blob, Bundle, Head, Ledger, Record};
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
    #[arg(long = "trust", value_name = "K.pub", help_heading = "Proof")]
    key: Vec<PathBuf>,
    /// The bundle; - is standard input
    #[arg(value_name = "FILE|-", default_value = "-")]
    file: PathBuf,
}

/// A part of what the page says. One of `heading`, `ledger`, `line` and `blob` is there.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["heading", "overview", "audit", "ledger", "line", "blob"])))]
pub(crate) struct Item<'a> {
    /// The heading above the lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    heading: Option<&'a Heading>,
    /// The sums of the heading.
    #[serde(skip_serializing_if = "Option::is_none")]
    overview: Option<&'a Overview>,
    /// The verdict of `cp-log audit` on the bundle.
    #[serde(skip_serializing_if = "Option::is_none")]
    audit: Option<&'a Audit>,
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

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if is_stdin(&args.file) && std::io::stdin().is_terminal() {
        return Err(Error::usage("standard input is a terminal, not a bundle")
            .hint("cp-log bundle --run RUN | cp-report >page.html"));
    }
    let keys: Vec<String> = args.key.iter().map(|key| Ok(Verifier::load(key)?.to_text())).collect::<Result<_>>()?;
    let bundle = Bundle::open(&args.file)?;
    let (head, overview, ledgers) = read(&bundle)?;
    let heading = heading(&head, &ledgers, &overview, args.overview);
    let audit = audit(&bundle.path(), context);
    let is_json = context.options.json || context.options.format == Some(Format::Json);
    if !is_json && context.out.fields().is_none() {
        // A failure after this goes to standard error, because standard output has a page.
        context.out.ended_with(0);
        let input = Input { bundle: &bundle, audit: &audit, keys: &keys, is_overview: args.overview };
        return write(&heading, &input, &mut |bytes| context.out.raw(bytes));
    }
    context.out.streaming()?;
    let untrusted = &["/heading", "/overview", "/audit"];
    let (heading, overview, audit) = (Some(&heading), Some(&overview), Some(&audit));
    context.out.record(Kind::Item, &Item { heading, overview, audit, untrusted, ..Item::default() })?;
    let (mut index, mut pairs) = (0, Pairs::default());
    bundle.each(&mut |record| match record {
        Record::Head(_) => Ok(()),
        Record::Ledger(_) => {
            let Placed { ledger, run, id } = &ledgers[index];
            (index, pairs) = (index + 1, Pairs::default());
            let (run, id) = (run.as_deref(), Some(format!("l{id}")));
            let item = Item { ledger: Some(ledger), run, id, untrusted: &["/ledger"], ..Item::default() };
            context.out.record(Kind::Item, &item)
        }
        Record::Line(line) => {
            let entry = Entry::read(&line.raw);
            let id = ledgers.get(index.saturating_sub(1)).map(|placed| &*placed.id).unwrap_or_default();
            let item = Item {
                id: entry.as_ref().map(|entry| format!("l{id}-{}", entry.seq)),
                answers: entry.as_ref().and_then(|entry| pairs.see(entry)),
                seq: entry.as_ref().map(|entry| entry.seq),
                ts: entry.as_ref().map(|entry| entry.ts),
                line: Some(entry.as_ref().map_or_else(Shown::of_nothing, shown)),
                untrusted: &["/line"],
                ..Item::default()
            };
            context.out.record(Kind::Item, &item)?;
            context.out.item_succeeded();
            Ok(())
        }
        Record::Blob(blob) => {
            context.out.record(Kind::Item, &Item { blob: Some(blob), untrusted: &["/blob"], ..Item::default() })
        }
    })
}

/// Reads the bundle and folds its lines.
fn read(bundle: &Bundle) -> Result<(Head, Overview, Vec<Placed>)> {
    let (mut head, mut overview, mut ledgers) = (Head::default(), Overview::default(), Vec::<Placed>::new());
    bundle.each(&mut |record| {
        match record {
            Record::Head(found) => head = found,
            Record::Ledger(ledger) => ledgers.push(Placed::new(ledger, &ledgers)),
            Record::Line(line) => {
                let index = ledgers.len().saturating_sub(1);
                if let Some(entry) = Entry::read(&line.raw) {
                    overview.add(index, &entry);
                    if let (Some(placed), "run_start") = (ledgers.last_mut(), &*entry.event) {
                        placed.run = entry.run.as_deref().map(str::to_owned);
                    }
                }
            }
            Record::Blob(_) => {}
        }
        Ok(())
    })?;
    overview.finish();
    Ok((head, overview, ledgers))
}
