//! `cp-session search`: find turns by their text, in every session or in one.

use cp_common::context::options::{Pages, QueryOptions};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{LedgerName, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::sessions::Session;
use serde::Serialize;

use crate::{session, transcript};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-session search hello"],
    sort: Some("session_id, then seq"),
    ..VerbDoc::new("search", Class::Query, "session_found")
};

/// Find turns that contain a text, whatever its case
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The text to search for
    #[arg(value_name = "QUERY")]
    query: String,
    #[command(flatten)]
    page: QueryOptions,
}

/// A turn or a memory that was found.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Found {
    /// Its session; null for a memory without one.
    pub(crate) session_id: Option<String>,
    #[serde(flatten)]
    pub(crate) ledger: LedgerName,
    /// Its entry's place.
    pub(crate) seq: u64,
    /// When it was stored.
    pub(crate) ts: String,
    /// The role of the speaker of a turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    /// The memory, or the text around the match.
    pub(crate) text: String,
}

/// The default of `--limit`.
const LIMIT: u64 = 100;
/// How many characters of a snippet are before and after the match.
const AROUND: usize = 60;

impl Reply for Found {
    fn text(&self) -> String {
        let (Some(id), Some(role)) = (&self.session_id, &self.role) else { return self.text.clone() };
        format!("{id}:{}  {role}: {}", self.seq, self.text.replace('\n', " "))
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let query: String = fold(&args.query).collect();
    if query.trim().is_empty() {
        return Err(Error::validation("the query is empty"));
    }
    let limited = QueryOptions { limit: Some(args.page.limit.unwrap_or(LIMIT)), ..args.page.clone() };
    let pages = Pages::<(String, u64)>::of("cp-session search", &(&query, context.session()), &limited)?;
    let limit = pages.limit;
    let sessions = match context.session() {
        Some(_) => vec![session::find(None, context)?],
        None => Session::all(&context.home)?,
    };
    let (mut found, mut broken) = (Vec::<((String, u64), Found)>::new(), Vec::new());
    for session in sessions {
        let file = session.file();
        let is_passed = pages.after.as_ref().is_some_and(|(id, _)| session.id < *id);
        // One more than the page holds shows that there is a next page.
        if is_passed || found.len() > limit {
            continue;
        }
        let searched = transcript::each_turn(&file, &mut |line| {
            let key = (session.id.clone(), line.seq());
            if found.len() > limit || pages.is_passed(&key) {
                return Ok(());
            }
            let turn = transcript::turn_of(line, &file)?;
            if let Some(text) = snippet(&turn.plain_text(), &query) {
                let (session_id, role) = (Some(session.id.clone()), Some(turn.role));
                let (ledger, ts) = (file.as_path().into(), line.ts().to_owned());
                found.push((key, Found { session_id, ledger, seq: line.seq(), ts, role, text }));
            }
            Ok(())
        });
        match searched {
            Err(e) if context.session().is_none() && !e.is_fatal() => broken.push(session.directory),
            searched => searched?,
        }
    }
    session::warn_skipped(&broken, context);
    context.out.answer(&pages.page(found)?.untrusted())
}

/// Folds the case of a text, with one character for each character of the text, so that positions in both are equal.
fn fold(text: &str) -> impl Iterator<Item = char> {
    text.chars().filter_map(|c| c.to_lowercase().next())
}

/// The text around the first match of the query, whose case is folded.
fn snippet(text: &str, query: &str) -> Option<String> {
    let folded: Vec<char> = fold(text).collect();
    let query: Vec<char> = query.chars().collect();
    let at = folded.windows(query.len()).position(|window| window == query)?;
    let characters = text.chars().skip(at.saturating_sub(AROUND)).take(query.len() + AROUND + at.min(AROUND));
    Some(characters.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snippet_ignores_case_and_shows_surrounding_text() {
        let text = format!("{}Größe{}", "x".repeat(200), "y".repeat(200));
        let found = snippet(&text, "größe").unwrap();
        assert!(found.contains("Größe") && found.chars().count() == 125, "{found}");
        for query in ["İstanbul", "istanbul", "ISTANBUL"] {
            let query: String = fold(query).collect();
            assert_eq!(snippet("Meet in İstanbul", &query).as_deref(), Some("Meet in İstanbul"), "{query}");
        }
        assert_eq!(snippet("abc", "d"), None);
        assert_eq!(snippet("ab", "abc"), None);
    }
}
