//! `cp-toolloop runs`: the runs of this home, the newest first.

use std::cmp::Reverse;

use cp_common::clock::in_seconds;
use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};

use crate::state::plan::RunFiles;
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

impl Reply for Summary {
    fn text(&self) -> String {
        let status = serde_json::to_value(self.status).unwrap_or_default();
        let started_at = in_seconds(&self.started_at);
        let words =
            [&self.id, &started_at, status.as_str().unwrap_or_default(), self.code.as_deref().unwrap_or_default()];
        let name = self.name.iter().map(String::as_str);
        words.into_iter().filter(|word| !word.is_empty()).chain(name).collect::<Vec<_>>().join("  ")
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-toolloop runs", &(), &args.query)?;
    let mut runs: Vec<Summary> = Vec::new();
    for files in RunFiles::all(context) {
        match summary(&files) {
            Ok(summary) => runs.push(summary),
            Err(e) => context.warn(e.message()),
        }
    }
    let key = |run: &Summary| Reverse((run.started_at.clone(), run.id.clone()));
    runs.sort_by_key(key);
    context.out.answer(&pages.page(runs.into_iter().map(|run| (key(&run), run)))?)
}
