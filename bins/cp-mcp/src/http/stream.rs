//! Streams of messages: the answer to a request, and what the server says by itself. One that breaks off is taken up again where its
//! events have ids.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Reply};
use cp_http::sse::Parser;
use cp_http::{Stop, is_ended, pause, stopped_by};

use super::client_message::Said;
use super::link::{Link, locked};
use super::post::{CHUNK, Each};

/// How long to wait before a stream is taken up again, where the server does not say.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait.
const LONGEST: Duration = Duration::from_secs(30);
/// How often that is tried in vain.
const TRIES: u32 = 5;

impl Link {
    /// Reads a stream until the answer has come. Without a request that waits for one it goes on until the server offers no more.
    pub(super) fn follow(
        &self,
        client: &Client,
        first: Option<Reply<'_>>,
        said: &Said,
        each: &mut Each<'_>,
    ) -> Result<()> {
        let (mut reply, mut place, mut wait, mut failures) = (first, String::new(), RETRY, 0);
        loop {
            let mut parser = Parser::new();
            let read = reply.take().map_or(Ok(false), |reply| self.events(reply, &mut parser, said, each));
            match read {
                Ok(true) => return Ok(()),
                Err(error) if is_ended() || error.code() != Code::Network => return Err(error),
                Ok(false) | Err(_) => {}
            }
            if !parser.id().is_empty() {
                (place, wait) = (parser.id().to_owned(), RETRY);
            }
            // Without a session there is nothing to take up; without a place the answer would not come again.
            let is_over = said.id.is_some() && (place.is_empty() || said.version().is_some());
            if is_over || failures == TRIES || !pause(parser.retry().map_or(wait, Duration::from_millis).min(LONGEST)) {
                return Err(broken_off());
            }
            wait = (wait * 2).min(LONGEST);
            match self.resumed(client, &place) {
                Ok(Some(again)) => (reply, failures) = (Some(again), 0),
                Ok(None) if said.id.is_some() => return Err(broken_off()),
                Ok(None) => return Ok(()),
                Err(error) if is_ended() || error.code() != Code::Network => return Err(error),
                Err(_) => failures += 1,
            }
        }
    }

    /// Reads events to the end of the connection, or to the answer.
    fn events(&self, mut reply: Reply<'_>, parser: &mut Parser, said: &Said, each: &mut Each<'_>) -> Result<bool> {
        let (mut buffer, mut is_answered) = (vec![0; CHUNK], false);
        while !is_answered {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                return Ok(false);
            }
            // An event without data only says how to go on.
            parser.push(bytes, |event| {
                let is_message = matches!(event.name.as_str(), "" | "message") && !event.data.trim_ascii().is_empty();
                is_answered |= is_message && self.message(&event.data, said, each)?;
                Ok(())
            })?;
        }
        reply.linger();
        Ok(true)
    }

    /// The stream of what comes after a place, or of all that the server says by itself. None: it offers none.
    fn resumed<'a>(&self, client: &'a Client, place: &str) -> Result<Option<Reply<'a>>> {
        let mut headers = self.headed(&locked(&self.session).clone(), "text/event-stream");
        if !place.is_empty() {
            headers.push(("Last-Event-ID".to_owned(), place.to_owned()));
        }
        let url = locked(&self.url).clone();
        let reply = client.get(&url, &headers, u64::MAX)?;
        let is_stream = reply.header("content-type").is_some_and(|media| media.starts_with("text/event-stream"));
        Ok((reply.status == 200 && is_stream).then_some(reply))
    }

    /// Listens in a thread to what the server says by itself, until the session is begun again or over.
    pub(super) fn listen(self: &Arc<Self>) {
        let (stop, link) = (Stop::default(), Arc::clone(self));
        std::mem::replace(&mut *locked(&self.listening), stop.clone()).stop();
        // Where no thread can be started, only that is not heard.
        let _ = std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            stopped_by(&stop);
            let client = link.until(Instant::now() + link.limit("subscriptions/listen"));
            if let Ok(Some(reply)) = link.resumed(&client, "") {
                let _ = link.follow(&client, Some(reply), &Said::default(), &mut |message| link.pass(message));
            }
        });
    }
}

fn broken_off() -> Error {
    Error::new(Code::Network, "the server broke off before it had answered")
}
