//! What happens while a bridge runs, in the order in which it happened. The threads that wait for it post it here.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

use cp_common::stream::lines::{LINE_LIMIT, Lines, Next};
use cp_common::{Code, Error, Result};

/// How many events may wait: a client that floods us waits in its pipe.
const WAITING: usize = 64;

/// What happened.
pub(crate) enum Event {
    /// The client wrote a line.
    FromClient(Vec<u8>),
    /// The client wrote a line that is longer than any may be; its number.
    TooLong(u64),
    /// The client will write nothing more; with the error that ended it, such as a signal.
    ClientLeft(Result<()>),
    /// The server behind the gate, or a tool that works, has a line for the client.
    FromServer(Vec<u8>),
    /// The server behind the gate has ended, and why, where that is known.
    ServerLeft(Result<()>),
}

/// Where events are posted. A post waits while the inbox is full, and fails when nobody reads it any more.
pub(crate) type Post = SyncSender<Event>;

/// Opens the inbox, and begins to read standard input into it.
pub(crate) fn open() -> Result<(Post, Receiver<Event>)> {
    open_at_most(LINE_LIMIT)
}

/// The same, where no line may be longer than this.
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
    let gone = |_| Error::new(Code::Io, "nobody reads the inbox");
    loop {
        match lines.next(&mut || Ok(()))? {
            Next::Line(line) => client.send(Event::FromClient(lines.bytes(&line).to_vec())).map_err(gone)?,
            Next::TooLong(number) => client.send(Event::TooLong(number)).map_err(gone)?,
            Next::End => return Ok(()),
        }
    }
}
