//! Streams of messages: the response to a request, and messages of the server. A broken stream is resumed if its events have ids.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Reply};
use cp_http::sse::Parser;
use cp_http::{Stop, is_ended, pause, stopped_by};

use super::client_message::ClientMessage;
use super::link::{Link, locked};
use super::post::{CHUNK, Each};

/// The default delay before a stream is resumed.
const RETRY: Duration = Duration::from_secs(1);
/// The longest delay.
const LONGEST: Duration = Duration::from_secs(30);
/// The most failed attempts.
const TRIES: u32 = 5;

impl Link {
    /// Reads a stream until the response arrives. A stream without a request is read until the server ends it.
    pub(super) fn follow(
        &self,
        client: &Client,
        first: Option<Reply<'_>>,
        request: &ClientMessage,
        each: &mut Each<'_>,
    ) -> Result<()> {
        let (mut reply, mut place, mut wait, mut failures) = (first, String::new(), RETRY, 0);
        loop {
            let mut parser = Parser::new();
            let read = reply.take().map_or(Ok(false), |reply| self.events(reply, &mut parser, request, each));
            match read {
                Ok(true) => return Ok(()),
                Err(error) if is_ended() || error.code() != Code::Network => return Err(error),
                Ok(false) | Err(_) => {}
            }
            if !parser.id().is_empty() {
                (place, wait) = (parser.id().to_owned(), RETRY);
            }
            // A stream without a session or without event ids cannot be resumed.
            let is_over = request.id.is_some() && (place.is_empty() || request.version().is_some());
            if is_over || failures == TRIES || !pause(parser.retry().map_or(wait, Duration::from_millis).min(LONGEST)) {
                return Err(broken_off());
            }
            wait = (wait * 2).min(LONGEST);
            match self.resumed(client, &place) {
                Ok(Some(again)) => (reply, failures) = (Some(again), 0),
                Ok(None) if request.id.is_some() => return Err(broken_off()),
                Ok(None) => return Ok(()),
                Err(error) if is_ended() || error.code() != Code::Network => return Err(error),
                Err(_) => failures += 1,
            }
        }
    }

    /// Reads events until the end of the connection, or until the response.
    fn events(
        &self,
        mut reply: Reply<'_>,
        parser: &mut Parser,
        request: &ClientMessage,
        each: &mut Each<'_>,
    ) -> Result<bool> {
        let (mut buffer, mut is_answered) = (vec![0; CHUNK], false);
        while !is_answered {
            let bytes = reply.read(&mut buffer)?;
            if bytes.is_empty() {
                return Ok(false);
            }
            // An event without data only sets the id and the delay.
            parser.push(bytes, |event| {
                let is_message = matches!(event.name.as_str(), "" | "message") && !event.data.trim_ascii().is_empty();
                is_answered |= is_message && self.message(&event.data, request, each)?;
                Ok(())
            })?;
        }
        reply.linger();
        Ok(true)
    }

    /// The stream after an event id, or of all server messages; `None` if the server has none.
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

    /// Listens to server messages in a thread, until the session is renewed or ends.
    pub(super) fn listen(self: &Arc<Self>) {
        let (stop, link) = (Stop::default(), Arc::clone(self));
        std::mem::replace(&mut *locked(&self.listening), stop.clone()).stop();
        // Without a thread only these messages are lost.
        let _ = std::thread::Builder::new().name("listener".to_owned()).spawn(move || {
            stopped_by(&stop);
            let client = link.until(Instant::now() + link.limit("subscriptions/listen"));
            if let Ok(Some(reply)) = link.resumed(&client, "") {
                let _ = link.follow(&client, Some(reply), &ClientMessage::default(), &mut |message| link.pass(message));
            }
        });
    }
}

fn broken_off() -> Error {
    Error::new(Code::Network, "the server broke off before it had answered")
}
