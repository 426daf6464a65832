//! What all calls share: the session that they are recorded in, the programs that carry them out, and the way to the client.

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
use super::protocol::{Client, Word};
use crate::inbox::{Event, Post};
use crate::record::Journal;

/// How often a wait for a person looks whether the call was cancelled.
const LOOK: Duration = Duration::from_millis(50);

/// The most command lines that await an answer.
const MOST_PAUSED: usize = 1000;

/// The remaining cost of other models, for all calls together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Allowance {
    pub usd: Option<f64>,
    pub tokens: Option<u64>,
}

/// What all calls share.
pub(super) struct Shared {
    pub executor: Executor,
    pub home: PathBuf,
    /// Beside it are the long answers.
    pub ledger: PathBuf,
    pub allowance: Mutex<Allowance>,
    pub post: Post,
    journal: Mutex<Journal>,
    questions: Mutex<BTreeMap<String, SyncSender<Word>>>,
    /// The errors of command lines that await an answer of their client, by their input.
    paused: Mutex<BTreeMap<String, Value>>,
    next: AtomicU64,
}

impl Shared {
    /// Begins with the first call of a client: in the session that was named, or one that is started for it.
    pub(super) fn new(client: &Client, allowance: Allowance, post: Post, context: &mut Context) -> Result<Self> {
        let plain = |c: char| if c == '/' || c.is_control() { '-' } else { c };
        let host: String = client.party.name.chars().map(plain).collect();
        let host = if host.is_empty() { "mcp".to_owned() } else { host };
        // The protocol has no name for a conversation over standard streams: it is this process.
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

    /// The error of a command line that awaits an answer.
    pub(super) fn paused(&self, input: &str) -> Option<Error> {
        let paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        paused.get(input).map(Error::from_value)
    }

    /// Keeps the error of a command line until it is answered; `None`: it is.
    pub(super) fn keep_paused(&self, input: &str, error: Option<Value>) {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            // A line whose error is dropped here is only started once more before its answer is known.
            Some(_) if paused.len() >= MOST_PAUSED => paused.clear(),
            Some(error) => drop(paused.insert(input.to_owned(), error)),
            None => drop(paused.remove(input)),
        }
    }

    /// The ledger.
    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a line to the client. One that has left needs none.
    pub(super) fn tell(&self, line: serde_json::Result<String>) {
        if let Ok(line) = line {
            let _ = self.post.send(Event::FromServer(line.into_bytes()));
        }
    }

    /// Asks the client something, and waits as long as a token lives. `None`: it has no answer, or the call was cancelled.
    pub(super) fn ask(&self, method: &'static str, params: &Value, stop: &Stop) -> Result<Option<Word>> {
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

    /// Hands an answer of the client to whoever asked. Without a word it decides nothing.
    pub(super) fn answered(&self, id: &str, word: Option<Word>) {
        if let Some(waiting) = self.questions().remove(id) {
            let _ = waiting.send(word.unwrap_or(Word::Cancel));
        }
    }

    fn questions(&self) -> MutexGuard<'_, BTreeMap<String, SyncSender<Word>>> {
        self.questions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
