//! Approvals: pending requests, the approvers, and grants that are valid for one start.
//!
//! A request is stored in the home as its record; a grant is stored beside it until its command starts. A grant is
//! bound to the hashes of the record, so that only the command that was shown can start.

mod approver;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use self::approver::{Answer, Verdict, ask, at_terminal, description, prompt};
use crate::clock;
use crate::home::{Home, write_whole};
use crate::keys::hash;
use crate::program::confirm::{Bound, fingerprint, issue, recall, redeem};
use crate::program::idempotency::encoded;
use crate::wire::{Action, Approval, AskedBy, Binds, Code, Error, Grant, Level, Result, Scope, Shown};

/// Lifetime of a pending request, in seconds: a week.
const PENDING_LIFETIME: u64 = 7 * 24 * 60 * 60;

/// Maximum size of a record that is read, in bytes.
const RECORD_LIMIT: u64 = 16 << 20;

/// A grant that is not spent yet. It contains no token.
#[derive(Serialize, Deserialize)]
struct StoredGrant {
    /// Expiry, in seconds since 1970.
    expires: u64,
    /// The keyed hash of the token.
    token: String,
    grant: Grant,
}

/// A spent grant, which is valid for one start.
#[derive(Clone, Debug)]
pub struct Spent {
    /// The request that was granted.
    pub approval: Approval,
    /// The grant.
    pub grant: Grant,
    /// The keyed hash of the token.
    pub token: String,
}

/// Makes a request for approval.
pub fn new(
    asked_by: AskedBy,
    action: Action,
    level: Level,
    scopes: &[Scope],
    shown: Shown,
    binds: Binds,
) -> Result<Approval> {
    let now = clock::unix_seconds();
    let [asked_at, expires_at] = [now, now + PENDING_LIFETIME].map(clock::from_unix_seconds);
    let (id, scopes, resume) = (String::new(), scopes.to_vec(), Vec::new());
    let unnamed = Approval { id, asked_by, action, level, scopes, shown, binds, asked_at, expires_at, resume };
    let id = id_of(&unnamed)?;
    Ok(Approval { resume: ["cp-exec", "approve", &id].map(str::to_owned).to_vec(), id, ..unnamed })
}

/// Computes the id of a request. Equal requests of two runs, or of two calls of a run, have different ids.
pub fn id_of(approval: &Approval) -> Result<String> {
    let bytes = encoded(&(approval.action, approval.level, &approval.binds, approval.run_and_call()))?;
    Ok(format!("APR-{}", &hash(&bytes)["sha256:".len()..][..16]))
}

/// Returns the request that a token is bound to.
pub fn bound(approval: &Approval) -> Result<Bound> {
    let Binds { request, program, target, policy } = &approval.binds;
    let under = (approval.level, program, target, policy, approval.run_and_call());
    Bound::new(&("approval", approval.action, request), &under)
}

/// Stores the request, so that `cp-exec approve` lists it, and returns the error that asks for an answer.
pub fn pause(home: &Home, approval: &Approval) -> Result<Error> {
    let bytes = encoded(approval)?;
    write_whole(&file(home, &approval.id, "json"), &bytes)?;
    let line = command_line(home, &approval.resume);
    let error = Error::new(Code::HumanRequired, format!("requires approval by a person: {}", approval.shown.why));
    Ok(error
        .with("rule", approval.shown.rule.clone())
        .with("action", "approve_command")
        .with("id", approval.id.clone())
        .with("resume", line.clone())
        .with("approval", serde_json::to_value(approval).unwrap_or_default())
        .with("_untrusted", serde_json::json!(["/approval/shown"]))
        .hint(format!("run `{line}` at a terminal, then repeat the request")))
}

/// Formats a command line of this suite with `--home`, quoted for a shell.
pub fn command_line(home: &Home, argv: &[String]) -> String {
    let home = home.root().display().to_string();
    let (program, words) = argv.split_at(argv.len().min(1));
    let words = program.iter().map(String::as_str).chain(["--home", &home]).chain(words.iter().map(String::as_str));
    words.map(crate::wire::quoted).collect::<Vec<_>>().join(" ")
}

/// Returns the pending requests, newest first. Requests without an answer for a week are removed.
pub fn waiting(home: &Home) -> Vec<Approval> {
    let (directory, now) = (home.state(DIRECTORY), clock::now());
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some(approval) = path.extension().filter(|kind| *kind == "json").and_then(|_| read(&path).ok()) else {
            continue;
        };
        if approval.expires_at < now {
            let _ = std::fs::remove_file(&path);
        } else {
            found.push(approval);
        }
    }
    found.sort_by(|a, b| b.asked_at.cmp(&a.asked_at));
    found
}

/// Returns the pending request with this id.
pub fn find(home: &Home, id: &str) -> Result<Approval> {
    let plain = !id.is_empty() && id.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    let path = file(home, id, "json");
    if path.is_file() && plain {
        return read(&path);
    }
    Err(Error::not_found(format!("no approval with the id `{id}` is pending")).hint("`cp-exec approve` lists the ids"))
}

/// Stores a grant for the next start of exactly this request. Returns its token and the expiry.
pub fn grant(home: &Home, approval: &Approval, grant: &Grant) -> Result<(String, u64)> {
    let (token, expires) = issue(home, &bound(approval)?)?;
    let kept = StoredGrant { expires, token: fingerprint(home, &token)?, grant: grant.clone() };
    write_whole(&file(home, &approval.id, "granted"), &encoded(&kept)?)?;
    answered(home, &approval.id)?;
    Ok((token, expires))
}

/// Removes an answered request.
pub fn answered(home: &Home, id: &str) -> Result<()> {
    remove(&file(home, id, "json")).map(drop)
}

/// True if exactly this request was granted and the grant is not spent. Only [`take`] spends it.
pub fn is_granted(home: &Home, approval: &Approval) -> Result<bool> {
    Ok(kept(home, approval)?.is_some_and(|(kept, _)| kept.expires > clock::unix_seconds()))
}

/// Spends the grant for exactly this request: of several callers, one gets it. A grant that has expired, belongs to
/// another request, or came by an insufficient channel is ignored.
pub fn take(home: &Home, approval: &Approval) -> Result<Option<Spent>> {
    let Some((StoredGrant { token: kept, grant, .. }, token)) = kept(home, approval)? else { return Ok(None) };
    if !remove(&file(home, &approval.id, "granted"))? {
        return Ok(None);
    }
    match redeem(home, &token, &bound(approval)?) {
        Ok(()) => Ok(Some(Spent { approval: approval.clone(), grant, token: kept })),
        Err(error) if error.code() == Code::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the grant of exactly this request by a sufficient channel, with its token.
fn kept(home: &Home, approval: &Approval) -> Result<Option<(StoredGrant, String)>> {
    let path = file(home, &approval.id, "granted");
    let bytes = match std::fs::read(&path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("reading an approval", e).in_file(&path)),
    };
    let Ok(kept) = serde_json::from_slice::<StoredGrant>(&bytes) else { return Ok(None) };
    if !approval.level.takes(kept.grant.how) {
        return Ok(None);
    }
    let token = recall(home, kept.expires, &kept.token, &bound(approval)?)?;
    Ok(token.map(|token| (kept, token)))
}

/// Directory of requests and grants, in the state of the home.
const DIRECTORY: &str = "approvals";

fn file(home: &Home, id: &str, kind: &str) -> PathBuf {
    home.state(DIRECTORY).join(format!("{id}.{kind}"))
}

fn read(path: &Path) -> Result<Approval> {
    let bytes = match std::fs::metadata(path) {
        Ok(meta) if meta.len() <= RECORD_LIMIT => std::fs::read(path),
        Ok(_) => Err(ErrorKind::FileTooLarge.into()),
        Err(e) => Err(e),
    };
    let bytes = bytes.map_err(|e| Error::io("reading an approval", e).in_file(path))?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(Code::Integrity, format!("cannot be read: {e}")).in_file(path))
}

/// Removes a file. Returns false if it did not exist.
fn remove(path: &Path) -> Result<bool> {
    match std::fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
        Err(e) => Err(Error::io("removing an approval", e).in_file(path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::How;

    fn asked(level: Level) -> Approval {
        let binds = Binds { request: hash(b"push"), policy: Some(hash(b"policy")), ..Binds::default() };
        new(AskedBy::default(), Action::Run, level, &[Scope::Once], Shown::default(), binds).unwrap()
    }

    fn grant_by(how: How) -> Grant {
        Grant::new(how, Scope::Once)
    }

    #[test]
    fn grant_is_valid_once_and_only_for_its_request() {
        let place = tempfile::tempdir().unwrap();
        let home = &Home::find(Some(place.path())).unwrap();
        let approval = asked(Level::Agent);
        let changed =
            Approval { binds: Binds { target: Some(hash(b"file")), ..approval.binds.clone() }, ..approval.clone() };
        assert!(take(home, &approval).unwrap().is_none());
        pause(home, &approval).unwrap();
        assert_eq!(waiting(home), std::slice::from_ref(&approval));
        grant(home, &approval, &grant_by(How::Resume)).unwrap();
        assert!(waiting(home).is_empty());
        assert!(take(home, &changed).unwrap().is_none(), "the file changed since");
        grant(home, &approval, &grant_by(How::Resume)).unwrap();
        let takers = [(); 8].map(|()| (home.to_owned(), approval.clone()));
        let threads =
            takers.map(|(home, approval)| std::thread::spawn(move || take(&home, &approval).unwrap().is_some()));
        assert_eq!(threads.map(|thread| thread.join().unwrap()).iter().filter(|got| **got).count(), 1);
    }

    #[test]
    fn owner_level_accepts_only_terminal_and_owner_approver() {
        let place = tempfile::tempdir().unwrap();
        let home = &Home::find(Some(place.path())).unwrap();
        let approval = asked(Level::Owner);
        for (how, counts) in
            [(How::Resume, false), (How::Approver, false), (How::OwnerApprover, true), (How::Terminal, true)]
        {
            grant(home, &approval, &grant_by(how)).unwrap();
            assert_eq!(take(home, &approval).unwrap().is_some(), counts, "{how:?}");
        }
    }

    #[test]
    fn expired_request_is_not_listed() {
        let place = tempfile::tempdir().unwrap();
        let home = &Home::find(Some(place.path())).unwrap();
        let old = Approval { expires_at: "2001-01-01T00:00:00Z".to_owned(), ..asked(Level::Agent) };
        pause(home, &old).unwrap();
        assert!(waiting(home).is_empty());
        assert_eq!(find(home, &old.id).unwrap_err().code(), Code::NotFound);
        assert_eq!(find(home, "../../keys").unwrap_err().code(), Code::NotFound);
    }
}
