//! The hub, which tracks the work of others. It is queried in the background when a session starts, and written to only
//! by commands. Its answers are untrusted.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result, signals};
use cp_http::client::{self, Reply, Timeouts};
use cp_redact::Redactor;
use serde::Serialize;
use serde_json::{Value, json};

use crate::interactive::settings;

/// The longest brief, in bytes.
const LONGEST_BRIEF: u64 = 64 << 10;
/// The interval at which a wait checks for signals.
const LOOK: Duration = Duration::from_millis(20);
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
    settings: settings::Hub,
    coming: Option<Receiver<Loaded>>,
    loaded: Loaded,
    /// True if the answer was recorded.
    is_recorded: bool,
}

/// The status if not even the brief is read.
pub(crate) const NO_HUB: &str = "disabled: --no-hub";

impl Hub {
    /// Reads the brief, and starts the queries in the background, unless the hub is `closed` for a reason.
    pub(crate) fn start(settings: &settings::Hub, closed: Option<&'static str>, directory: &Path) -> Self {
        let mut hub = Self {
            client: None,
            settings: settings.clone(),
            coming: None,
            loaded: Loaded::default(),
            is_recorded: false,
        };
        if closed != Some(NO_HUB) {
            hub.loaded.brief = brief(&directory.join(&settings.brief));
        }
        let status = match (closed, &settings.url) {
            (Some(why), _) => why,
            (None, None) => "not asked: no url in config/shell.toml",
            (None, Some(url)) => match Client::new(url, Duration::from_millis(settings.timeout_ms)) {
                Ok(client) => {
                    hub.client = Some(client);
                    "asked"
                }
                Err(e) => {
                    hub.loaded.errors.push(e.message().to_owned());
                    "not asked: the url in config/shell.toml is not valid"
                }
            },
        };
        hub.loaded.status = status;
        if let Some(client) = hub.client.clone() {
            let (sender, receiver) = channel();
            let (settings, start) = (settings.clone(), hub.loaded.clone());
            // The receiver is dropped if the session has ended.
            std::thread::spawn(move || drop(sender.send(ask(&client, &settings, start))));
            hub.coming = Some(receiver);
        }
        hub
    }

    /// The current answers.
    pub(crate) fn loaded(&self) -> &Loaded {
        &self.loaded
    }

    /// True while an answer is expected.
    pub(crate) fn is_pending(&self) -> bool {
        self.coming.is_some()
    }

    /// The answers to record, once.
    pub(crate) fn unrecorded(&mut self) -> Option<Loaded> {
        if std::mem::replace(&mut self.is_recorded, true) {
            return None;
        }
        let mut loaded = self.loaded.clone();
        if self.is_pending() {
            loaded.errors.push("the hub had not answered when the session ended".to_owned());
        }
        Some(loaded)
    }

    /// Receives the answer within a time limit. True if it arrived.
    pub(crate) fn take(&mut self, wait: Duration) -> bool {
        let Some(coming) = &self.coming else { return false };
        match received(coming, wait) {
            Ok(loaded) => self.loaded = loaded,
            Err(RecvTimeoutError::Disconnected) => {
                self.loaded.errors.push("the hub was not queried: no thread could be started".to_owned());
            }
            Err(RecvTimeoutError::Timeout) => return false,
        }
        self.coming = None;
        true
    }

    /// The longest duration of the initial requests.
    pub(crate) fn longest_wait(&self) -> Duration {
        Duration::from_millis(self.settings.timeout_ms.saturating_mul(3).saturating_add(500))
    }

    /// Posts a note. Call this only after a person has confirmed it.
    pub(crate) fn log(&self, note: &Value) -> Result<()> {
        self.post("/progress/", note)
    }

    /// The body that [`Hub::log`] posts.
    pub(crate) fn note(&self, summary: &str, session: &str) -> Value {
        json!({
            "topic_id": self.settings.topic,
            "agent": self.settings.agent,
            "session_id": session,
            "event_type": "note",
            "summary": summary,
        })
    }

    /// Marks one message as read.
    pub(crate) fn read(&mut self, id: &str) -> Result<()> {
        self.post(&format!("/messages/{}/read", encoded(id)), &json!({"agent": self.settings.agent}))?;
        self.loaded.messages.retain(|message| message.id != id);
        Ok(())
    }

    fn post(&self, path: &str, body: &Value) -> Result<()> {
        self.client()?.post(path, body).map(drop).map_err(|e| match e.code() {
            Code::Interrupted => signals::check().err().unwrap_or(e).hint("the hub may have received it"),
            Code::Timeout => e.hint("the hub may have received it"),
            _ => e,
        })
    }

    fn client(&self) -> Result<&Client> {
        self.client.as_ref().ok_or_else(|| {
            Error::new(Code::Config, format!("the hub is {}", self.loaded.status))
                .hint("set url in [hub] of config/shell.toml, and remove --no-hub and --offline")
        })
    }
}

impl Loaded {
    /// The brief and the answers as text, to search for ids.
    pub(crate) fn text(&self) -> String {
        let brief = self.brief.as_ref().map_or("", |brief| brief.text.trim_end());
        format!("{brief}\n{}", self.answers())
    }

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

/// Receives a value from a thread within a time limit. A signal ends the wait.
fn received<T>(coming: &Receiver<T>, wait: Duration) -> Result<T, RecvTimeoutError> {
    let until = Instant::now() + wait;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match coming.recv_timeout(left.min(LOOK)) {
            Err(RecvTimeoutError::Timeout) if left > LOOK && !signals::interrupted() => {}
            settled => return settled,
        }
    }
}

/// Sends the initial requests. A failed request does not affect the others, unless the hub is unreachable.
fn ask(client: &Client, settings: &settings::Hub, mut loaded: Loaded) -> Loaded {
    let topic = settings.topic.as_deref().map(|topic| ("topic_id", topic));
    let with = |rest: [(&'static str, &'static str); 1]| topic.into_iter().chain(rest).collect::<Vec<_>>();
    let messages = vec![("to_agent", settings.agent.as_str()), ("unread_only", "true")];
    let questions = [
        ("/workstreams/", with([("status", "active")]), "workstreams"),
        ("/tasks/", with([("status", "open")]), "tasks"),
        ("/messages/", messages, "messages"),
    ];
    for (path, query, name) in questions {
        let answered = loop {
            match client.get(path, &query) {
                // A signal ends the wait of a command, and not this request.
                Err(e) if e.code() == Code::Interrupted => std::thread::sleep(LOOK),
                answered => break answered,
            }
        };
        match answered {
            Ok(answer) => {
                let entries = entries(&answer, name);
                if entries.len() == ENTRIES {
                    loaded.errors.push(format!("{name}: only the first {ENTRIES} were read"));
                }
                match name {
                    "workstreams" => loaded.workstreams = entries,
                    "tasks" => loaded.tasks = entries,
                    _ => loaded.messages = entries,
                }
            }
            Err(e) => {
                let unreachable = e.details().contains_key(UNREACHABLE);
                loaded.errors.push(e.message().to_owned());
                if unreachable {
                    return loaded;
                }
            }
        }
    }
    loaded
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
    list.map(|entry| Entry {
        id: member(entry, &["id", "workstream_id", "task_id", "message_id", "slug"]),
        title: member(entry, &["title", "subject", "name", "summary", "body"]),
        note: member(entry, &["from_agent", "from", "sender", "status"]),
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

/// The detail of an error if no server answered.
const UNREACHABLE: &str = "unreachable";
/// The largest answer that is read.
const LIMIT: u64 = 1 << 20;

/// An HTTP client for a hub, which is reached without a proxy.
#[derive(Clone)]
struct Client {
    http: Arc<client::Client>,
    base: String,
}

impl Client {
    fn new(base: &str, timeout: Duration) -> Result<Self> {
        let timeouts = Timeouts { total: timeout, idle: None };
        let http = client::Client::new("cp-shell", base, timeouts, 1, |_| None)?;
        Ok(Self { http: Arc::new(http), base: base.trim_end_matches('/').to_owned() })
    }

    /// Sends a GET request. The values of the query are encoded.
    fn get(&self, path: &str, query: &[(&str, &str)]) -> Result<Value> {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let url = format!("{}{path}?{}", self.base, query.join("&"));
        answer("GET", path, self.http.get(&url, &[header("accept")], LIMIT))
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let (url, headers) = (format!("{}{path}", self.base), ["content-type", "accept"].map(header));
        answer("POST", path, self.http.post(&url, &headers, body.to_string()))
    }
}

fn header(name: &str) -> (String, String) {
    (name.to_owned(), "application/json".to_owned())
}

fn answer(method: &str, path: &str, reply: Result<Reply<'_>>) -> Result<Value> {
    let at = |message: &str| format!("{method} {path}: {message}");
    let unreachable = |e: Error| Error::new(e.code(), at(e.message())).with(UNREACHABLE, true);
    let mut body = Vec::new();
    let mut reply = reply.map_err(unreachable)?;
    reply.read_all(&mut body).map_err(unreachable)?;
    match reply.status {
        200..300 if body.trim_ascii().is_empty() => Ok(Value::Null),
        200..300 => {
            serde_json::from_slice(&body).map_err(|_| Error::new(Code::Network, at("the answer is not valid JSON")))
        }
        status => {
            let code = if status >= 500 { Code::Server } else { Code::Network };
            Err(Error::new(code, at(&format!("status {status}"))))
        }
    }
}

/// Encodes text as a part of a URL.
fn encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
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
    }
}
