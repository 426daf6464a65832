//! The state that all calls share: their session, the channel to the client, and the programs that run calls: cp-exec
//! as idle coprocesses, and programs that are started once.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, find};
use cp_common::home::Home;
use cp_common::program::grant::{LIFETIME, policy_hash};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{ToolCall, ToolResult};
use cp_common::{Context, Error, Result, clock, coprocess};
use cp_mcp_wire::{Meta, request};
use serde_json::{Map, Value, json};

use super::protocol::FormAction;
use crate::gate::raw;
use crate::record::Journal;
use crate::stdio::{Post, locked, post};

/// True if a call was cancelled.
pub(super) type Stop = AtomicBool;

/// Is called while a call waits. Fails if it was cancelled.
pub(super) type Look<'a> = &'a mut dyn FnMut() -> Result<()>;

/// A coprocess, and the hash of the policy that it has read.
type Warm = (Child, Option<String>);

/// How often a wait looks for a cancellation.
const POLL: Duration = Duration::from_millis(20);

/// The state that all calls share.
pub(super) struct Shared {
    pub home: Home,
    journal: Mutex<Journal>,
    questions: Mutex<BTreeMap<String, SyncSender<FormAction>>>,
    /// The idle coprocesses.
    idle: Mutex<Vec<Warm>>,
    /// The options of all programs.
    flags: Vec<OsString>,
    /// The client, for `--hosted` of cp-exec.
    hosted: String,
}

impl Shared {
    /// Starts with the first call of a client, in the named session or a new one.
    pub(super) fn new(client: &Meta, context: &mut Context) -> Result<Self> {
        let plain = |c: char| if c == '/' || c.is_control() { '-' } else { c };
        let host: String = client.client.name.chars().map(plain).collect();
        let host = if host.is_empty() { "mcp".to_owned() } else { host };
        // The protocol has no session id over standard streams, so the process id is used.
        let id = format!("{}-{}", clock::unix_seconds(), std::process::id());
        if context.session().is_none() {
            let words = ["start", "--host", &host, "--host-session", &id];
            let started: Value = coprocess::ask("cp-session", &words, b"", context)?;
            context.options.session = started["session_id"].as_str().map(str::to_owned);
        }
        let mut journal = Journal::new(context)?;
        let Meta { client: party, version, .. } = client;
        let session = json!({ "host": host, "host_session": id, "client": party, "protocol": version });
        journal.note("mcp.session", &session)?;
        journal.sync()?;
        let mut flags = context.handed_on();
        if !context.options.quiet {
            flags.push("--quiet".into());
        }
        Ok(Self {
            idle: Mutex::default(),
            flags,
            hosted: format!("{host}/{id}/"),
            home: context.home.clone(),
            journal: Mutex::new(journal),
            questions: Mutex::default(),
        })
    }

    /// The ledger.
    pub(super) fn journal(&self) -> MutexGuard<'_, Journal> {
        locked(&self.journal)
    }

    /// Sends a form to the client, with its token as the id, and waits for the lifetime of the token. Without a response
    /// the form is dismissed.
    pub(super) fn ask_client(&self, token: &str, form: &Value, client: &Post, look: Look<'_>) -> Result<FormAction> {
        let id = raw(&token)?;
        let (sender, answer) = sync_channel(1);
        locked(&self.questions).insert(id.get().to_owned(), sender);
        post(&request(Some(&id), "elicitation/create", Some(form)), client);
        let until = Instant::now() + LIFETIME;
        let word = loop {
            let (word, looked) = (answer.recv_timeout(POLL), look());
            if looked.is_err() || word != Err(RecvTimeoutError::Timeout) || Instant::now() > until {
                break looked.map(|()| word.unwrap_or(FormAction::Cancel));
            }
        };
        locked(&self.questions).remove(id.get());
        word
    }

    /// Passes a response of the client to the waiting call. A response without an action decides nothing.
    pub(super) fn answered(&self, id: &str, word: Option<FormAction>) {
        if let Some(waiting) = locked(&self.questions).remove(id) {
            let _ = waiting.send(word.unwrap_or(FormAction::Cancel));
        }
    }

    /// Runs a call by a coprocess, which is killed with all its processes if the call is cancelled.
    pub(super) fn exec(&self, call: &ToolCall, look: Look<'_>) -> Result<ToolResult> {
        let (mut part, policy) = self.warm()?;
        part.send(Kind::ToolCall.name(), call)?;
        while !part.wait_line(POLL)? {
            look()?;
        }
        let outcome = part.receive(|_, record| record.read());
        if !outcome.as_ref().is_err_and(Error::is_fatal) {
            locked(&self.idle).push((part, policy));
        }
        outcome
    }

    /// An idle coprocess, or a new one. A coprocess reads the policy when it starts, so a changed policy requires a new
    /// one.
    fn warm(&self) -> Result<Warm> {
        let policy = policy_hash(&self.home)?;
        let mut idle = locked(&self.idle);
        idle.retain_mut(|(part, read)| *read == policy && part.is_running());
        if let Some(warm) = idle.pop() {
            return Ok(warm);
        }
        drop(idle);
        let verb = ["--hosted", &self.hosted, "--closed"].map(OsString::from);
        let words = verb.into_iter().chain(self.flags.iter().cloned());
        // Its standard error repeats its answers.
        let options = ChildOptions { stderr: Stderr::Kept, ..ChildOptions::DEFAULT };
        Ok((Child::start("cp-exec", &cmd(find("cp-exec")?, words), options)?, policy))
    }

    /// Runs a program and returns its answer, with the records of a stream as `items`.
    pub(super) fn ask(&self, program: &str, words: &[String], input: &str, all: bool, look: Look<'_>) -> Result<Value> {
        let (mut items, mut flags) = (Vec::new(), self.flags.clone());
        if all && let Some(at) = flags.iter().position(|flag| flag == "--session") {
            flags.drain(at..at + 2);
        }
        let answer = coprocess::ask_each(program, words, input.as_bytes(), flags, &mut |line| {
            let Some(line) = line else { return look() };
            let record = Record::parse(line)?;
            items.push(if record.ok { record.read()? } else { json!({ "error": record.failure().to_value() }) });
            Ok(())
        });
        let last: Value = answer?.data;
        if items.is_empty() && last.get("total").is_none() {
            return Ok(last);
        }
        let mut answer = Map::from_iter([("items".to_owned(), items.into())]);
        answer.extend(last.as_object().cloned().unwrap_or_default());
        Ok(answer.into())
    }

    /// Ends the input of the coprocesses, and waits until they exit.
    pub(super) fn finish(&self) -> Result<()> {
        let idle = std::mem::take(&mut *locked(&self.idle));
        idle.into_iter().try_for_each(|(part, _)| part.finish())
    }
}
