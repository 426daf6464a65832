//! The hub, which tracks the work of others. It is queried in the background when a session starts, and written to only
//! by commands. Its answers are untrusted.

use std::fmt::{Display, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result, signals};
use cp_http::client::{Timeouts, code_of};
use cp_redact::Redactor;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde_json::{Value, json};

use crate::interactive::settings;
use crate::interactive::transcript::Transcript;

/// The longest brief, in bytes.
const LONGEST_BRIEF: u64 = 64 << 10;
/// The interval at which a wait checks for signals.
const LOOK: Duration = Duration::from_millis(20);
/// The time that the end of a session waits for an answer.
const LAST_WAIT: Duration = Duration::from_millis(200);
/// The maximum number of entries of a list.
const ENTRIES: usize = 100;

/// The lines that were read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Loaded {
    /// The status: whether the hub was queried.
    pub(crate) status: &'static str,
    pub(crate) brief: Option<Brief>,
    /// The active workstreams.
    pub(crate) workstreams: Vec<Entry>,
    /// The open tasks.
    pub(crate) tasks: Vec<Entry>,
    /// The unread messages.
    pub(crate) messages: Vec<Entry>,
    /// The errors.
    pub(crate) errors: Vec<String>,
}

/// The brief file of a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Brief {
    pub(crate) path: String,
    /// The content, without secrets.
    pub(crate) text: String,
    /// The number of secrets that were removed.
    pub(crate) redactions: u32,
}

/// A workstream, a task or a message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// The kind.
    pub(crate) title: String,
    /// The status, or the sender.
    pub(crate) note: String,
}

/// The hub of a session.
pub(crate) struct Hub {
    client: Option<Client>,
    /// The answer that is expected. It is recorded when it arrives.
    coming: Option<Receiver<Loaded>>,
    /// The current answers.
    pub(crate) loaded: Loaded,
}

/// The status if not even the brief is read.
pub(crate) const NO_HUB: &str = "disabled: --no-hub";

impl Hub {
    /// Reads the brief, and starts the queries in the background, unless the hub is `closed` for a reason.
    pub(crate) fn start(settings: &settings::Hub, closed: Option<&'static str>, directory: &Path) -> Self {
        let mut loaded = Loaded::default();
        if closed != Some(NO_HUB) {
            loaded.brief = brief(&directory.join(&settings.brief));
        }
        let client = match (closed, &settings.url) {
            (Some(why), _) => Err(why),
            (None, None) => Err("not asked: no url in config/shell.toml"),
            (None, Some(url)) => Client::new(url, settings).map_err(|e| {
                loaded.errors.push(e.message().to_owned());
                "not asked: the url in config/shell.toml is not valid"
            }),
        };
        loaded.status = client.as_ref().err().copied().unwrap_or("asked");
        let client = client.ok();
        let coming = client.clone().map(|client| {
            let (sender, receiver) = channel();
            let start = loaded.clone();
            // The receiver is dropped if the session has ended.
            std::thread::spawn(move || drop(sender.send(client.ask(start))));
            receiver
        });
        Self { client, coming, loaded }
    }

    /// True while an answer is expected.
    pub(crate) fn is_pending(&self) -> bool {
        self.coming.is_some()
    }

    /// The brief and the answers as text, to search for ids; `None` if the hub has not answered every question.
    pub(crate) fn known(&self) -> Option<String> {
        let is_answered = self.client.is_some() && !self.is_pending() && self.loaded.errors.is_empty();
        let brief = self.loaded.brief.as_ref().map_or("", |brief| brief.text.trim_end());
        is_answered.then(|| format!("{brief}\n{}", self.loaded.answers()))
    }

    /// Receives and records the answer within a time limit. A signal ends the wait. True if the answer arrived.
    pub(crate) fn receive(&mut self, wait: Duration, transcript: &mut Transcript) -> Result<bool> {
        let Some(coming) = &self.coming else { return Ok(false) };
        let until = Instant::now() + wait;
        self.loaded = loop {
            let left = until.saturating_duration_since(Instant::now());
            match coming.recv_timeout(left.min(LOOK)) {
                Ok(loaded) => break loaded,
                Err(RecvTimeoutError::Timeout) if left > LOOK && !signals::interrupted() => {}
                Err(_) => return Ok(false),
            }
        };
        self.coming = None;
        transcript.note("session_hub", &self.loaded)?;
        Ok(true)
    }

    /// Waits for the initial requests as long as they may take.
    pub(crate) fn wait(&mut self, transcript: &mut Transcript) -> Result<()> {
        let limit = self.client.as_ref().map_or(0, |client| client.settings.timeout_ms);
        self.receive(Duration::from_millis(limit.saturating_mul(3).saturating_add(500)), transcript)?;
        signals::check()
    }

    /// Waits a moment for an answer that is still expected, and records that it did not arrive.
    pub(crate) fn close(&mut self, transcript: &mut Transcript) -> Result<()> {
        self.receive(LAST_WAIT, transcript)?;
        if self.coming.take().is_none() {
            return Ok(());
        }
        self.loaded.errors.push("the hub had not answered when the session ended".to_owned());
        transcript.note("session_hub", &self.loaded)
    }

    /// Posts a note, and returns it. Call this only after a person has confirmed it.
    pub(crate) fn log(&self, summary: &str, session: &str) -> Result<Value> {
        let client = self.client()?;
        let note = json!({
            "topic_id": client.settings.topic,
            "agent": client.settings.agent,
            "session_id": session,
            "event_type": "note",
            "summary": summary,
        });
        client.post("/progress/", &note)?;
        Ok(note)
    }

    /// Marks one message as read.
    pub(crate) fn read(&mut self, id: &str) -> Result<()> {
        let client = self.client()?;
        client.post(&format!("/messages/{}/read", encoded(id)), &json!({"agent": client.settings.agent}))?;
        self.loaded.messages.retain(|message| message.id != id);
        Ok(())
    }

    fn client(&self) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| {
            Error::config(format!("the hub is {}", self.loaded.status))
                .hint("set url in [hub] of config/shell.toml, and remove --no-hub and --offline")
        })
    }
}

impl Loaded {
    /// The answers as text.
    pub(crate) fn answers(&self) -> String {
        let mut text = String::new();
        for (name, entries) in self.lists() {
            for entry in entries {
                let _ = writeln!(text, "{name} {}: {} ({})", entry.id, entry.title, entry.note);
            }
        }
        text
    }

    /// The lists and their names.
    pub(crate) fn lists(&self) -> [(&'static str, &[Entry]); 3] {
        [("workstream", &self.workstreams), ("task", &self.tasks), ("message", &self.messages)]
    }
}

/// The entries of an answer: a list, or the list in the requested member, `items` or `results`.
fn entries(answer: &Value, name: &str) -> Vec<Entry> {
    let list =
        answer.as_array().or_else(|| [name, "items", "results"].iter().find_map(|name| answer.get(name)?.as_array()));
    let member = |entry: &Value, names: &[&str]| {
        let found = names.iter().find_map(|name| entry.get(name).filter(|value| !value.is_null()));
        found.map_or_else(String::new, |value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    };
    let list = list.into_iter().flatten().take(ENTRIES).filter(|entry| entry.is_object());
    let redactor = Redactor::from_environment();
    let without_secrets = |text: String| redactor.redact_text(&text).0;
    list.map(|entry| Entry {
        id: member(entry, &["id", "workstream_id", "task_id", "message_id", "slug"]),
        title: without_secrets(member(entry, &["title", "subject", "name", "summary", "body"])),
        note: without_secrets(member(entry, &["from_agent", "from", "sender", "status"])),
    })
    .collect()
}

/// Reads the brief, if it exists.
fn brief(path: &PathBuf) -> Option<Brief> {
    // Anyone who can write to the directory may have created it.
    path.metadata().ok().filter(|found| found.is_file() && found.len() <= LONGEST_BRIEF)?;
    let bytes = std::fs::read(path).ok()?;
    let (text, redactions) = Redactor::from_environment().redact_text(&String::from_utf8_lossy(&bytes));
    Some(Brief { path: path.display().to_string(), text, redactions })
}

/// The largest answer that is read.
const LIMIT: u64 = 1 << 20;

/// An HTTP client for a hub, which is reached without a proxy.
#[derive(Clone)]
struct Client {
    http: cp_http::client::Client,
    base: String,
    settings: settings::Hub,
}

impl Client {
    fn new(url: &str, settings: &settings::Hub) -> Result<Self> {
        let timeouts = Timeouts { total: Duration::from_millis(settings.timeout_ms), idle: None };
        let http = cp_http::client::Client::new("cp-shell", url, timeouts, 1, |_| None)?;
        Ok(Self { http, base: url.trim_end_matches('/').to_owned(), settings: settings.clone() })
    }

    /// Sends the initial requests. A failed request does not affect the others, unless the hub is unreachable.
    fn ask(&self, mut loaded: Loaded) -> Loaded {
        let topic = self.settings.topic.as_deref().map(|topic| format!("topic_id={}&", encoded(topic)));
        let topic = topic.unwrap_or_default();
        let inbox = format!("to_agent={}&unread_only=true", encoded(&self.settings.agent));
        for (name, query, list) in [
            ("workstreams", format!("{topic}status=active"), &mut loaded.workstreams),
            ("tasks", format!("{topic}status=open"), &mut loaded.tasks),
            ("messages", inbox, &mut loaded.messages),
        ] {
            let answered = loop {
                match self.request(&format!("/{name}/"), &query, None) {
                    // A signal ends the wait of a command, and not this request.
                    Err(e) if e.code() == Code::Interrupted => std::thread::sleep(LOOK),
                    answered => break answered,
                }
            };
            match answered {
                Ok(answer) => *list = entries(&answer, name),
                Err(e) => {
                    loaded.errors.push(e.message().to_owned());
                    if matches!(e.code(), Code::Network | Code::Timeout | Code::Config) {
                        break;
                    }
                }
            }
            if list.len() == ENTRIES {
                loaded.errors.push(format!("{name}: only the first {ENTRIES} were read"));
            }
        }
        loaded
    }

    fn post(&self, path: &str, body: &Value) -> Result<()> {
        self.request(path, "", Some(body)).map(drop).map_err(|e| match e.code() {
            Code::Interrupted | Code::Timeout => e.hint("the hub may have received it"),
            _ => e,
        })
    }

    /// Sends a GET request with a query, or a POST request with a body.
    fn request(&self, path: &str, query: &str, body: Option<&Value>) -> Result<Value> {
        let headers = ["content-type", "accept"].map(|name| (name.to_owned(), "application/json".to_owned()));
        let url = format!("{}{path}", self.base);
        let method = if body.is_some() { "POST" } else { "GET" };
        let failed = |code, what: &str| Error::new(code, format!("{method} {path}: {what}"));
        let mut answer = Vec::new();
        let sent = match body {
            Some(body) => self.http.post(&url, &headers, body.to_string()),
            None => self.http.get(&format!("{url}?{query}"), &headers[1..], LIMIT),
        };
        let read = sent.and_then(|mut reply| reply.read_all(&mut answer).map(|()| reply.status));
        match read.map_err(|e| failed(e.code(), e.message()))? {
            200..300 if answer.trim_ascii().is_empty() => Ok(Value::Null),
            200..300 => {
                serde_json::from_slice(&answer).map_err(|_| failed(Code::Server, "the answer is not valid JSON"))
            }
            status => Err(failed(code_of(status), &format!("status {status}"))),
        }
    }
}

/// Encodes text as a part of a URL.
fn encoded(text: &str) -> impl Display {
    const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
    utf8_percent_encode(text, &RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hub_entries_are_found_in_all_shapes() {
        let one = json!([{"id": 7, "title": "A", "status": "active"}]);
        let entry = Entry { id: "7".into(), title: "A".into(), note: "active".into() };
        assert_eq!(entries(&one, "workstreams"), std::slice::from_ref(&entry));
        assert_eq!(entries(&json!({"items": one}), "workstreams"), std::slice::from_ref(&entry));
        assert_eq!(entries(&json!({"workstreams": one}), "workstreams"), [entry]);
        assert_eq!(entries(&json!({"detail": "x"}), "workstreams"), []);
        let message = json!([{"id": "m1", "from_agent": "ops", "subject": "hi", "status": "unread"}]);
        assert_eq!(entries(&message, "messages")[0].note, "ops");
        let token = format!("rotate ghp_{}", "a1B2".repeat(9));
        let task = json!([{"id": "t1", "title": token, "status": token}]);
        let Entry { title, note, .. } = entries(&task, "tasks").remove(0);
        assert!(title.starts_with("rotate ") && ![title, note].contains(&token));
    }
}
