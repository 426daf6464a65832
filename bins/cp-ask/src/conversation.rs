//! The conversation of a call: a session, and the links of an agent that make one of its sessions the current one.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};

use cp_common::coprocess::ask_with;
use cp_common::home::config::Config;
use cp_common::home::{Home, lock, make_directory, sessions, write_whole};
use cp_common::{Error, Result, clock};
use serde_json::Value;

use crate::environment::variable;

/// The sessions of an agent.
pub(crate) struct Agent {
    pub(crate) id: String,
    home: Home,
}

impl Agent {
    /// Returns the agent of the command line, else that of the settings.
    pub(crate) fn of(named: Option<&str>, home: &Home) -> Result<Self> {
        let id = match named {
            Some(named) => named.to_owned(),
            None => Config::load(&home.config_file())?.text("agent", None).unwrap_or_default(),
        };
        if !sessions::is_id(&id) {
            let error = Error::usage(format!("'{id}' is not a valid agent id"));
            return Err(error.hint("use letters, digits, _ and -"));
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
        if let Some(session) = self.current().filter(is_open) {
            return Ok(session);
        }
        let session = self.start()?;
        self.point(&session)?;
        Ok(session)
    }

    /// Starts a session for one call. If more such sessions exist than `CP_ASK_KEEP` allows, the oldest are deleted.
    pub(crate) fn single(&self) -> Result<String> {
        let keep = variable("CP_ASK_KEEP").map_or(Ok(0), |keep| {
            keep.parse::<usize>().map_err(|_| Error::usage(format!("CP_ASK_KEEP must be a number, not '{keep}'")))
        })?;
        let session = self.start()?;
        let _lock = self.lock()?;
        let list = self.home.state("current").join(format!("{}.single", self.id));
        let text = std::fs::read_to_string(&list).unwrap_or_default();
        let mut listed: Vec<&str> = text.lines().chain([session.as_str()]).collect();
        if keep > 0 && listed.len() > keep {
            let current = self.current();
            for old in listed.drain(..listed.len() - keep) {
                // A session with more turns than one call makes was continued.
                if Some(old) != current.as_deref() && turns(old).is_ok_and(|turns| turns <= 2) {
                    let _ = delete(old);
                }
            }
        }
        write_whole(&list, (listed.join("\n") + "\n").as_bytes())?;
        Ok(session)
    }

    /// Makes this the current session.
    pub(crate) fn keep(&self, session: &str) -> Result<()> {
        let _lock = self.lock()?;
        self.point(session)
    }

    /// Discards a session that was started for a call which failed: it is deleted, or ended if a model was asked.
    pub(crate) fn discard(&self, session: &str) -> Result<()> {
        if turns(session)? > 0 {
            return Ok(());
        }
        let ledgers = self.home.session(session)?.directory.join("ledger");
        let files = ledgers.read_dir().into_iter().flatten().flatten();
        let has_request = |text: Vec<u8>| String::from_utf8_lossy(&text).contains("\"event\":\"llm.request\"");
        if files.map(|file| file.path()).any(|file| std::fs::read(file).is_ok_and(has_request)) {
            return query(&["end", session]).map(drop);
        }
        delete(session)
    }

    /// Starts a new current session. Returns the old one and the new one.
    pub(crate) fn reset(&self) -> Result<(Option<String>, String)> {
        let _lock = self.lock()?;
        let old = self.current();
        let session = self.start()?;
        self.point(&session)?;
        Ok((old, session))
    }

    fn start(&self) -> Result<String> {
        text_of(&query(&["start", "--agent", &self.id])?, "session_id")
    }

    fn directory(&self) -> PathBuf {
        self.home.path("agents").join(&self.id)
    }

    fn link(&self) -> PathBuf {
        self.directory().join("sessions/current.jsonl")
    }

    /// Locks the links of the agent. The lock is outside of its directory, because only agents that exist have one.
    fn lock(&self) -> Result<File> {
        let file = self.home.state("current").join(&self.id);
        make_directory(&self.home.state("current"))?;
        let opened = OpenOptions::new().create(true).append(true).mode(0o600).open(&file);
        let opened = opened.map_err(|e| Error::io("opening", e).in_file(&file))?;
        lock(&opened).map_err(|e| e.in_file(&file))?;
        Ok(opened)
    }

    /// Moves the links to a session. The caller has the lock.
    fn point(&self, session: &str) -> Result<()> {
        let session = self.home.session(session)?;
        make_directory(&self.directory().join("sessions"))?;
        self.replace_link(&self.link(), &session.file(), "../../..")?;
        self.replace_link(&self.directory().join("agent.jsonl"), &session.directory.join("ledger/llm.jsonl"), "../..")
    }

    /// Makes a link that stays valid if the home is moved. A file of that name is kept under another name.
    fn replace_link(&self, link: &Path, target: &Path, up: &str) -> Result<()> {
        let failed = |e| Error::io("linking", e).in_file(link);
        let target =
            target.strip_prefix(self.home.root()).map_or_else(|_| target.to_owned(), |t| Path::new(up).join(t));
        if link.symlink_metadata().is_ok_and(|found| !found.is_symlink()) {
            let time: String = clock::now().chars().filter(char::is_ascii_digit).collect();
            std::fs::rename(link, link.with_extension(format!("{time}.jsonl"))).map_err(failed)?;
        }
        let new = link.with_extension("jsonl.new");
        let _ = std::fs::remove_file(&new);
        symlink(target, &new).and_then(|()| std::fs::rename(&new, link)).map_err(failed)
    }
}

/// Returns the id of a session that is named. A session that has ended is opened again.
pub(crate) fn reopened(named: &str) -> Result<String> {
    let shown = query(&["show", named])?;
    let session = text_of(&shown, "session_id")?;
    if shown["ended"] == true {
        query(&["reopen", &session])?;
    }
    Ok(session)
}

/// Asks `cp-session`.
pub(crate) fn query(words: &[&str]) -> Result<Value> {
    ask_with("cp-session", words, b"", [])?.data()
}

fn turns(session: &str) -> Result<u64> {
    Ok(query(&["count", "--session", session])?["count"].as_u64().unwrap_or_default())
}

fn delete(session: &str) -> Result<()> {
    let preview = query(&["delete", session, "--dangerous", "--dry-run"])?;
    let confirm = format!("--confirm={}", text_of(&preview, "confirm_token")?);
    query(&["delete", session, "--dangerous", &confirm]).map(drop)
}

fn text_of(answer: &Value, member: &str) -> Result<String> {
    let text = answer[member].as_str().map(str::to_owned);
    text.ok_or_else(|| Error::validation(format!("cp-session answered without {member}")))
}
