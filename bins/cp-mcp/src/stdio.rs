//! The standard streams: the events of a bridge in their order, which threads post and the main thread handles; and the
//! lines of the protocol to the client. With `--format json` each line is a record.

use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::Instant;

use cp_common::output::{Format, printable_line};
use cp_common::stream::lines::Lines;
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{Failure, INVALID_REQUEST, Offer, Offers, failure};
use serde::Serialize;
use serde_json::value::RawValue;

/// The most waiting events. Beyond it the pipe of the client blocks.
pub(crate) const WAITING: usize = 64;

/// An event.
pub(crate) enum Event {
    /// The client wrote a line.
    FromClient(Vec<u8>),
    /// The client's input has ended, or failed, for example by a signal.
    ClientLeft(Result<()>),
    /// A line for the client.
    ToClient(String),
    /// The call with this stop signal has ended, with the line of its response; empty if it was cancelled.
    Ended(Arc<AtomicBool>, String),
    /// The server behind the gate has written a line.
    FromServer(Vec<u8>),
    /// The server behind the gate has exited.
    ServerLeft(Error),
}

/// The sender of events. It blocks while the inbox is full, and fails after the inbox is closed.
pub(crate) type Post = SyncSender<Event>;

/// Opens the inbox, and starts to read standard input.
pub(crate) fn open(longest: usize) -> Result<(Post, Receiver<Event>)> {
    let (post, inbox) = sync_channel(WAITING);
    let client = post.clone();
    spawn("client", move || {
        let left = read(&client, longest);
        let _ = client.send(Event::ClientLeft(left));
    })?;
    Ok((post, inbox))
}

fn read(client: &Post, longest: usize) -> Result<()> {
    let mut lines = Lines::new(std::io::stdin()).at_most(longest);
    let gone = |_| Error::new(Code::Io, "the inbox is closed");
    while let Some(line) = lines.next(&mut || Ok(()))? {
        let event = if let Ok(bytes) = lines.bytes(&line) {
            Event::FromClient(without_mark(bytes).to_vec())
        } else {
            let message = format!("line {} is longer than {longest} bytes", line.number);
            Event::ToClient(failure(RawValue::NULL, &Failure::new(INVALID_REQUEST, message)))
        };
        client.send(event).map_err(gone)?;
    }
    Ok(())
}

/// A line without the byte order mark that some programs write before their first one.
pub(crate) fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
}

/// The next event; `None` if there is none until then. The output is flushed before a wait.
pub(crate) fn next(inbox: &Receiver<Event>, until: Option<Instant>, context: &mut Context) -> Result<Option<Event>> {
    if let Ok(event) = inbox.try_recv() {
        return Ok(Some(event));
    }
    context.out.flush()?;
    let event = match until {
        None => inbox.recv().map_err(RecvTimeoutError::from),
        Some(until) => inbox.recv_timeout(until.saturating_duration_since(Instant::now())),
    };
    match event {
        Ok(event) => Ok(Some(event)),
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => Err(Error::new(Code::Io, "the inbox is closed")),
    }
}

/// Starts a thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    Builder::new().name(name.to_owned()).spawn(work).map(drop).map_err(|e| Error::io("starting a thread", e))
}

/// Starts so many threads that do the work of a queue, in which so much waits. They end when the queue is dropped.
pub(crate) fn workers<T: Send + 'static>(
    name: &str,
    count: usize,
    waiting: usize,
    work: impl Fn(T) + Send + Sync + 'static,
) -> Result<SyncSender<T>> {
    let (queue, waiting) = sync_channel(waiting);
    let shared = Arc::new((Mutex::new(waiting), work));
    for _ in 0..count {
        let shared = Arc::clone(&shared);
        spawn(name, move || {
            loop {
                let next = locked(&shared.0).recv();
                let Ok(next) = next else { return };
                (shared.1)(next);
            }
        })?;
    }
    Ok(queue)
}

/// The content of a lock, which a panic never leaves half changed.
pub(crate) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A message to the client; or what the servers of `call` offer.
#[derive(Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["message", "servers", "tools"])))]
pub(crate) struct Item<'a> {
    /// The message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, serde_json::Value>>"))]
    message: Option<&'a RawValue>,
    #[serde(flatten)]
    offers: Option<Offers>,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted")]
    untrusted: Vec<&'static str>,
}

impl Item<'_> {
    /// What servers offer.
    pub(crate) fn of_servers(offers: Offers) -> Self {
        Self { offers: Some(offers), untrusted: vec!["/servers", "/tools"], ..Self::default() }
    }
}

impl Reply for Item<'_> {
    fn text(&self) -> String {
        let tools =
            self.offers.iter().flat_map(|offers| &offers.tools).map(|Offer { server, name, description, .. }| {
                printable_line(&format!("{server}/{name:<24} {}", description.lines().next().unwrap_or_default()))
            });
        self.message.map_or_else(|| tools.collect::<Vec<_>>().join("\n"), |message| message.get().to_owned())
    }
}

/// Starts the protocol: a later failure writes no record of its own, unless the output is records.
pub(crate) fn begin(context: &mut Context) -> Result<()> {
    if in_records(context) {
        return context.out.streaming();
    }
    context.out.ended_with(0);
    Ok(())
}

/// Writes a message, which ends with a line feed.
pub(crate) fn write(line: &str, context: &mut Context) -> Result<()> {
    if line.is_empty() || !in_records(context) {
        return context.out.raw(line.as_bytes());
    }
    let message = serde_json::from_str(line).map_err(|e| Error::validation(format!("a message: {e}")))?;
    context.out.record(Kind::Item, &Item { message: Some(message), untrusted: vec!["/message"], ..Item::default() })
}

fn in_records(context: &Context) -> bool {
    context.options.json || context.options.format == Some(Format::Json)
}
