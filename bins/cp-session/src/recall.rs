//! `cp-session recall`: find memories, the best match first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::path::Path;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result, json};
use cp_ledger::store::blob;
use serde::Serialize;

use crate::memory;
use crate::terms::words;
use crate::transcript;

/// A word that at most so many memories have is one of its own, however few there are.
const FEW: usize = 3;

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
    /// What to look for: the more of its words match, the better
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
        Some(file) => matching(&file, args.query.as_deref())?,
        None => Vec::new(),
    };
    let key = |recalled: &Recalled| Reverse((recalled.score, recalled.seq));
    found.sort_by_key(key);
    let page = pages.page(found.into_iter().map(|recalled| (key(&recalled), recalled)))?;
    context.out.answer(&page.untrusted())
}

fn matching(file: &Path, query: Option<&str>) -> Result<Vec<Recalled>> {
    let wanted = query.map(words);
    let (mut found, mut all) = (Vec::new(), 0_usize);
    let mut holders: HashMap<String, usize> = HashMap::new();
    transcript::each_entry(file, &mut |line| {
        if !line.is_event("memory") {
            return Ok(());
        }
        let stored = line.member("message").unwrap_or(b"\"\"");
        let whole = blob::resolve(file, stored)?;
        let text = json::unquote(whole.as_deref().unwrap_or(stored)).unwrap_or_default();
        let shared: Vec<String> = match &wanted {
            Some(wanted) => words(&text).intersection(wanted).cloned().collect(),
            None => Vec::new(),
        };
        all += 1;
        for word in &shared {
            *holders.entry(word.clone()).or_default() += 1;
        }
        if wanted.is_none() || !shared.is_empty() {
            let session_id = line.member("session").and_then(json::unquote);
            let (ledger, ts) = (file.display().to_string(), line.ts().to_owned());
            let recalled = Recalled { text, score: shared.len(), ts, ledger, seq: line.seq(), session_id };
            found.push((recalled, shared));
        }
        Ok(())
    })?;
    // One word that many have in common says nothing about what is asked.
    let tells = |word: &String| holders.get(word).is_some_and(|holders| *holders <= FEW.max(all / 4));
    let is_meant = |shared: &[String]| wanted.is_none() || shared.len() > 1 || shared.iter().any(tells);
    Ok(found.into_iter().filter(|(_, shared)| is_meant(shared)).map(|(recalled, _)| recalled).collect())
}
