//! The loop of the server: it answers the client, starts calls in threads, and writes all output.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use cp_common::coprocess::Output;
use cp_common::{Context, Result, keys, signals};
use cp_mcp_wire::{
    Failure, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, MODERN, Message, Meta, read, response,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::Args;
use super::call::{Call, Consent, work};
use super::protocol::{client_of, complete, form_action, greeted, greeting, members};
use super::shared::{Shared, Stop};
use super::tools::{Tool, tools_of};
use crate::gate::failed;
use crate::stdio::{self, Event, Post, workers};

/// The most calls that run at the same time. Others wait.
const SLOTS: usize = 8;
/// The most active calls. Further ones are refused.
const ACTIVE: usize = 72;
/// The longest line of a client, in bytes, which is also the limit of cp-exec.
const LONGEST: usize = 5 << 18;
/// How long calls may continue after the end of the client's input.
const GRACE: Duration = Duration::from_secs(5);

/// Writes the line of a call to the client. A blank line only tells that a call has ended.
fn pass(line: &[u8], context: &mut Context) -> Result<()> {
    if line.is_empty() { Ok(()) } else { stdio::write(&(String::from_utf8_lossy(line) + "\n"), context) }
}

type Answered<T> = std::result::Result<T, Failure>;

/// Serves the client at the standard streams until it disconnects.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    // A missing tree is reported before a client calls a tool.
    context.root()?;
    let tools = tools_of(&args.tools)?;
    stdio::begin(context)?;
    let ((output, post), client) = (stdio::pipe()?, Some(stdio::Client::new(LONGEST)));
    let (root, handshake_client, workers, active) = (context.base()?, None, None, Vec::new());
    let mut server = Server { context, tools, root, client, output, post, handshake_client, workers, active };
    let left = server.work();
    server.leave().and(left)
}

struct Server<'a> {
    context: &'a mut Context,
    tools: Vec<Tool>,
    root: PathBuf,
    /// `None` after the client has disconnected.
    client: Option<stdio::Client>,
    /// The lines of the calls, and the end of the pipe for them.
    output: Output,
    post: Arc<Post>,
    /// The client of the handshake.
    handshake_client: Option<Meta>,
    /// The state of all calls, and the queue of the threads that run them. The first call starts both.
    workers: Option<(Arc<Shared>, SyncSender<Call>)>,
    /// The ids of the calls, as the client wrote them, and their stop signals. A call that has ended has dropped its own.
    active: Vec<(String, Arc<Stop>)>,
}

impl Server<'_> {
    /// Handles events until the client's input ends and its calls have ended, or their grace period is over.
    fn work(&mut self) -> Result<()> {
        let mut until = None;
        while until.is_none_or(|until| until > Instant::now() && self.is_active()) {
            match stdio::next(self.client.as_mut(), Some(&mut self.output), until, self.context)? {
                Some(Event::FromClient(line)) => self.line(&line)?,
                Some(Event::FromServer(line)) => pass(&line, self.context)?,
                Some(Event::ClientLeft) => (self.client, until) = (None, Some(Instant::now() + GRACE)),
                None | Some(Event::ServerLeft(_)) => {}
            }
        }
        Ok(())
    }

    /// True if a call runs or waits.
    fn is_active(&mut self) -> bool {
        self.active.retain(|(_, stop)| Arc::strong_count(stop) > 1);
        !self.active.is_empty()
    }

    /// Stops the active calls, waits until their processes are killed, and writes the last responses.
    fn leave(mut self) -> Result<()> {
        // A signal must not end this program before its calls.
        let _effect = signals::effect();
        self.active.iter().for_each(|(_, stop)| stop.store(true, Relaxed));
        // The pipe ends with the last call.
        drop(self.post);
        self.output.drain_after_signals();
        while let Some(line) = self.output.next(&mut || Ok(()))? {
            // A client that has gone reads no response.
            let _ = pass(self.output.bytes(&line)?, self.context);
        }
        self.workers.map_or(Ok(()), |(shared, _)| shared.finish().and(shared.journal().sync()))
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        match read(line) {
            Err((id, failure)) => self.answer(id.unwrap_or(RawValue::NULL), &Err(failure)),
            Ok(Message::Request { id: Some(id), method, params }) => {
                let answered = self.request(id, &method, params).transpose();
                answered.map_or(Ok(()), |answered| self.answer(id, &answered))
            }
            Ok(Message::Request { id: None, method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params);
                }
                Ok(())
            }
            Ok(Message::Answer { id, outcome }) => {
                let word = outcome.ok().and_then(|result| form_action(&serde_json::from_str(result.get()).ok()?));
                if let Some((shared, _)) = &self.workers {
                    shared.answered(id.get(), word);
                }
                Ok(())
            }
        }
    }

    fn answer(&mut self, id: &RawValue, answered: &Answered<Value>) -> Result<()> {
        stdio::write(&response(id, answered.as_ref()), self.context)
    }

    /// The result of a request; `None` if its response is written later.
    fn request(&mut self, id: &RawValue, method: &str, params: Option<&RawValue>) -> Answered<Option<Value>> {
        let params = members(params)?;
        if method == "initialize" {
            let client = greeted(params)?;
            let value = greeting(("protocolVersion", json!(client.version)));
            self.handshake_client = Some(client);
            return Ok(Some(value));
        }
        let own = client_of(&params, method == "server/discover")?;
        let is_modern = own.is_some();
        let client = own.or_else(|| self.handshake_client.clone()).unwrap_or_default();
        let (value, is_list) = match method {
            "server/discover" => {
                return Ok(Some(complete(greeting(("supportedVersions", json!([MODERN]))), true, true)));
            }
            "ping" => (json!({}), false),
            "tools/list" => (json!({ "tools": self.tools.iter().map(|tool| &tool.listed).collect::<Vec<_>>() }), true),
            "tools/call" => return self.call(id, params, client).map(|()| None),
            // Some clients and test suites ask every server for these.
            "prompts/list" => (json!({ "prompts": [] }), true),
            "resources/list" => (json!({ "resources": [] }), true),
            "resources/templates/list" => (json!({ "resourceTemplates": [] }), true),
            "resources/read" => return Err(Failure::new(INVALID_PARAMS, "there are no resources")),
            _ => return Err(Failure::new(METHOD_NOT_FOUND, format!("there is no method `{method}`"))),
        };
        Ok(Some(complete(value, is_modern, is_list)))
    }

    /// Queues a call.
    fn call(&mut self, id: &RawValue, mut params: Map<String, Value>, client: Meta) -> Answered<()> {
        if self.is_active() && self.active.len() >= ACTIVE {
            return Err(Failure::new(INTERNAL_ERROR, format!("{ACTIVE} calls are under way already")));
        }
        let name = params.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
        let tool = self.tools.iter().find(|tool| tool.name() == name);
        let tool = tool.ok_or_else(|| Failure::new(INVALID_PARAMS, format!("there is no tool `{name}`")))?;
        if self.active.iter().any(|(active, stop)| active == id.get() && !stop.load(Relaxed)) {
            return Err(Failure::new(INVALID_REQUEST, format!("a call with the id {id} is under way")));
        }
        let mut arguments = match params.remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Failure::new(INVALID_PARAMS, "the arguments are not an object")),
        };
        let input = Value::Object(arguments.clone()).to_string();
        let (input_hash, stop) = (keys::hash(input.as_bytes()), Arc::<Stop>::default());
        let consent = Consent::of(&params, &mut arguments);
        let action = tool.action(arguments, &self.root);
        let progress = params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned();
        let queue = self.queue(&client).map_err(|error| failed(&error.without_secrets()))?;
        self.active.push((id.get().to_owned(), Arc::clone(&stop)));
        let (id, post) = (id.to_owned(), Arc::clone(&self.post));
        let call = Call { id, name, input_hash, action, consent, client, progress, stop, post };
        queue.send(call).map_err(|_| Failure::new(INTERNAL_ERROR, "no thread runs calls"))
    }

    /// The queue of the threads that run calls, which has space for all active ones. The first call starts them.
    fn queue(&mut self, client: &Meta) -> Result<SyncSender<Call>> {
        if let Some((_, queue)) = &self.workers {
            return Ok(queue.clone());
        }
        let shared = Arc::new(Shared::new(client, self.context)?);
        let own = Arc::clone(&shared);
        let queue = workers("call", SLOTS, ACTIVE, move |call| work(call, &own))?;
        self.workers = Some((shared, queue.clone()));
        Ok(queue)
    }

    /// Stops a call. A cancelled call gets no response.
    fn cancel(&mut self, params: Option<&RawValue>) {
        let id = members(params).ok().and_then(|params| params.get("requestId").map(Value::to_string));
        let meant = self.active.iter().filter(|(active, _)| Some(active) == id.as_ref());
        meant.for_each(|(_, stop)| stop.store(true, Relaxed));
    }
}
