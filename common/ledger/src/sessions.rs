//! Resolution of session names. There is no guess such as "the last session", and no name escapes the directory of
//! sessions.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cp_common::home::{Home, TIERS, is_id, lock_file, make_directory};
use cp_common::keys::hash;
use cp_common::wire::nearest;
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};

/// The file name of a session's ledger.
pub const FILE: &str = "session.jsonl";

/// The prefix of every id; names cannot begin with it.
const ID: &str = "SES-";

/// Maximum number of candidates in an error.
const LISTED: usize = 10;

/// An existing session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id, which is the name of its directory.
    pub id: String,
    /// The directory.
    pub directory: PathBuf,
}

impl Session {
    /// Returns the ledger with the turns.
    pub fn file(&self) -> PathBuf {
        self.directory.join(FILE)
    }

    /// Returns the tier, derived from the directory; `None` if the session was named by a path outside the tiers.
    pub fn tier(&self) -> Option<&'static str> {
        let tier = self.directory.parent()?.parent()?.file_name()?;
        TIERS.into_iter().find(|known| tier == *known)
    }
}

/// The links of an agent that make one of its sessions the current one, which is used last.
#[derive(Clone, Debug)]
pub struct Current {
    directory: PathBuf,
    lock: PathBuf,
    home: Home,
}

impl Current {
    /// Returns the links of an agent.
    #[must_use]
    pub fn of(agent: &str, home: &Home) -> Self {
        // The lock is outside of the directory, because only agents that exist have one.
        let lock = home.state("current").join(agent);
        Self { directory: home.path("agents").join(agent), lock, home: home.clone() }
    }

    /// Returns the current session, which may be gone; `None` if there was none.
    #[must_use]
    pub fn session(&self) -> Option<String> {
        let target = self.link().read_link().ok()?;
        Some(target.parent()?.file_name()?.to_str()?.to_owned())
    }

    /// Locks the links.
    pub fn lock(&self) -> Result<File> {
        lock_file(&self.lock)
    }

    /// Moves the links to a session. The caller has the lock.
    pub fn point(&self, session: &str) -> Result<()> {
        let session = Session::find(session, &self.home)?;
        make_directory(&self.directory.join("sessions"))?;
        self.replace_link(&self.link(), &session.file(), "../../..")?;
        self.replace_link(&self.directory.join("agent.jsonl"), &session.directory.join("ledger/llm.jsonl"), "../..")
    }

    fn link(&self) -> PathBuf {
        self.directory.join("sessions/current.jsonl")
    }

    /// Makes a link that stays valid if the home is moved.
    fn replace_link(&self, link: &Path, target: &Path, up: &str) -> Result<()> {
        let failed = |e| Error::io("linking", e).in_file(link);
        let target =
            target.strip_prefix(self.home.root()).map_or_else(|_| target.to_owned(), |t| Path::new(up).join(t));
        if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
            return Err(Error::validation("this is no link").in_file(link).hint("move it away"));
        }
        let new = link.with_extension("jsonl.new");
        let _ = std::fs::remove_file(&new);
        symlink(target, &new).and_then(|()| std::fs::rename(&new, link)).map_err(failed)
    }
}

/// The note that maps a conversation of another program to its session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostNote {
    /// The id of the session.
    pub session: String,
    /// The directory in which the conversation began, which is `.` in policy for all of it.
    pub base: PathBuf,
}

impl Session {
    /// Returns the session with this id, unique prefix of an id, or name. A word with a `/` is the path of its
    /// directory or its ledger.
    pub fn find(named: &str, home: &Home) -> Result<Self> {
        if named.contains('/') {
            // An id with a suffix is neither an id nor a plausible path.
            return if named.starts_with(ID) { Err(not_an_id(named)) } else { at_path(named) };
        }
        if !is_id(named) {
            return Err(not_an_id(named));
        }
        if let Some(session) = with_id(named, home).or_else(|| with_name(named, home)) {
            return Ok(session);
        }
        let all = Self::all(home)?;
        let mut found: Vec<&Self> = all.iter().filter(|session| session.id.starts_with(named)).collect();
        match found.len() {
            1 => Ok(found.remove(0).clone()),
            0 => Err(unknown(named, &all)),
            many => {
                let ids: Vec<String> = found.iter().take(LISTED).map(|session| session.id.clone()).collect();
                let listed = ids.join(", ");
                Err(Error::validation(format!("`{named}` is ambiguous, {many} sessions begin with it: {listed}"))
                    .with("candidates", ids)
                    .hint("give more of the id"))
            }
        }
    }

    /// Returns the session of a conversation of another program, with its note; `None` if the session was deleted.
    pub fn of_host(host: &str, id: &str, home: &Home) -> Option<(Self, HostNote)> {
        let note: HostNote = serde_json::from_slice(&std::fs::read(HostNote::file(host, id, home)).ok()?).ok()?;
        Some((with_id(&note.session, home)?, note))
    }

    /// Returns all sessions, oldest id first.
    pub fn all(home: &Home) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for tier in TIERS {
            let sessions = home.sessions(tier);
            let failed = |e: std::io::Error| Error::io("listing the sessions", e).in_file(&sessions);
            let listing = match std::fs::read_dir(&sessions) {
                Ok(listing) => listing,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => continue,
                Err(e) => return Err(failed(e)),
            };
            for entry in listing {
                let entry = entry.map_err(failed)?;
                if let Ok(id) = entry.file_name().into_string()
                    && is_id(&id)
                    && entry.file_type().is_ok_and(|kind| kind.is_dir())
                {
                    found.push(Self { id, directory: entry.path() });
                }
            }
        }
        found.sort_by(|a, b| a.id.cmp(&b.id).then_with(|| a.directory.cmp(&b.directory)));
        Ok(found)
    }

    /// Names the session, and releases its previous name.
    pub fn rename(&self, name: &str, home: &Home) -> Result<()> {
        check_name(name, Some(self), home)?;
        let names = home.state("session_names");
        let place = names.join(name);
        let failed = |e: std::io::Error| Error::io("naming the session", e).in_file(&place);
        make_directory(&names)?;
        if with_name(name, home).is_none() {
            // The name of a deleted session may still exist. If two sessions claim the name at once, one of them fails.
            let _ = std::fs::remove_file(&place);
            let mut options = OpenOptions::new();
            let mut file = options.write(true).create_new(true).mode(0o600).open(&place).map_err(failed)?;
            file.write_all(self.id.as_bytes()).map_err(failed)?;
        }
        for (id, old) in named(home) {
            if id == self.id && old != name {
                std::fs::remove_file(names.join(&old)).map_err(failed)?;
            }
        }
        Ok(())
    }
}

impl HostNote {
    /// Returns the file of the note about a conversation of another program.
    pub fn file(host: &str, id: &str, home: &Home) -> PathBuf {
        let hash = hash(format!("{host}\n{id}").as_bytes());
        home.state("host_sessions").join(&hash["sha256:".len()..])
    }
}

fn with_id(id: &str, home: &Home) -> Option<Session> {
    let exact = TIERS.into_iter().filter(|_| is_id(id)).map(|tier| home.sessions(tier).join(id));
    let directory = exact.into_iter().find(|directory| directory.join(FILE).is_file())?;
    Some(Session { id: id.to_owned(), directory })
}

/// Returns the session with this name; `None` if it was deleted.
fn with_name(name: &str, home: &Home) -> Option<Session> {
    with_id(&read_id(&home.state("session_names").join(name))?, home)
}

/// Rejects an invalid name, and a name of a session other than `session`.
pub fn check_name(name: &str, session: Option<&Session>, home: &Home) -> Result<()> {
    if !is_id(name) || name.starts_with(ID) {
        let message = format!("`{name}` cannot be the name of a session");
        return Err(
            Error::validation(message).hint(format!("use letters, digits, - and _, and do not begin with {ID}"))
        );
    }
    match with_name(name, home).filter(|found| session.is_none_or(|session| found.id != session.id)) {
        None => Ok(()),
        Some(found) => Err(Error::new(Code::Conflict, format!("the session {} has the name {name}", found.id))
            .with("session", found.id.clone())
            .hint(format!("choose another name, or rename that one first: cp-session rename {} NAME", found.id))),
    }
}

/// Returns the id and the name of each session that has a name.
pub fn named(home: &Home) -> impl Iterator<Item = (String, String)> {
    let names = std::fs::read_dir(home.state("session_names")).into_iter().flatten().flatten();
    names.filter_map(|name| Some((read_id(&name.path())?, name.file_name().into_string().ok()?)))
}

/// Reads the id in the file of a name.
fn read_id(file: &Path) -> Option<String> {
    let is_short = file.symlink_metadata().is_ok_and(|found| found.is_file() && found.len() <= 256);
    is_short.then(|| std::fs::read_to_string(file).ok()).flatten()
}

fn at_path(named: &str) -> Result<Session> {
    let path = Path::new(named).canonicalize().map_err(|_| missing(&format!("no session at {named}"), named))?;
    let file = if path.is_dir() { path.join(FILE) } else { path };
    let directory = file.parent().filter(|_| file.file_name().is_some_and(|name| name == FILE) && file.is_file());
    let id = directory.and_then(Path::file_name).and_then(|name| name.to_str()).filter(|id| is_id(id));
    match (id, directory) {
        (Some(id), Some(directory)) => Ok(Session { id: id.to_owned(), directory: directory.to_owned() }),
        _ => Err(Error::validation(format!("{named} is not a session"))
            .with("session", named)
            .hint(format!("name the directory of a session, or the {FILE} in it"))),
    }
}

fn not_an_id(named: &str) -> Error {
    Error::validation(format!("`{named}` is not a session id: ids are letters, digits, `-` and `_`"))
        .with("session", named)
        .hint("the path of a session starts with / or ./")
}

fn unknown(named: &str, all: &[Session]) -> Error {
    let error = missing(&format!("no session `{named}`"), named);
    match nearest(named, all.iter().map(|session| session.id.as_str())) {
        Some(near) => error.with("nearest", near).hint(format!("did you mean `{near}`?")),
        None => error,
    }
}

fn missing(message: &str, named: &str) -> Error {
    Error::not_found(message).with("session", named).hint("`cp-session list` shows them")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home_with(ids: &[&str]) -> (tempfile::TempDir, Home) {
        let place = tempfile::tempdir().unwrap();
        let home = Home::find(Some(place.path())).unwrap();
        for id in ids {
            let directory = home.sessions("ho1").join(id);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join(FILE), b"").unwrap();
        }
        (place, home)
    }

    #[test]
    fn session_is_found_by_id_or_unique_prefix() {
        let (_place, home) = home_with(&["SES-1", "SES-12", "X-3"]);
        assert_eq!(Session::find("SES-1", &home).unwrap().id, "SES-1");
        assert_eq!(Session::find("X", &home).unwrap().tier(), Some("ho1"));
        let ambiguous = Session::find("SES", &home).unwrap_err();
        assert_eq!(ambiguous.code(), Code::Validation);
        assert_eq!(ambiguous.details()["candidates"], serde_json::json!(["SES-1", "SES-12"]));
        assert_eq!(Session::find("SES-2", &home).unwrap_err().code(), Code::NotFound);
    }

    #[test]
    fn name_and_session_correspond_one_to_one() {
        let (_place, home) = home_with(&["SES-1", "SES-2", "talk"]);
        let [one, two] = ["SES-1", "SES-2"].map(|id| Session::find(id, &home).unwrap());
        one.rename("bug", &home).unwrap();
        assert_eq!(Session::find("bug", &home).unwrap(), one);
        assert_eq!(two.rename("bug", &home).unwrap_err().code(), Code::Conflict);
        // A new name releases the old one. The name of a deleted session is free too.
        one.rename("fix", &home).unwrap();
        two.rename("bug", &home).unwrap();
        std::fs::remove_dir_all(&two.directory).unwrap();
        assert_eq!(Session::find("bug", &home).unwrap_err().code(), Code::NotFound);
        one.rename("bug", &home).unwrap();
        assert_eq!(named(&home).find(|(id, _)| id == "SES-1").unwrap().1, "bug");
        for bad in ["SES-x", "a/b", "..", "", "a b"] {
            assert_eq!(one.rename(bad, &home).unwrap_err().code(), Code::Validation, "{bad:?}");
        }
        // An id has precedence over a name.
        one.rename("talk", &home).unwrap();
        assert_eq!(Session::find("talk", &home).unwrap().id, "talk");
    }

    #[test]
    fn names_cannot_escape_sessions_directory() {
        let (_place, home) = home_with(&["SES-1"]);
        for bad in ["", ".", "..", "a b", "SES-1\n", "SES-../../x", "SES-1/..", "é", "~", "*"] {
            assert_eq!(Session::find(bad, &home).unwrap_err().code(), Code::Validation, "{bad:?}");
        }
        for outside in ["../..", "/", "./"] {
            assert_eq!(Session::find(outside, &home).unwrap_err().code(), Code::Validation, "{outside:?}");
        }
    }

    #[test]
    fn session_is_found_by_path_of_directory_or_ledger() {
        let (_place, home) = home_with(&["SES-1"]);
        let directory = home.sessions("ho1").join("SES-1").canonicalize().unwrap();
        for path in [directory.clone(), directory.join(FILE)] {
            assert_eq!(Session::find(path.to_str().unwrap(), &home).unwrap().directory, directory);
        }
        assert_eq!(Session::find("./absent", &home).unwrap_err().code(), Code::NotFound);
    }
}
