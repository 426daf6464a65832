//! The lines of the protocol: those of the client at standard input, and those of the server behind the gate, or of the
//! calls of `serve`, in a pipe. The main thread reads both and writes to the client. With `--format json` each line is a
//! record.

use std::io::{Stdin, Write as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};

use cp_common::coprocess::Output;
use cp_common::output::{Format, printable_line};
use cp_common::stream::lines::{LINE_LIMIT, Lines};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{Failure, INVALID_REQUEST, Offer, Offers, failure};
use os_pipe::PipeWriter;
use serde::Serialize;
use serde_json::value::RawValue;

/// The longest wait for an event without a time limit.
const LONGEST_WAIT: Duration = Duration::from_hours(1);

/// An event.
pub(crate) enum Event {
    /// The client wrote a line.
    FromClient(Vec<u8>),
    /// The client's input has ended.
    ClientLeft,
    /// The server behind the gate, or a call, wrote a line, which may be blank.
    FromServer(Vec<u8>),
    /// The server's output has ended, or is not read further because of the error.
    ServerLeft(Option<Error>),
}

/// The client at standard input.
pub(crate) struct Client {
    lines: Lines<Stdin>,
    longest: usize,
    /// True if the line that has begun is too long, and its end is skipped.
    is_skipping: bool,
    /// True if its lines come before those of the server. They take turns, so that neither waits for the other's end.
    is_first: bool,
}

impl Client {
    /// A client whose lines have at most so many bytes.
    pub(crate) fn new(longest: usize) -> Self {
        let lines = Lines::new(std::io::stdin()).at_most(longest);
        Self { lines, longest, is_skipping: false, is_first: false }
    }

    fn takes_turn(&mut self) -> bool {
        self.is_first = !self.is_first;
        self.is_first
    }

    /// The event of its next line; `None` if there is no whole line yet, or if the line is blank or too long, which the
    /// client gets an error for.
    fn event(&mut self, context: &mut Context) -> Result<Option<Event>> {
        if !self.lines.wait_line(Duration::ZERO)? {
            return Ok(None);
        }
        if self.lines.is_too_long() {
            // The server's messages must not wait for the end of the line, which may never come.
            self.lines.some(&mut Vec::new(), Duration::ZERO)?;
            if !std::mem::replace(&mut self.is_skipping, true) {
                let message = format!("a line is longer than {} bytes", self.longest);
                write(&failure(RawValue::NULL, &Failure::new(INVALID_REQUEST, message)), context)?;
            }
            return Ok(None);
        }
        let Some(line) = self.lines.next_or_blank(&mut || Ok(()))? else { return Ok(Some(Event::ClientLeft)) };
        let bytes = without_mark(self.lines.bytes(&line)?);
        let is_skipped = std::mem::take(&mut self.is_skipping) || bytes.trim_ascii().is_empty();
        Ok((!is_skipped).then(|| Event::FromClient(bytes.to_vec())))
    }
}

/// A line without the byte order mark that some programs write before their first one.
fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line)
}

/// The event of the server's next line; `None` if there is no whole line yet. A line that is too long is not read to
/// its end.
fn server_event(server: &mut Output) -> Result<Option<Event>> {
    if !server.wait_line(Duration::ZERO)? {
        return Ok(None);
    }
    if server.is_too_long() {
        let message = format!("the server wrote a line that is longer than {} MiB", LINE_LIMIT >> 20);
        return Ok(Some(Event::ServerLeft(Some(Error::new(Code::Server, message)))));
    }
    let Some(line) = server.next_or_blank(&mut || Ok(()))? else { return Ok(Some(Event::ServerLeft(None))) };
    Ok(Some(Event::FromServer(without_mark(server.bytes(&line)?).to_vec())))
}

/// The next event; `None` if there is none until then, or if it is later already, because a party that never stops writing
/// would defer the end of a request. The output is flushed before a wait.
pub(crate) fn next(
    mut client: Option<&mut Client>,
    mut server: Option<&mut Output>,
    until: Option<Instant>,
    context: &mut Context,
) -> Result<Option<Event>> {
    loop {
        let left = until.map_or(LONGEST_WAIT, |until| until.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(None);
        }
        let is_first = client.as_mut().is_some_and(|client| client.takes_turn());
        for is_client in [is_first, !is_first] {
            let event = match (is_client, &mut client, &mut server) {
                (true, Some(client), _) => client.event(context)?,
                (false, _, Some(server)) => server_event(server)?,
                _ => None,
            };
            if event.is_some() {
                return Ok(event);
            }
        }
        context.out.flush()?;
        match (&mut client, &mut server) {
            (Some(client), server) => client.lines.wait_line_or(server.as_deref(), left)?,
            (None, Some(server)) => server.wait_line(left)?,
            (None, None) => return Ok(None),
        };
    }
}

/// The end of a pipe into which several threads write lines.
pub(crate) type Post = Mutex<PipeWriter>;

/// A pipe for lines.
pub(crate) fn pipe() -> Result<(Output, Arc<Post>)> {
    let (output, post) = os_pipe::pipe().map_err(|e| Error::io("opening a pipe", e))?;
    Ok((Lines::new(output), Arc::new(Mutex::new(post))))
}

/// Writes a line, which ends with a line feed. Without a reader it is dropped.
pub(crate) fn post(line: &str, post: &Post) {
    let _ = locked(post).write_all(line.as_bytes());
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
        let thread = Builder::new().name(name.to_owned()).spawn(move || {
            loop {
                let next = locked(&shared.0).recv();
                let Ok(next) = next else { return };
                (shared.1)(next);
            }
        });
        thread.map_err(|e| Error::io("starting a thread", e))?;
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
    pub(crate) message: Option<&'a RawValue>,
    #[serde(flatten)]
    pub(crate) offers: Option<Offers>,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted")]
    pub(crate) untrusted: Vec<&'static str>,
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
