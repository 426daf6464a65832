//! The conversation of a call: a session, and the links of an agent that make one of its sessions the current one.

use std::fs::File;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use cp_common::coprocess::ask_with;
use cp_common::home::config::Config;
use cp_common::home::{Home, is_id, lock_file, make_directory};
use cp_common::{Error, Result};
use cp_ledger::sessions::Session;
use serde_json::Value;

/// The sessions of an agent.
pub(crate) struct Agent {
    pub(crate) id: String,
    home: Home,
}

impl Agent {
    /// Returns the agent of the command line, else that of the settings.
    pub(crate) fn of(named: Option<&str>, home: &Home) -> Result<Self> {
        let id = Config::load(&home.config_file())?.text("agent", named).unwrap_or_default();
        if !is_id(&id) {
            return Err(Error::usage(format!("'{id}' is not a valid agent id: use letters, digits, _ and -")));
        }
        Ok(Self { id, home: home.clone() })
    }

    /// Returns the current session; `None` if there is none.
    pub(crate) fn current(&self) -> Option<String> {
        let link = self.link();
        let target = link.read_link().ok().filter(|_| link.is_file())?;
        Some(target.parent()?.file_name()?.to_str()?.to_owned())
    }

    /// Continues the current session, or starts one that becomes current. A session that has ended is not continued.
    pub(crate) fn continued(&self) -> Result<String> {
        let _lock = self.lock()?;
        let is_open =
            |session: &String| query(&["show", "--session", session]).is_ok_and(|shown| shown["ended"] == false);
        self.current().filter(is_open).map_or_else(|| self.renewed(), Ok)
    }

    /// Makes this the current session.
    pub(crate) fn keep(&self, session: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.point(session)
    }

    /// Starts a new current session. Returns the old one and the new one.
    pub(crate) fn reset(&self) -> Result<(Option<String>, String)> {
        let _lock = self.lock()?;
        Ok((self.current(), self.renewed()?))
    }

    fn renewed(&self) -> Result<String> {
        let session = self.start(None)?;
        self.point(&session)?;
        Ok(session)
    }

    /// Starts a session.
    pub(crate) fn start(&self, name: Option<&str>) -> Result<String> {
        let name = name.map(|name| format!("--name={name}"));
        let words: Vec<&str> = ["start", "--agent", &self.id].into_iter().chain(name.as_deref()).collect();
        text_of(&query(&words)?, "session_id")
    }

    fn directory(&self) -> PathBuf {
        self.home.path("agents").join(&self.id)
    }

    fn link(&self) -> PathBuf {
        self.directory().join("sessions/current.jsonl")
    }

    /// Locks the links of the agent. The lock is outside of its directory, because only agents that exist have one.
    fn lock(&self) -> Result<File> {
        lock_file(&self.home.state("current").join(&self.id))
    }

    /// Moves the links to a session. The caller has the lock.
    fn point(&self, session: &str) -> Result<()> {
        let session = Session::find(session, &self.home)?;
        make_directory(&self.directory().join("sessions"))?;
        self.replace_link(&self.link(), &session.file(), "../../..")?;
        self.replace_link(&self.directory().join("agent.jsonl"), &session.directory.join("ledger/llm.jsonl"), "../..")
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

/// Returns the id of a session that is named, and its agent. A session that has ended is opened again.
pub(crate) fn reopened(named: &str) -> Result<(String, String)> {
    let shown = query(&["show", named])?;
    let session = text_of(&shown, "session_id")?;
    if shown["ended"] == true {
        query(&["reopen", &session])?;
    }
    Ok((session, text_of(&shown, "agent")?))
}

/// Asks `cp-session`.
pub(crate) fn query(words: &[&str]) -> Result<Value> {
    ask_with("cp-session", words, b"", [])
}

fn text_of(answer: &Value, member: &str) -> Result<String> {
    let text = answer[member].as_str().map(str::to_owned);
    text.ok_or_else(|| Error::validation(format!("cp-session answered without {member}")))
}
