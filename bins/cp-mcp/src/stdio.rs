//! The standard streams: the events of a bridge in their order, which threads post and the main thread handles; and the
//! lines of the protocol to the client. With `--format json` each line is a record.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use cp_common::output::{Format, printable_line};
use cp_common::stream::lines::{LINE_LIMIT, Lines};
use cp_common::wire::Reply;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result};
use cp_mcp_wire::{Offer, Offers};
use serde::Serialize;
use serde_json::value::RawValue;

/// The most waiting events. Beyond it the pipe of the client blocks.
pub(crate) const WAITING: usize = 64;

/// An event.
pub(crate) enum Event {
    /// The client wrote a line.
    FromClient(Vec<u8>),
    /// The client wrote a line that is too long; its number.
    TooLong(u64),
    /// The client's input has ended, or failed, for example by a signal.
    ClientLeft(Result<()>),
    /// The server behind the gate, or an active call, has written a line.
    FromServer(Vec<u8>),
    /// The server behind the gate has exited, with the error if it is known.
    ServerLeft(Result<()>),
}

/// The sender of events. It blocks while the inbox is full, and fails after the inbox is closed.
pub(crate) type Post = SyncSender<Event>;

/// Opens the inbox, and starts to read standard input.
pub(crate) fn open() -> Result<(Post, Receiver<Event>)> {
    open_at_most(LINE_LIMIT)
}

/// Like [`open`], with this limit for a line.
pub(crate) fn open_at_most(longest: usize) -> Result<(Post, Receiver<Event>)> {
    let (post, inbox) = sync_channel(WAITING);
    let client = post.clone();
    Builder::new()
        .name("client".to_owned())
        .spawn(move || {
            let left = read(&client, longest);
            let _ = client.send(Event::ClientLeft(left));
        })
        .map_err(|e| Error::io("starting a thread", e))?;
    Ok((post, inbox))
}

fn read(client: &Post, longest: usize) -> Result<()> {
    let mut lines = Lines::new(std::io::stdin()).at_most(longest);
    let gone = |_| Error::new(Code::Io, "the inbox is closed");
    while let Some(line) = lines.next(&mut || Ok(()))? {
        let bytes = lines.bytes(&line);
        client
            .send(bytes.map_or(Event::TooLong(line.number), |bytes| Event::FromClient(bytes.to_vec())))
            .map_err(gone)?;
    }
    Ok(())
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
pub(crate) fn write(line: &[u8], context: &mut Context) -> Result<()> {
    if line.is_empty() || !in_records(context) {
        return context.out.raw(line);
    }
    let message = serde_json::from_slice(line).map_err(|e| Error::validation(format!("a message: {e}")))?;
    context.out.record(Kind::Item, &Item { message: Some(message), untrusted: vec!["/message"], ..Item::default() })
}

fn in_records(context: &Context) -> bool {
    context.options.json || context.options.format == Some(Format::Json)
}
