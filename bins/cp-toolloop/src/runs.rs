//! `cp-toolloop runs`: the runs of this home, the newest first.

use cp_common::context::options::QueryOptions;
use cp_common::wire::Reply;
use cp_common::wire::fields;
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;
use serde_json::Value;

use crate::place::{self, Summary};
use crate::tools::page;

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

/// The members of a run.
pub(crate) const MEMBERS: [&str; 7] = ["id", "status", "started_at", "updated_at", "code", "tally", "ledger"];

impl Reply for Page {
    fn text(&self) -> String {
        let word = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let line = |item: &Value| {
            ["id", "started_at", "status", "code"].map(|name| word(item, name)).join("  ").trim_end().to_owned()
        };
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    fields::check(&args.query.fields, &MEMBERS)?;
    let mut runs: Vec<Summary> = Vec::new();
    for place in place::all(context) {
        match place::summary(&place) {
            Ok(summary) => runs.push(summary),
            Err(e) => context.warn(e.message()),
        }
    }
    runs.sort_by(|a, b| (&b.started_at, &b.id).cmp(&(&a.started_at, &a.id)));
    let (runs, next_cursor) = page(runs, &args.query)?;
    let items = runs.iter().map(|run| {
        let value = serde_json::to_value(run).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        Ok(fields::project(value, &args.query.fields))
    });
    let items = items.collect::<Result<Vec<Value>>>()?;
    context.out.answer(&Page { count: items.len(), has_more: next_cursor.is_some(), items, next_cursor })
}
