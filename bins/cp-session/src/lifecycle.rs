//! The reply of every verb that changes one session, and those that change it by one entry: `end`, `reopen`, `clear`
//! and `rename`.
//!
//! Each has a preview for `--dry-run`, and an entry that is appended under the lock of the session's ledger.

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{ArchiveName, PathName, Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::sessions::{self, Session};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::session::{self, SessionOperand};
use crate::transcript::{self, CLEAR, END, Fork, Mode, RESUMED, START, Start};

/// The event of a new name.
const RENAMED: &str = "session_name";

/// The verbs in `reference`.
pub(crate) const END_DOC: VerbDoc = VerbDoc {
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\""],
    events: &[END],
    ..VerbDoc::new("end", Class::Append, "session_changed")
};
pub(crate) const REOPEN_DOC: VerbDoc = VerbDoc {
    path: "reopen",
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\"; cp-session reopen \"$S\""],
    events: &[RESUMED],
    ..END_DOC
};
pub(crate) const CLEAR_DOC: VerbDoc = VerbDoc {
    path: "clear",
    examples: &["S=$(cp-session start --format text); cp-session clear \"$S\""],
    events: &[CLEAR],
    ..END_DOC
};
pub(crate) const RENAME_DOC: VerbDoc = VerbDoc {
    path: "rename",
    examples: &["S=$(cp-session start --format text); cp-session rename \"$S\" talk"],
    events: &[RENAMED],
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

/// A session that was started or changed.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["summary"])))]
pub(crate) struct Changed {
    /// The session. A dry run of `start` and `fork` makes none.
    pub(crate) session_id: Option<String>,
    /// The change, as the event of its entry: `session_start`, `session_end`, `session_resumed`, `session_clear`,
    /// `session_name`, `session_export` or `session_compact`.
    pub(crate) change: String,
    #[serde(flatten)]
    pub(crate) path: Option<PathName>,
    /// The tier of a new session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) tier: Option<String>,
    /// Its agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) agent: Option<String>,
    /// How much of it goes to the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<Mode>,
    /// Where a fork comes from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forked_from: Option<Fork>,
    /// How many turns it has; of `clear`, how many are archived, of `compact`, how many the summary stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) turns: Option<u64>,
    #[serde(flatten)]
    pub(crate) archive: Option<ArchiveName>,
    /// The new name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// The hash of the bytes of the summary that was written, `sha256:` and 64 hex digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) sha256: Option<String>,
    /// How many secrets were taken out of it now; those that were taken out before it was stored are not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) redactions: Option<u32>,
    /// The summary of a model; a dry run asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<String>,
    /// True if it was in this state before.
    pub(crate) already: bool,
    /// Where the change is recorded; a dry run, and a session that was open before, have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<Receipt>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) untrusted: Vec<String>,
}

impl Changed {
    pub(crate) fn new(session: &Session, change: &str, receipt: Option<Receipt>) -> Self {
        Self { session_id: Some(session.id.clone()), change: change.to_owned(), receipt, ..Self::default() }
    }

    /// A new session; without one, the preview of it.
    pub(crate) fn started(session: Option<&Session>, start: Start, receipt: Option<Receipt>) -> Self {
        Self {
            session_id: session.map(|session| session.id.clone()),
            change: START.to_owned(),
            path: session.map(|session| session.file().as_path().into()),
            tier: Some(start.tier),
            agent: Some(start.agent),
            mode: Some(start.mode),
            turns: start.forked_from.as_ref().map(|fork| fork.turns),
            forked_from: start.forked_from,
            receipt,
            ..Self::default()
        }
    }
}

impl Reply for Changed {
    fn text(&self) -> String {
        let Some(id) = &self.session_id else { return "would start a session".to_owned() };
        match self {
            Self { summary: Some(summary), .. } => summary.clone(),
            Self { sha256: Some(_), path: Some(PathName { path, .. }), .. } => path.clone(),
            Self { archive: Some(ArchiveName { archive, .. }), .. } => format!("{id}: turns archived in {archive}"),
            Self { name: Some(name), .. } => format!("{id} is {name}"),
            _ => id.clone(),
        }
    }
}

pub(crate) fn end(args: &Args, context: &mut Context) -> Result<()> {
    change("end", args, context, |session| state(session, END), |session| set_state(session, END))
}

pub(crate) fn reopen(args: &Args, context: &mut Context) -> Result<()> {
    change("reopen", args, context, |session| state(session, RESUMED), |session| set_state(session, RESUMED))
}

pub(crate) fn clear(args: &Args, context: &mut Context) -> Result<()> {
    let preview = |session: &Session| {
        let file = session.file();
        transcript::must_be_open(&file)?;
        let archive = cp_ledger::read::segments::name_of(&file)?;
        Ok(Changed {
            turns: Some(transcript::count(&file)?),
            archive: Some(archive.as_path().into()),
            ..Changed::new(session, CLEAR, None)
        })
    };
    change("clear", args, context, preview, archive_turns)
}

pub(crate) fn rename(args: &RenameArgs, context: &mut Context) -> Result<()> {
    let (session, name) = match &args.name {
        Some(name) => (Some(args.operand.as_str()), name),
        None => (None, &args.operand),
    };
    let session = session::find(session, context)?;
    let renamed = |receipt| Changed { name: Some(name.clone()), ..Changed::new(&session, RENAMED, receipt) };
    let request = ("rename", session::place(&session), name);
    let free = sessions::check_name(name, Some(&session), &context.home);
    let preview = || free.map(|()| renamed(None));
    idempotency::answer(&args.append, &request, context, preview, |context| {
        set_name(&session, name, context).map(|receipt| renamed(Some(receipt)))
    })
}

/// Answers with the preview on a dry run, else with the result of the change, which is applied once for each request
/// id.
pub(crate) fn change(
    verb: &str,
    args: &Args,
    context: &mut Context,
    preview: impl FnOnce(&Session) -> Result<Changed>,
    apply: impl FnOnce(&Session) -> Result<Changed>,
) -> Result<()> {
    let session = args.session.find(context)?;
    let request = (verb, session::place(&session));
    idempotency::answer(&args.append, &request, context, || preview(&session), |_| apply(&session))
}

fn state(session: &Session, event: &str) -> Result<Changed> {
    let file = session.file();
    let already = transcript::ended(&file)?.is_some() == (event == END);
    Ok(Changed { turns: Some(transcript::count(&file)?), already, ..Changed::new(session, event, None) })
}

/// Ends or reopens a session, unless it is in that state.
fn set_state(session: &Session, event: &str) -> Result<Changed> {
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
    let receipt = receipts.into_iter().next().or(earlier);
    Ok(Changed { turns: Some(turns), already, ..Changed::new(session, event, receipt) })
}

/// Closes the ledger of a session as a segment, and begins a new one.
fn archive_turns(session: &Session) -> Result<Changed> {
    let file = session.file();
    transcript::must_be_open(&file)?;
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let archive = ledger.rotate()?;
    let turns = transcript::count(&archive)?;
    let name = archive.file_name().unwrap_or_default().to_string_lossy();
    let entry = Entry::new(CLEAR).session(&session.id).with("archive", &*name).with("turns", &turns);
    let receipt = ledger.append(entry)?;
    let archive = Some(archive.as_path().into());
    Ok(Changed { turns: Some(turns), archive, ..Changed::new(session, CLEAR, Some(receipt)) })
}

/// Gives a session a name that no other session has.
pub(crate) fn set_name(session: &Session, name: &str, context: &Context) -> Result<Receipt> {
    session.rename(name, &context.home)?;
    let entry = Entry::new(RENAMED).session(&session.id).with("name", &name);
    Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)
}
