//! `cp-session delete`: remove sessions for good. A dry run lists them and prints a token that deletes all of them.
//!
//! A deleted session loses its name at once, and its files after that. If a crash leaves some of them, the next start or
//! deletion removes them.

use std::fs::File;
use std::path::Path;

use cp_common::context::options::WriteOptions;
use cp_common::home::{TIERS, make_directory};
use cp_common::program::confirm::{self, Change, Changes, Outcome, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{session, transcript};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &[
        "S=$(cp-session start --format text); T=$(cp-session delete \"$S\" --dangerous --dry-run | jq -r .data.confirm_token); cp-session delete \"$S\" --dangerous --confirm \"$T\"",
    ],
    dangerous: true,
    events: &["session_delete"],
    ..VerbDoc::new("delete", Class::Write, "session_deleted")
};

/// Remove sessions for good
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The sessions: ids, unique prefixes of ids, or paths
    #[arg(value_name = "SESSION")]
    operands: Vec<String>,
    /// More of them, separated by commas
    #[arg(long, value_name = "A,B", value_delimiter = ',')]
    ids: Vec<String>,
    /// Delete the others if one cannot be deleted
    #[arg(long, value_name = "BOOL", default_value_t = true, action = clap::ArgAction::Set)]
    continue_on_error: bool,
    #[command(flatten)]
    write: WriteOptions,
}

/// The result of a deletion.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Deleted {
    /// One for each operand that was tried, in order.
    items: Vec<Outcome>,
    /// How many there were.
    summary: Counts,
}

/// How many there were.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counts {
    total: usize,
    succeeded: usize,
    failed: usize,
    skipped: usize,
}

impl Reply for Deleted {
    fn text(&self) -> String {
        let line = |Outcome { target, error, .. }: &Outcome| match error {
            None => format!("deleted {target}"),
            Some(error) => format!("kept {target}: {}", error["message"].as_str().unwrap_or_default()),
        };
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    finish_earlier(context);
    let mut names: Vec<&str> = Vec::new();
    for name in args.operands.iter().chain(&args.ids).filter(|name| !name.is_empty()) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let arguments = names.iter().map(|name| absolute(name)).collect::<Result<Vec<_>>>()?;
    confirm::write(&DOC, &arguments, &args.write, context, |context| plan(&names, args.continue_on_error, context))
}

/// A name as it means the same from every directory.
fn absolute(name: &str) -> Result<String> {
    Ok(if name.contains('/') { std::path::absolute(name)?.display().to_string() } else { name.to_owned() })
}

fn plan(names: &[&str], goes_on: bool, context: &Context) -> Result<Plan<'static, Deleted>> {
    if names.is_empty() {
        return Err(Error::validation("no session specified").hint("give at least one id or path"));
    }
    let find = |name: &&str| session::find(Some(name), context).and_then(|session| in_home(session, context));
    let mut found: Vec<(String, Result<Session>)> = names.iter().map(|name| ((*name).to_owned(), find(name))).collect();
    if found.iter().all(|(_, session)| session.is_err())
        && let Err(error) = found.remove(0).1
    {
        return Err(error);
    }
    let mut changes = Changes::default();
    for (name, session) in &found {
        match session {
            Ok(session) => changes.changes.push(change(session)?),
            Err(error) => changes.failed.push(Outcome::new(name, Some(error))),
        }
    }
    Plan::changes(changes, move |context| remove(found, goes_on, context))
}

/// Refuses a session outside the home directory: only sessions of the home may be deleted.
fn in_home(session: Session, context: &Context) -> Result<Session> {
    if session.tier().is_some_and(|tier| {
        let sessions = context.home.sessions(tier);
        session.directory.parent().is_some_and(|parent| {
            parent == sessions || sessions.canonicalize().is_ok_and(|sessions| parent == sessions)
        })
    }) {
        return Ok(session);
    }
    Err(Error::validation(format!("{} is outside the home directory", session.directory.display())))
}

fn change(session: &Session) -> Result<Change> {
    let file = session.file();
    let (last_seq, updated_at) = transcript::tip(&file)?.unwrap_or_default();
    let before = json!({
        "directory": session::place(session).display().to_string(),
        "turns": transcript::count(&file)?,
        "last_seq": last_seq,
        "updated_at": updated_at,
    });
    Ok(Change::new("delete", "session", &session.id, before))
}

fn remove(found: Vec<(String, Result<Session>)>, goes_on: bool, context: &mut Context) -> Result<Deleted> {
    // Not the session's own ledger, which is deleted too.
    let mut ledger = Ledger::open(&context.home.ledger("cp-log.jsonl"), Sync::Line)?;
    let (total, mut items, mut failure) = (found.len(), Vec::<Outcome>::new(), None);
    for (target, session) in found {
        if !goes_on && items.last().is_some_and(|item| !item.ok) {
            break;
        }
        let outcome = session.and_then(|session| {
            let intent = serde_json::to_value(change(&session)?)
                .map_err(|e| Error::new(Code::Unknown, format!("recording a deletion: {e}")))?;
            delete_session(&session, &intent, &mut ledger)
        });
        items.push(Outcome::new(&target, outcome.as_ref().err()));
        failure = failure.or(outcome.err());
    }
    let succeeded = items.iter().filter(|item| item.ok).count();
    let summary = Counts { total, succeeded, failed: items.len() - succeeded, skipped: total - items.len() };
    match failure {
        // Nothing was deleted, which a script must not take for a success.
        Some(failure) if succeeded == 0 => Err(failure.with("items", json!(items)).with("summary", json!(summary))),
        _ => Ok(Deleted { items, summary }),
    }
}

/// Where the files of deleted sessions are until they are removed: no session can have this name.
const DELETING: &str = ".deleting";

/// Deletes a session: the deletion is on the ledger before anything is done.
fn delete_session(session: &Session, intent: &Value, ledger: &mut Ledger) -> Result<()> {
    let failed = |e| Error::io("deleting", e).in_file(&session.directory);
    let sessions = session.directory.parent().unwrap_or(Path::new("."));
    let deleting = sessions.join(DELETING);
    make_directory(&deleting)?;
    ledger.append(Entry::new("session_delete").session(&session.id).data(intent))?;
    let gone = deleting.join(&session.id);
    std::fs::rename(&session.directory, &gone).map_err(failed)?;
    File::open(sessions).and_then(|names| names.sync_all()).map_err(failed)?;
    remove_files(&gone)
}

/// Removes the files that a crash has left of deleted sessions.
pub(crate) fn finish_earlier(context: &mut Context) {
    for tier in TIERS {
        let deleting = context.home.sessions(tier).join(DELETING);
        for left in std::fs::read_dir(&deleting).into_iter().flatten().flatten() {
            if let Err(e) = remove_files(&left.path()) {
                context.warn(&format!("a deleted session still has files: {e}"));
            }
        }
    }
}

fn remove_files(gone: &Path) -> Result<()> {
    match std::fs::remove_dir_all(gone) {
        // Another command may have removed the rest.
        Err(e) if gone.exists() => Err(Error::io("deleting", e).in_file(gone)),
        _ => Ok(()),
    }
}
