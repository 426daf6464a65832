//! The verbs that change the state of one session by one entry: `end`, `resume`, `clear` and `rename`.
//!
//! Each has a preview for `--dry-run`, and an entry that is appended under the lock of the session's ledger.

use cp_common::context::options::AppendOptions;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::read::segments::name_of;
use cp_ledger::{Entry, Ledger, Sync};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::session::{self, SessionOperand};
use crate::transcript::{self, CLEAR, END, RESUMED};

/// The verbs in `reference`.
pub(crate) const END_DOC: VerbDoc = VerbDoc {
    path: "end",
    class: Class::Append,
    output: "session_ended",
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\""],
    events: &[END],
    ..VerbDoc::EMPTY
};
pub(crate) const REOPEN_DOC: VerbDoc = VerbDoc {
    path: "reopen",
    output: "session_resumed",
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\"; cp-session reopen \"$S\""],
    events: &[RESUMED],
    ..END_DOC
};
pub(crate) const CLEAR_DOC: VerbDoc = VerbDoc {
    path: "clear",
    output: "session_cleared",
    examples: &["S=$(cp-session start --format text); cp-session clear \"$S\""],
    events: &[CLEAR],
    ..END_DOC
};
pub(crate) const RENAME_DOC: VerbDoc = VerbDoc {
    path: "rename",
    output: "session_renamed",
    examples: &["S=$(cp-session start --format text); cp-session rename \"$S\" talk"],
    events: &["session_name"],
    ..END_DOC
};

/// The arguments of `end`, `reopen`, `clear` and `export`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    #[command(flatten)]
    append: AppendOptions,
}

/// The arguments of `rename`.
#[derive(clap::Args)]
pub(crate) struct RenameArgs {
    /// The session; a single operand is the name, of the session that --session means
    #[arg(value_name = "SESSION")]
    operand: String,
    /// Its name: letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session that has ended.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ended {
    /// The session.
    session_id: String,
    /// How many turns it has.
    turns: u64,
    /// True if it had ended before.
    already: bool,
    /// Where its end is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

/// A session that is open again.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Resumed {
    /// The session.
    session_id: String,
    /// How many turns it has.
    turns: u64,
    /// True if it was open before.
    already: bool,
    /// Where that is recorded; one that was open and a dry run have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

/// A session that begins again.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cleared {
    /// The session.
    session_id: String,
    /// How many turns were archived.
    turns: u64,
    /// The file that holds them now.
    archive: String,
    /// Where it is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

/// A session with its name.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Renamed {
    /// The session.
    session_id: String,
    /// Its name.
    name: String,
    /// Where that is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Ended {
    fn text(&self) -> String {
        format!("{} ended after {} turns", self.session_id, self.turns)
    }
}

impl Reply for Resumed {
    fn text(&self) -> String {
        self.session_id.clone()
    }
}

impl Reply for Cleared {
    fn text(&self) -> String {
        format!("{} turns archived in {}", self.turns, self.archive)
    }
}

impl Reply for Renamed {
    fn text(&self) -> String {
        format!("{} is {}", self.session_id, self.name)
    }
}

pub(crate) fn end(args: &Args, context: &mut Context) -> Result<()> {
    let reply = |session: &Session, (turns, already, receipt)| Ended {
        session_id: session.id.clone(),
        turns,
        already,
        receipt,
    };
    let preview = |session: &Session| state(session, END).map(|state| reply(session, state));
    change("end", args, context, preview, |session| set_state(session, END).map(|state| reply(session, state)))
}

pub(crate) fn reopen(args: &Args, context: &mut Context) -> Result<()> {
    let reply = |session: &Session, (turns, already, receipt)| Resumed {
        session_id: session.id.clone(),
        turns,
        already,
        receipt,
    };
    let preview = |session: &Session| state(session, RESUMED).map(|state| reply(session, state));
    change("reopen", args, context, preview, |session| set_state(session, RESUMED).map(|state| reply(session, state)))
}

pub(crate) fn clear(args: &Args, context: &mut Context) -> Result<()> {
    let preview = |session: &Session| {
        let file = session.file();
        transcript::must_be_open(&file)?;
        let archive = Ledger::open_existing(&file, Sync::Line)?.segment_path()?.display().to_string();
        Ok(Cleared { turns: transcript::count(&file)?, session_id: session.id.clone(), archive, receipt: None })
    };
    change("clear", args, context, preview, archive_turns)
}

pub(crate) fn rename(args: &RenameArgs, context: &mut Context) -> Result<()> {
    let (session, name) = match &args.name {
        Some(name) => (Some(args.operand.as_str()), name),
        None => (None, &args.operand),
    };
    let session = session::find(session, context)?;
    let renamed = |receipt| Renamed { session_id: session.id.clone(), name: name.clone(), receipt };
    let request = ("rename", session::place(&session), name);
    let free = context.home.check_session_name(name, Some(&session));
    let preview = || free.map(|()| renamed(None));
    idempotency::answer(&args.append, &request, context, preview, |context| {
        set_name(&session, name, context).map(|receipt| renamed(Some(receipt)))
    })
}

/// Answers with the preview on a dry run, else with the result of the change, which is applied once for each request id.
pub(crate) fn change<T: Reply + Serialize + DeserializeOwned>(
    verb: &str,
    args: &Args,
    context: &mut Context,
    preview: impl FnOnce(&Session) -> Result<T>,
    apply: impl FnOnce(&Session) -> Result<T>,
) -> Result<()> {
    let session = args.session.find(context)?;
    let request = (verb, session::place(&session));
    idempotency::answer(&args.append, &request, context, || preview(&session), |_| apply(&session))
}

/// The number of turns, whether the session is already in the state that `event` leads to, and the receipt of that entry.
type State = (u64, bool, Option<Receipt>);

fn state(session: &Session, event: &str) -> Result<State> {
    let file = session.file();
    let already = transcript::ended(&file)?.is_some() == (event == END);
    Ok((transcript::count(&file)?, already, None))
}

/// Ends or reopens a session, unless it is in that state.
fn set_state(session: &Session, event: &str) -> Result<State> {
    let file = session.file();
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let (mut turns, mut before) = (0, None);
    // The state is read under the lock: of two calls at once, the second one finds what the first one wrote.
    let receipts = ledger.append_placed(|_| {
        turns = transcript::count(&file)?;
        before = transcript::ended(&file)?;
        let entry = || Entry::new(event).session(&session.id).with("turns", &turns);
        let is_needed = before.is_some() != (event == END);
        Ok(is_needed.then(entry).into_iter().collect())
    })?;
    let already = receipts.is_empty();
    let earlier = before.filter(|_| already).map(|(seq, hash)| ledger.receipt(seq, &hash));
    Ok((turns, already, receipts.into_iter().next().or(earlier)))
}

/// Closes the ledger of a session as a segment, and begins a new one.
fn archive_turns(session: &Session) -> Result<Cleared> {
    let file = session.file();
    transcript::must_be_open(&file)?;
    let (start, _) = transcript::start_of(&file)?;
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let mut turns = 0;
    let (archive, receipt) = ledger.rotate_with(|closing| {
        // Counted under the lock, because turns that were appended until now are archived too.
        turns = transcript::count(closing)?;
        let archived = name_of(closing)?.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entry = Entry::new(CLEAR).agent(&start.agent).session(&session.id).data(&start);
        Ok(entry.with("archive", &archived).with("turns", &turns))
    })?;
    let archive = archive.display().to_string();
    Ok(Cleared { session_id: session.id.clone(), turns, archive, receipt: Some(receipt) })
}

/// Gives a session a name that no other session has.
pub(crate) fn set_name(session: &Session, name: &str, context: &Context) -> Result<Receipt> {
    context.home.name_session(name, session)?;
    let entry = Entry::new("session_name").session(&session.id).with("name", &name);
    Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)
}
