//! The state that all calls share: their session, the programs that run them, and the channel to the client.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cp_common::program::confirm::LIFETIME;
use cp_common::wire::Code;
use cp_common::{Context, Error, Result, clock, coprocess};
use cp_mcp_wire::request;
use serde_json::{Value, json};

use super::executor::{Executor, Stop};
use super::protocol::{Client, FormAction};
use crate::inbox::{Event, Post};
use crate::record::Journal;

/// How often a wait for a form checks for a cancellation.
const LOOK: Duration = Duration::from_millis(50);

/// The most command lines that wait for an approval.
const MOST_PAUSED: usize = 1000;

/// The remaining allowance for other models, for all calls.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Allowance {
    pub usd: Option<f64>,
    pub tokens: Option<u64>,
}

/// The state that all calls share.
pub(super) struct Shared {
    pub executor: Executor,
    pub home: PathBuf,
    /// The ledger, whose blobs store long answers.
    pub ledger: PathBuf,
    pub allowance: Mutex<Allowance>,
    pub post: Post,
    journal: Mutex<Journal>,
    questions: Mutex<BTreeMap<String, SyncSender<FormAction>>>,
    /// The errors of command lines that wait for an approval, by their input.
    paused: Mutex<BTreeMap<String, Value>>,
    next: AtomicU64,
}

impl Shared {
    /// Starts with the first call of a client, in the named session or a new one.
    pub(super) fn new(client: &Client, allowance: Allowance, post: Post, context: &mut Context) -> Result<Self> {
        let plain = |c: char| if c == '/' || c.is_control() { '-' } else { c };
        let host: String = client.party.name.chars().map(plain).collect();
        let host = if host.is_empty() { "mcp".to_owned() } else { host };
        // The protocol has no session id over standard streams, so the process id is used.
        let id = format!("{}-{}", clock::unix_seconds(), std::process::id());
        if context.session().is_none() {
            coprocess::ask("cp-session", &["start", "--host", &host, "--host-session", &id], b"", context)?;
            let found = context.home.host_session(&host, &id);
            let (session, _) = found.ok_or_else(|| Error::not_found("the session that was started is not there"))?;
            context.options.session = Some(session.id);
        }
        let mut journal = Journal::new(context)?;
        let (name, version) = (&client.party.name, &client.party.version);
        journal.intend(
            "mcp.session",
            &json!({ "host": host, "host_session": id, "client": { "name": name, "version": version }, "protocol": client.version }),
        )?;
        Ok(Self {
            executor: Executor::new(context, format!("{host}/{id}/")),
            home: context.home.root().to_owned(),
            ledger: journal.path().to_owned(),
            allowance: Mutex::new(allowance),
            post,
            journal: Mutex::new(journal),
            questions: Mutex::default(),
            paused: Mutex::default(),
            next: AtomicU64::new(1),
        })
    }

    /// The error of a command line that waits for an approval.
    pub(super) fn paused(&self, input: &str) -> Option<Error> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(input).map(Error::from_value)
    }

    /// Stores the error of a command line that waits for an approval; `None` removes it.
    pub(super) fn keep_paused(&self, input: &str, error: Option<Value>) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            // A command line whose error is dropped here only starts once more before its approval.
            Some(_) if paused.len() >= MOST_PAUSED => paused.clear(),
            Some(error) => drop(paused.insert(input.to_owned(), error)),
            None => drop(paused.remove(input)),
        }
    }

    /// The ledger.
    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line to the client. A client that has disconnected is ignored.
    pub(super) fn tell(&self, line: serde_json::Result<String>) {
        if let Ok(line) = line {
            let _ = self.post.send(Event::FromServer(line.into_bytes()));
        }
    }

    /// Sends a request to the client, and waits for the lifetime of a token; `None` without a response.
    pub(super) fn ask(&self, method: &'static str, params: &Value, stop: &Stop) -> Result<Option<FormAction>> {
        let id = format!("\"cp-{}\"", self.next.fetch_add(1, Relaxed));
        let (sender, answer) = sync_channel(1);
        self.questions().insert(id.clone(), sender);
        self.tell(request(&id, method, params));
        let until = Instant::now() + Duration::from_secs(LIFETIME);
        let word = loop {
            match answer.recv_timeout(LOOK) {
                Ok(word) => break Some(word),
                Err(RecvTimeoutError::Timeout) if !stop.load(Relaxed) && Instant::now() < until => {}
                Err(_) => break None,
            }
        };
        self.questions().remove(&id);
        if stop.load(Relaxed) { Err(Error::new(Code::Interrupted, "cancelled")) } else { Ok(word) }
    }

    /// Passes a response of the client to the waiting call. A response without an action decides nothing.
    pub(super) fn answered(&self, id: &str, word: Option<FormAction>) {
        if let Some(waiting) = self.questions().remove(id) {
            let _ = waiting.send(word.unwrap_or(FormAction::Cancel));
        }
    }

    fn questions(&self) -> MutexGuard<'_, BTreeMap<String, SyncSender<FormAction>>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
