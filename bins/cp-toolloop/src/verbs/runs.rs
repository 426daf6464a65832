//! `cp-toolloop runs`: the runs of this home, the newest first.

use cp_common::context::options::QueryOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, fields};
use cp_common::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::page::{page, projected, text_of};
use crate::state::files::RunFiles;
use crate::state::summary::{Summary, summary};

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "runs",
    class: Class::Query,
    output: "runs",
    examples: &["cp-toolloop --backend stub -- hello && cp-toolloop runs --limit 1"],
    sort: Some("started_at, descending"),
    ..VerbDoc::EMPTY
};

/// List the runs, the newest first
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    query: QueryOptions,
}

/// A page of runs.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Page {
    /// The runs.
    #[cfg_attr(test, schemars(with = "Vec<Summary>"))]
    items: Vec<Value>,
    /// How many are on this page.
    count: usize,
    /// Where the next page begins.
    next_cursor: Option<String>,
    /// Whether there is one.
    has_more: bool,
}

const MEMBERS: [&str; 7] = ["id", "status", "started_at", "updated_at", "code", "tally", "ledger"];

impl Reply for Page {
    fn text(&self) -> String {
        let line = |item: &Value| {
            ["id", "started_at", "status", "code"].map(|name| text_of(item, name)).join("  ").trim_end().to_owned()
        };
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    fields::check(&args.query.fields, &MEMBERS)?;
    let mut runs: Vec<Summary> = Vec::new();
    for files in RunFiles::all(context) {
        match summary(&files) {
            Ok(summary) => runs.push(summary),
            Err(e) => context.warn(e.message()),
        }
    }
    runs.sort_by(|a, b| (&b.started_at, &b.id).cmp(&(&a.started_at, &a.id)));
    let (runs, next_cursor) = page(runs, &args.query)?;
    let items = projected(runs, &args.query.fields)?;
    context.out.answer(&Page { count: items.len(), has_more: next_cursor.is_some(), items, next_cursor })
}
