//! `cp-session recall`: find memories, the best match first.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::Path;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result, json};
use cp_ledger::store::blob;
use serde::Serialize;

use crate::memory;
use crate::transcript;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "recall",
    class: Class::Query,
    output: "session_recalled",
    examples: &["cp-session recall --kind session_turn build"],
    sort: Some("score, then ts, both descending"),
    ..VerbDoc::EMPTY
};

/// Find what was remembered: the best match first, without a query the newest
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it is about
    #[arg(long, value_name = "KIND")]
    kind: String,
    #[command(flatten)]
    page: QueryOptions,
    /// Words to look for: the more of them match, the better
    #[arg(value_name = "QUERY")]
    query: Option<String>,
}

/// Something that is remembered.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Recalled {
    /// What it says.
    text: String,
    /// How many words of the query it has.
    score: usize,
    /// When it was remembered.
    ts: String,
    /// The ledger it is in.
    ledger: String,
    /// Its entry's place.
    seq: u64,
    /// The session it came from.
    session_id: Option<String>,
}

impl Reply for Recalled {
    fn text(&self) -> String {
        self.text.clone()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-session recall", &(&args.kind, &args.query), &args.page)?;
    let mut found = match memory::existing(&args.kind, context)? {
        Some(file) => matching(&file, args.query.as_deref().unwrap_or_default())?,
        None => Vec::new(),
    };
    let key = |recalled: &Recalled| Reverse((recalled.score, recalled.seq));
    found.sort_by_key(key);
    let page = pages.page(found.into_iter().map(|recalled| (key(&recalled), recalled)))?;
    context.out.answer(&page.untrusted())
}

fn matching(file: &Path, query: &str) -> Result<Vec<Recalled>> {
    let wanted = words(query);
    let mut found = Vec::new();
    transcript::each_entry(file, &mut |line| {
        if !line.is_event("memory") {
            return Ok(());
        }
        let stored = line.member("message").unwrap_or(b"\"\"");
        let whole = blob::resolve(file, stored)?;
        let text = json::unquote(whole.as_deref().unwrap_or(stored)).unwrap_or_default();
        let score = words(&text).intersection(&wanted).count();
        if score > 0 || wanted.is_empty() {
            let session_id = line.member("session").and_then(json::unquote);
            let (ledger, ts) = (file.display().to_string(), line.ts().to_owned());
            found.push(Recalled { text, score, ts, ledger, seq: line.seq(), session_id });
        }
        Ok(())
    })?;
    Ok(found)
}

/// The words of a text, without short ones, which are in nearly every text.
pub(crate) fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).map(str::to_lowercase);
    words.filter(|word| word.chars().count() > 2).collect()
}
