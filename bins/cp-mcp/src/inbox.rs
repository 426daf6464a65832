//! The events of a bridge in their order. Threads post them, and the main thread handles them.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use cp_common::stream::lines::{LINE_LIMIT, Lines, Next};
use cp_common::{Code, Error, Result};

/// The most waiting events. Beyond it the pipe of the client blocks.
const WAITING: usize = 64;

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
    loop {
        match lines.next(&mut || Ok(()))? {
            Next::Line(line) => client.send(Event::FromClient(lines.bytes(&line).to_vec())).map_err(gone)?,
            Next::TooLong(number) => client.send(Event::TooLong(number)).map_err(gone)?,
            Next::End => return Ok(()),
        }
    }
}
