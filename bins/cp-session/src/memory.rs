//! `cp-session remember` and `recall`: memories that outlive their session, one ledger for each kind, below `memory/`.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};

use cp_common::context::options::{AppendOptions, InputKind, Pages, QueryOptions, StreamOptions};
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result, json};
use cp_ledger::blob;
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;

use crate::round::{Added, text_given};
use crate::search::Found;
use crate::{session, transcript};

/// The kind that rounds of a session are remembered as.
const REGISTERED: &str = "session_turn";

/// The ledger of a kind. A kind is a lower-case name.
fn file_of(kind: &str, context: &Context) -> Result<PathBuf> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if kind.is_empty() || kind.len() > 64 || !kind.bytes().all(allowed) {
        return Err(Error::validation(format!(
            "`{kind}` is not a valid kind of memory: use lower-case letters, digits and _"
        )));
    }
    Ok(context.home.path("memory").join(format!("{kind}.jsonl")))
}

/// The ledger of a kind that something was remembered in; `None` for a registered kind that is still empty.
fn existing(kind: &str, context: &Context) -> Result<Option<PathBuf>> {
    let file = file_of(kind, context)?;
    if file.is_file() {
        return Ok(Some(file));
    }
    if kind == REGISTERED {
        return Ok(None);
    }
    let listing = std::fs::read_dir(context.home.path("memory")).into_iter().flatten().flatten();
    let names: Vec<String> =
        listing.filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".jsonl")?.to_owned())).collect();
    let error = Error::not_found(format!("there is no memory of the kind `{kind}`")).with("kind", kind);
    let otherwise = format!("cp-session remember --kind {kind} creates it");
    Err(error.nearest(kind, names.iter().map(String::as_str), &otherwise))
}

/// The entry of this verb in `reference`.
pub(crate) const REMEMBER_DOC: VerbDoc = VerbDoc {
    examples: &["cp-session remember --kind note -- 'the build takes four minutes'"],
    input: &[Input::Text],
    events: &["memory"],
    ..VerbDoc::new("remember", Class::Append, "session_added")
};

/// Keep a text beyond its session
#[derive(clap::Args)]
pub(crate) struct RememberArgs {
    /// The kind of memory: a lower-case name, such as note
    #[arg(long, value_name = "KIND")]
    kind: String,
    #[command(flatten)]
    append: AppendOptions,
    /// The text to keep; - adds standard input
    text: Vec<String>,
}

pub(crate) fn remember(args: &RememberArgs, context: &mut Context) -> Result<()> {
    file_of(&args.kind, context)?;
    if args.kind == REGISTERED && context.session().is_none() {
        return Err(Error::validation(format!("`{REGISTERED}` is reserved for rounds of a session"))
            .hint("name the session of the round with --session, or use another kind: --kind note"));
    }
    let source = Source::from_operands(&args.text)?;
    let input = if source == Source::Input { Some(InputKind::Text) } else { None };
    let options = StreamOptions { input, ..StreamOptions::default() };
    filter::run(&mut Remember { args }, source, options, context)
}

struct Remember<'a> {
    args: &'a RememberArgs,
}

impl Filter for Remember<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Item]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let Body::Text(bytes) = body else { return Err(Error::validation("only text can be remembered")) };
        let text = text_given(bytes)?;
        let kind = &self.args.kind;
        let session = context.session().map(|_| session::find(None, context)).transpose()?.map(|session| session.id);
        let (_, redactions) = Redactor::from_environment().redact_text(text);
        let added = |receipt| {
            let (session_id, kind) = (session.clone(), Some(kind.clone()));
            Added { session_id, role: None, kind, redactions, receipt }
        };
        let request = ("remember", kind, text, session.clone());
        let preview = || Ok(added(None));
        idempotency::answer(&self.args.append, &request, context, preview, |context| {
            let entry = session.iter().fold(Entry::new("memory").message(text).with("kind", kind), Entry::session);
            Ok(added(Some(Ledger::open(&file_of(kind, context)?, Sync::Line)?.append(entry)?)))
        })
    }
}

/// The entry of this verb in `reference`.
pub(crate) const RECALL_DOC: VerbDoc = VerbDoc {
    examples: &["cp-session recall --kind session_turn build"],
    sort: Some("ts, descending"),
    ..VerbDoc::new("recall", Class::Query, "session_found")
};

/// Find what was remembered, the newest first
#[derive(clap::Args)]
pub(crate) struct RecallArgs {
    /// The kind of memory
    #[arg(long, value_name = "KIND")]
    kind: String,
    #[command(flatten)]
    page: QueryOptions,
    /// Only memories that have one of these words
    #[arg(value_name = "QUERY")]
    query: Option<String>,
}

pub(crate) fn recall(args: &RecallArgs, context: &mut Context) -> Result<()> {
    let pages = Pages::of("cp-session recall", &(&args.kind, &args.query), &args.page)?;
    let mut found = match existing(&args.kind, context)? {
        Some(file) => matching(&file, args.query.as_deref())?,
        None => Vec::new(),
    };
    found.reverse();
    let page = pages.page(found.into_iter().map(|recalled| (Reverse(recalled.seq), recalled)))?;
    context.out.answer(&page.untrusted())
}

/// The memories that have a word of the query, oldest first.
fn matching(file: &Path, query: Option<&str>) -> Result<Vec<Found>> {
    let wanted = query.map(telling_words);
    let mut found = Vec::new();
    transcript::each_entry(file, &mut |line| {
        if !line.is_event("memory") {
            return Ok(());
        }
        let stored = line.member("message").unwrap_or(b"\"\"");
        let whole = blob::resolve(file, stored)?;
        let text = json::unquote(whole.as_deref().unwrap_or(stored)).unwrap_or_default();
        if wanted.as_ref().is_none_or(|wanted| !words(&text).is_disjoint(wanted)) {
            let session_id = line.member("session").and_then(json::unquote);
            let (ledger, ts) = (file.into(), line.ts().to_owned());
            found.push(Found { session_id, ledger, seq: line.seq(), ts, role: None, text });
        }
        Ok(())
    })?;
    Ok(found)
}

/// The words of a query that tell what it is about: those of four letters or more, because the shorter ones are in most
/// texts of every language, or the only word.
fn telling_words(query: &str) -> HashSet<String> {
    let mut found = words(query);
    if found.len() > 1 {
        found.retain(|word| word.chars().count() > 3 || word.chars().all(is_unspaced));
    }
    found
}

/// The words of a text in lower case. Of a script without spaces, each pair of letters is a word.
fn words(text: &str) -> HashSet<String> {
    let mut found = HashSet::new();
    let lower = text.to_lowercase();
    for run in lower.split(|letter: char| !letter.is_alphanumeric()).filter(|run| !run.is_empty()) {
        let letters: Vec<char> = run.chars().collect();
        for part in letters.chunk_by(|a, b| is_unspaced(*a) == is_unspaced(*b)) {
            if part.first().is_some_and(|letter| is_unspaced(*letter)) && part.len() > 1 {
                found.extend(part.windows(2).map(String::from_iter));
            } else {
                found.insert(String::from_iter(part));
            }
        }
    }
    found
}

/// True for scripts without spaces between words: Han, Hiragana, Katakana and Thai.
fn is_unspaced(letter: char) -> bool {
    matches!(letter, '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}' | '\u{e00}'..='\u{e7f}')
}
