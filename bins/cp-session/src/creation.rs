//! New sessions: the directory, its ledgers, and the first entries.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use cp_common::home::{Session, make_directory};
use cp_common::keys::{hex, random};
use cp_common::wire::Receipt;
use cp_common::{Code, Context, Error, Result, clock};
use cp_ledger::{Entry, Ledger, Sync};

use crate::transcript::{START, Start};

/// How many ids are tried. One that is taken is rare, and two in a row mean that something else is wrong.
const ATTEMPTS: u32 = 8;

/// Creates a session with its three ledgers and its first entry; `more` gives those that follow, in the same write.
pub(crate) fn create(
    start: &Start,
    context: &Context,
    more: impl FnOnce(&str) -> Vec<Entry>,
) -> Result<(Session, Receipt)> {
    let session = create_directory(&start.tier, context)?;
    for name in ["exec.jsonl", "evidence.jsonl"] {
        Ledger::open(&session.directory.join("ledger").join(name), Sync::Batch)?;
    }
    let mut ledger = Ledger::open(&session.file(), Sync::Line)?;
    let mut entries = vec![Entry::new(START).agent(&start.agent).session(&session.id).data(start)];
    entries.extend(more(&session.id));
    let receipt = ledger.append_all(entries)?.into_iter().next();
    let receipt = receipt.ok_or_else(|| Error::new(Code::Unknown, "the start was not recorded"))?;
    Ok((session, receipt))
}

/// The directory that a new session is started in, for its first entry.
pub(crate) fn working_directory() -> Option<String> {
    std::env::current_dir().ok().map(|directory| directory.display().to_string())
}

fn create_directory(tier: &str, context: &Context) -> Result<Session> {
    let sessions = context.home.sessions(tier);
    make_directory(&sessions)?;
    for _ in 0..ATTEMPTS {
        let id = new_id()?;
        let directory = sessions.join(&id);
        // Not `make_directory`: of two programs with the same id, one must fail.
        match make_private(&directory).and_then(|()| make_private(&directory.join("ledger"))) {
            Ok(()) => return Ok(Session { id, directory }),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::io("creating the session", e).in_file(&directory).fatal()),
        }
    }
    Err(Error::new(Code::Conflict, "no free session id was found").hint("try again"))
}

fn make_private(directory: &Path) -> std::io::Result<()> {
    std::fs::DirBuilder::new().mode(0o700).create(directory)
}

/// `SES-`, the day, and eight hex digits.
fn new_id() -> Result<String> {
    Ok(format!("SES-{}-{}", clock::today(), hex(&random::<4>()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_id_has_the_documented_form() {
        let id = new_id().unwrap();
        let parts: Vec<&str> = id.split('-').collect();
        assert_eq!((parts[0], parts[1].len(), parts[2].len()), ("SES", 8, 8));
        assert!(parts[2].bytes().all(|byte| byte.is_ascii_hexdigit()));
    }
}
