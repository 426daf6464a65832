//! Copies bytes between two sockets in both directions, through pipes of the kernel.

use std::io;
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, SpliceFlags};

/// The time in which a connection may send its remaining bytes after the end of the run.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// The size of a pipe, if the kernel grants it.
const PIPE: usize = 256 * 1024;

/// The most copies before the other direction is served.
const TURNS: usize = 8;

/// A wait that the end of the run shortens.
pub(crate) struct Patience<'a> {
    /// The read end of a pipe. Its write end is closed at the end of the run.
    ending: BorrowedFd<'a>,
    pub is_ending: bool,
    until: Option<Instant>,
}

impl<'a> Patience<'a> {
    pub(crate) fn new(ending: BorrowedFd<'a>) -> Self {
        Self { ending, is_ending: false, until: None }
    }

    /// Limits all following waits to this time from now, or less if the run has ended.
    pub(crate) fn limit(&mut self, time: Option<Duration>) {
        if !self.is_ending {
            self.until = time.map(|time| Instant::now() + time);
        }
    }

    /// Waits until a descriptor is ready or the run ends. Fails if the time is up.
    pub(crate) fn wait(&mut self, fds: &[(BorrowedFd<'_>, PollFlags)]) -> io::Result<()> {
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(|(fd, flags)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        if !self.is_ending {
            polled.push(PollFd::from_borrowed_fd(self.ending, PollFlags::IN));
        }
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        match rustix::event::poll(&mut polled, timeout.as_ref()) {
            Ok(0) => return Err(io::ErrorKind::TimedOut.into()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if !self.is_ending && polled.last().is_some_and(|fd| !fd.revents().is_empty()) {
            self.limit(Some(LINGER));
            self.is_ending = true;
        }
        Ok(())
    }
}

/// One direction of a connection.
struct Flow<'a> {
    from: &'a TcpStream,
    to: &'a TcpStream,
    pipe: (OwnedFd, OwnedFd),
    /// The bytes in the pipe.
    held: usize,
    has_ended: bool,
    is_shut: bool,
    total: u64,
}

impl<'a> Flow<'a> {
    fn new(from: &'a TcpStream, to: &'a TcpStream) -> io::Result<Self> {
        let pipe = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        // A user has a limited number of pages in pipes.
        let _ = rustix::pipe::fcntl_setpipe_size(&pipe.1, PIPE);
        Ok(Self { from, to, pipe, held: 0, has_ended: false, is_shut: false, total: 0 })
    }

    /// Copies until one of the sockets has to be waited for, but not forever.
    fn advance(&mut self) -> io::Result<()> {
        for _ in 0..TURNS {
            if self.held == 0 && !self.has_ended {
                match splice(self.from, &self.pipe.1, PIPE)? {
                    None => return Ok(()),
                    Some(0) => self.has_ended = true,
                    Some(length) => self.held = length,
                }
            }
            if self.held > 0 {
                let Some(length) = splice(&self.pipe.0, self.to, self.held)? else { return Ok(()) };
                self.held -= length;
                self.total += length as u64;
            } else if self.has_ended {
                if !self.is_shut {
                    self.is_shut = true;
                    // A connection that the other end has closed needs no end.
                    let _ = self.to.shutdown(Shutdown::Write);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// The descriptor to wait for; `None` if the direction is complete.
    fn awaits(&self) -> Option<(BorrowedFd<'a>, PollFlags)> {
        match (self.held, self.has_ended) {
            (0, true) => None,
            (0, false) => Some((self.from.as_fd(), PollFlags::IN)),
            _ => Some((self.to.as_fd(), PollFlags::OUT)),
        }
    }
}

/// Moves bytes; `None` if a socket is not ready.
fn splice(from: impl AsFd, to: impl AsFd, length: usize) -> io::Result<Option<usize>> {
    let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
    loop {
        return match rustix::pipe::splice(&from, None, &to, None, length, flags) {
            Ok(length) => Ok(Some(length)),
            Err(Errno::AGAIN) => Ok(None),
            Err(Errno::INTR) => continue,
            Err(e) => Err(e.into()),
        };
    }
}

/// Copies between a program and its peer until both directions are complete. Returns the bytes to and from the program,
/// and the error that ended the connection. After the end of the run only the bytes of the program are delivered.
pub(crate) fn pump(client: &TcpStream, peer: &TcpStream, mut patience: Patience<'_>) -> (u64, u64, io::Result<()>) {
    let flows = Flow::new(client, peer).and_then(|out| Ok((out, Flow::new(peer, client)?)));
    let (mut out, mut back) = match flows {
        Ok(flows) => flows,
        Err(e) => return (0, 0, Err(e)),
    };
    patience.limit(None);
    let ended = loop {
        if let Err(e) = out.advance().and_then(|()| back.advance()) {
            break Err(e);
        }
        let awaited: Vec<_> = [out.awaits(), back.awaits()].into_iter().flatten().collect();
        if awaited.is_empty() || patience.is_ending && out.awaits().is_none() {
            break Ok(());
        }
        if let Err(e) = patience.wait(&awaited) {
            break Err(e);
        }
    };
    (back.total, out.total, ended)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;

    use proptest::prelude::*;

    use super::*;

    /// Both ends of a connection; the second does not block.
    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (far, near)
    }

    fn never() -> (OwnedFd, OwnedFd) {
        rustix::pipe::pipe().unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn bytes_of_both_directions_arrive_whole(
            lengths in any::<[u32; 2]>(),
            waits_for_end in any::<bool>(),
        ) {
            // A prime number of different bytes, so that no buffer ends as it begins.
            let [sent, answered] = lengths.map(|length| (0..=250_u8).cycle().take(length as usize % 3_000_000).collect::<Vec<_>>());
            let ((program, client), (server, peer)) = (pair(), pair());
            let (ending, _open) = never();
            std::thread::scope(|scope| {
                let pumped = scope.spawn(|| pump(&client, &peer, Patience::new(ending.as_fd())));
                let exchange = |mut stream: TcpStream, bytes: Vec<u8>, reads_first: bool| {
                    let mut received = Vec::new();
                    if reads_first {
                        stream.read_to_end(&mut received).unwrap();
                    }
                    let mut writer = stream.try_clone().unwrap();
                    let write = std::thread::spawn(move || {
                        writer.write_all(&bytes).unwrap();
                        writer.shutdown(Shutdown::Write).unwrap();
                    });
                    if !reads_first {
                        stream.read_to_end(&mut received).unwrap();
                    }
                    write.join().unwrap();
                    received
                };
                let (back, there) = (answered.clone(), sent.clone());
                let answer = scope.spawn(move || exchange(server, back, waits_for_end));
                assert!(exchange(program, there, false) == answered);
                assert!(answer.join().unwrap() == sent);
                let (back, out, ended) = pumped.join().unwrap();
                assert!(ended.is_ok());
                assert_eq!((back, out), (answered.len() as u64, sent.len() as u64));
            });
        }
    }

    #[test]
    fn end_of_run_delivers_bytes_of_program_and_ends_idle_connection() {
        let ((mut program, client), (mut server, peer)) = (pair(), pair());
        let (ending, open) = never();
        program.write_all(b"last words").unwrap();
        drop(program);
        drop(open);
        // The server never answers and never closes.
        let (_, out, ended) = pump(&client, &peer, Patience::new(ending.as_fd()));
        assert!(ended.is_ok() && out == 10);
        drop(peer);
        let mut received = String::new();
        server.read_to_string(&mut received).unwrap();
        assert_eq!(received, "last words");
    }

    #[test]
    fn end_of_run_ends_connection_whose_server_does_not_read() {
        let ((mut program, client), (_server, peer)) = (pair(), pair());
        let (ending, open) = never();
        program.set_nonblocking(true).unwrap();
        std::thread::scope(|scope| {
            let pumped = scope.spawn(|| pump(&client, &peer, Patience::new(ending.as_fd())));
            let mut blocked = 0;
            // Everything between the two ends is full when nothing was taken for a while.
            while blocked < 200 {
                blocked = if program.write(&[0; 8192]).is_err() { blocked + 1 } else { 0 };
                std::thread::sleep(Duration::from_millis(u64::from(blocked > 0)));
            }
            drop(program);
            drop(open);
            assert_eq!(pumped.join().unwrap().2.unwrap_err().kind(), io::ErrorKind::TimedOut);
        });
    }
}
