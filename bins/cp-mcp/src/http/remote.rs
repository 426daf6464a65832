//! A server over HTTP behind the gate. Messages are sent in the order of the client; requests wait for their responses
//! in parallel, each in its own thread.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use cp_common::stream::lines::LINE_LIMIT;
use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Timeouts};
use cp_http::{Stop, stopped_by};
use cp_mcp_wire::{Failure, METHOD_NOT_FOUND};
use cp_servers::Table;
use serde_json::{Value, json};

use super::endpoint::{Address, Headers};
use super::link::{ACCEPTED, ClientMessage, Link, Session, locked};
use crate::gate::Server;
use crate::stdio::Post;

/// The most requests that wait for a response at the same time.
const MOST: usize = 64;
/// The most bytes of the client that wait here.
const UNSENT: usize = 2 * LINE_LIMIT;
/// The time limit for ending a session.
const FAREWELL: Duration = Duration::from_secs(2);

/// A server over HTTP.
pub(crate) struct Remote {
    link: Arc<Link>,
    queue: Option<Sender<Job>>,
    load: Arc<Load>,
}

/// A message to send, and the stop signal of its response.
struct Job {
    line: Vec<u8>,
    request: ClientMessage,
    stop: Stop,
}

/// The waiting bytes and active requests.
#[derive(Default)]
struct Load {
    bytes: AtomicUsize,
    requests: Mutex<usize>,
    one_less: Condvar,
}

impl Remote {
    /// A connection, which the first message opens.
    pub(crate) fn open(
        name: &str,
        address: &Address,
        headers: Headers,
        table: &Table,
        post: Post,
        is_quiet: bool,
    ) -> Result<Self> {
        // The gate limits the time of requests; this limit is for notifications.
        let timeouts = Timeouts { total: table.call_limit() + table.start_limit(), idle: None };
        let variable = |name: &str| std::env::var(name).ok();
        let link = Arc::new(Link {
            name: name.to_owned(),
            client: Client::new("cp-mcp", &address.url, timeouts, MOST, variable)?,
            url: Mutex::new(address.url.clone()),
            headers,
            is_quiet,
            post,
            session: Mutex::new(Session::default()),
            under_way: Mutex::new(HashMap::new()),
            listening: Mutex::default(),
        });
        let (queue, jobs) = channel();
        let load = Arc::new(Load::default());
        let (own, its) = (Arc::clone(&link), Arc::clone(&load));
        spawn("to-server", move || dispatch(&own, &its, &jobs))?;
        Ok(Self { link, queue: Some(queue), load })
    }
}

impl Server for Remote {
    fn send(&mut self, line: &[u8]) -> Result<()> {
        let request = ClientMessage::of(line);
        if request.method == "server/discover" {
            return self.link.refuse(&request, &no_discovery());
        }
        let too_much = || Error::new(Code::RateLimited, format!("the server {} is too slow for that", self.link.name));
        if self.load.bytes.fetch_add(line.len(), Ordering::Relaxed) > UNSENT {
            self.load.bytes.fetch_sub(line.len(), Ordering::Relaxed);
            return Err(too_much());
        }
        let stop = Stop::default();
        locked(&self.link.under_way).extend(request.id.clone().map(|id| (id, stop.clone())));
        let job = Job { line: line.to_vec(), request, stop };
        self.queue.as_ref().and_then(|queue| queue.send(job).ok()).ok_or_else(too_much)
    }

    fn limits_requests(&self) -> bool {
        true
    }

    fn abandon(&mut self, id: &str) {
        locked(&self.link.under_way).remove(id).iter().for_each(Stop::stop);
    }

    fn close(&mut self) -> Result<()> {
        self.queue = None;
        locked(&self.link.under_way).drain().for_each(|(_, stop)| stop.stop());
        locked(&self.link.listening).stop();
        let session = locked(&self.link.session).clone();
        if session.id.is_some() {
            let url = locked(&self.link.url).clone();
            let headers = self.link.headed(&session, ACCEPTED);
            // A server may not support this.
            let _ = self.link.client.within(FAREWELL).delete(&url, &headers);
        }
        Ok(())
    }

    fn described(&self) -> Value {
        let url = locked(&self.link.url).clone();
        json!({ "name": self.link.name, "url": url.split('?').next() })
    }
}

/// Sends the messages of the client in order.
fn dispatch(link: &Arc<Link>, load: &Arc<Load>, jobs: &Receiver<Job>) {
    for job in jobs {
        let is_alone = job.request.id.is_none() || job.request.method == "initialize";
        if is_alone {
            settle(link, &job);
            load.bytes.fetch_sub(job.line.len(), Ordering::Relaxed);
            continue;
        }
        load.begin();
        let (link, load) = (Arc::clone(link), Arc::clone(load));
        let work = move || {
            settle(&link, &job);
            load.end(job.line.len());
        };
        if spawn("request", work).is_err() {
            return;
        }
    }
}

fn settle(link: &Arc<Link>, Job { line, request, stop }: &Job) {
    stopped_by(stop);
    if link.exchange(line, request) && request.method == "notifications/initialized" {
        link.listen();
    }
    request.id.iter().for_each(|id| drop(locked(&link.under_way).remove(id)));
}

/// The answer to a client that looks for the version without a handshake: with this code it shakes hands.
fn no_discovery() -> Failure {
    let message = "a server over HTTP is reached with a handshake (initialize)".to_owned();
    Failure { code: METHOD_NOT_FOUND, message, data: Value::Null }
}

impl Load {
    /// Waits for a free slot.
    fn begin(&self) {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.one_less.wait_while(requests, |requests| *requests >= MOST);
        *waited.unwrap_or_else(PoisonError::into_inner) += 1;
    }

    fn end(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        *locked(&self.requests) -= 1;
        self.one_less.notify_one();
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<()> {
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    started.map(drop).map_err(|e| Error::io("starting a thread", e))
}
