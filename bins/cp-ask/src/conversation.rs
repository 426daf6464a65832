//! The conversation of a call: a session, and the links of an agent that make one of its sessions the current one.

use cp_common::coprocess::ask_with;
use cp_common::home::config::Config;
use cp_common::home::{Home, is_id};
use cp_common::{Error, Result};
use cp_ledger::sessions::Current;
use serde_json::Value;

/// The sessions of an agent.
pub(crate) struct Agent {
    pub(crate) id: String,
    pub(crate) current: Current,
}

impl Agent {
    /// Returns the agent of the command line, else that of the settings.
    pub(crate) fn of(named: Option<&str>, home: &Home) -> Result<Self> {
        let id = Config::load(&home.config_file())?.text("agent", named).unwrap_or_default();
        if !is_id(&id) {
            return Err(Error::usage(format!("'{id}' is not a valid agent id: use letters, digits, _ and -")));
        }
        Ok(Self { current: Current::of(&id, home), id })
    }

    /// Continues the current session, or starts one that becomes current if there was none.
    pub(crate) fn continued(&self) -> Result<String> {
        let _lock = self.current.lock()?;
        let Some(current) = self.current.session() else { return self.renewed() };
        reopened(&current).map(|(session, _)| session).map_err(|e| {
            let message = format!("the conversation {current} cannot be continued: {}", e.message());
            Error::new(e.code(), message).hint(format!("begin a new one: cp-ask --agent {} reset", self.id))
        })
    }

    /// Makes this the current session.
    pub(crate) fn keep(&self, session: &str) -> Result<()> {
        let _lock = self.current.lock()?;
        self.current.point(session)
    }

    /// Starts a new current session. Returns the old one and the new one.
    pub(crate) fn reset(&self) -> Result<(Option<String>, String)> {
        let _lock = self.current.lock()?;
        let old = self.current.session().filter(|old| query(&["show", old]).is_ok());
        Ok((old, self.renewed()?))
    }

    fn renewed(&self) -> Result<String> {
        let session = self.start(None)?;
        self.current.point(&session)?;
        Ok(session)
    }

    /// Starts a session.
    pub(crate) fn start(&self, name: Option<&str>) -> Result<String> {
        let name = name.map(|name| format!("--name={name}"));
        let words: Vec<&str> = ["start", "--agent", &self.id].into_iter().chain(name.as_deref()).collect();
        text_of(&query(&words)?, "session_id")
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
