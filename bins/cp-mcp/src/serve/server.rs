//! The loop of the server: it answers the client, starts calls in threads, and writes all output.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use cp_common::{Code, Context, Error, Result, keys, signals};
use cp_mcp_wire::{
    Failure, INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, METHOD_NOT_FOUND, Message, failure, read, result,
};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::answer::{resource_page, resource_templates};
use super::call::{Call, Consent, Ticket, carry_out};
use super::protocol::{Client, complete, form_action, greeting, members};
use super::shared::{Allowance, Shared};
use super::tools::{Tools, listed_prompts, prompt_text};
use crate::stdio::{self, Event, Post};

/// The most calls that run at the same time. Others wait.
const SLOTS: usize = 8;
/// The most waiting calls, and their most bytes. Further calls are refused.
const WAITING: (usize, usize) = (256, 16 << 20);
/// The longest line of a client, in bytes, which is also the limit of cp-exec.
const LONGEST: usize = 5 << 18;
/// How long calls may continue after the end of the client's input.
const GRACE: Duration = Duration::from_secs(5);

type Answered = std::result::Result<Value, Failure>;

/// Serves the client at the standard streams until it disconnects.
pub(crate) fn serve(names: &[String], allowance: Allowance, context: &mut Context) -> Result<()> {
    let tools = Tools::of(names)?;
    stdio::begin(context)?;
    let (post, inbox) = stdio::open_at_most(LONGEST)?;
    let (handshake_client, shared, running, waiting) = (None, None, Vec::new(), VecDeque::new());
    let mut server =
        Server { root: context.base()?, context, tools, allowance, post, handshake_client, shared, running, waiting };
    let left = server.work(&inbox);
    server.leave(&inbox)?;
    left
}

struct Server<'a> {
    context: &'a mut Context,
    tools: Tools,
    root: PathBuf,
    allowance: Allowance,
    post: Post,
    /// The client of the handshake.
    handshake_client: Option<Client>,
    /// Created with the first call.
    shared: Option<Arc<Shared>>,
    running: Vec<Arc<Ticket>>,
    waiting: VecDeque<Call>,
}

impl Server<'_> {
    /// Handles events until the client's input ends and its calls have ended, or their grace period is over.
    fn work(&mut self, inbox: &Receiver<Event>) -> Result<()> {
        let mut until = None;
        loop {
            let left = until.map(|until: Instant| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero() || self.running.is_empty()) {
                return Ok(());
            }
            match self.next(inbox, left)? {
                None => {}
                Some(Event::FromClient(line)) => self.line(&line)?,
                Some(Event::TooLong(number)) => {
                    let message = format!("line {number} is longer than {LONGEST} bytes");
                    self.answer(RawValue::NULL, Err(Failure::new(INVALID_REQUEST, message)))?;
                }
                Some(Event::FromServer(line)) => self.done(&line)?,
                Some(Event::ClientLeft(left)) => {
                    left?;
                    until = Some(Instant::now() + GRACE);
                }
                Some(Event::ServerLeft(left)) => left?,
            }
        }
    }

    /// The next event. The output is flushed before a wait.
    fn next(&mut self, inbox: &Receiver<Event>, limit: Option<Duration>) -> Result<Option<Event>> {
        match inbox.try_recv() {
            Ok(event) => return Ok(Some(event)),
            Err(TryRecvError::Disconnected) => return Err(Error::new(Code::Io, "the inbox is closed")),
            Err(TryRecvError::Empty) => self.context.out.flush()?,
        }
        match limit.map_or_else(|| inbox.recv().map_err(RecvTimeoutError::from), |limit| inbox.recv_timeout(limit)) {
            Ok(event) => Ok(Some(event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Error::new(Code::Io, "the inbox is closed")),
        }
    }

    /// Stops the active calls, and waits until their processes are killed.
    fn leave(&mut self, inbox: &Receiver<Event>) -> Result<()> {
        // A signal must not end this program before its calls.
        let _effect = signals::effect();
        self.waiting.clear();
        self.running.iter().for_each(|ticket| ticket.stop.store(true, Relaxed));
        while self.running.iter().any(|ticket| ticket.answer.get().is_none()) {
            let _ = inbox.recv_timeout(GRACE);
        }
        let Some(shared) = &self.shared else { return Ok(()) };
        let finished = shared.executor.finish();
        shared.journal().sync()?;
        finished
    }

    fn line(&mut self, line: &[u8]) -> Result<()> {
        match read(line) {
            Err((id, failure)) => self.answer(id.unwrap_or(RawValue::NULL), Err(failure)),
            Ok(Message::Request { id, method, params }) => match self.request(id, &method, params) {
                Ok(Some(value)) => self.answer(id, Ok(value)),
                Ok(None) => Ok(()),
                Err(failure) => self.answer(id, Err(failure)),
            },
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.cancel(params);
                }
                Ok(())
            }
            Ok(Message::Answer { id, outcome }) => {
                let word = outcome.ok().and_then(|result| form_action(&serde_json::from_str(result.get()).ok()?));
                if let Some(shared) = &self.shared {
                    shared.answered(id.get(), word);
                }
                Ok(())
            }
        }
    }

    fn answer(&mut self, id: &RawValue, answered: Answered) -> Result<()> {
        let line = match answered {
            Ok(value) => result(id, &value),
            Err(refused) => failure(id, &refused),
        };
        let line = line.map_err(|e| Error::new(Code::Unknown, format!("an answer cannot be written: {e}")))?;
        stdio::write(line.as_bytes(), self.context)
    }

    /// The result of a request; `None` if its response is written later.
    fn request(
        &mut self,
        id: &RawValue,
        method: &str,
        params: Option<&RawValue>,
    ) -> std::result::Result<Option<Value>, Failure> {
        let params = members(params)?;
        if method == "initialize" {
            let client = Client::greeting(&params)?;
            let value = greeting(Some(&client));
            self.handshake_client = Some(client);
            return Ok(Some(value));
        }
        let own = Client::of(&params)?;
        let is_modern = own.is_some();
        let client = own.or_else(|| self.handshake_client.clone()).unwrap_or_default();
        let (value, may_be_kept) = match method {
            "server/discover" => return Ok(Some(complete(greeting(None), true, Some(true)))),
            "ping" => (json!({}), None),
            "tools/list" => (json!({ "tools": self.tools.listed(self.context) }), Some(true)),
            "tools/call" => return self.call(id, params, client).map(|()| None),
            "resources/list" => (json!({ "resources": [] }), Some(false)),
            "resources/templates/list" => (resource_templates(), Some(true)),
            "resources/read" => (self.resource(&params, is_modern)?, Some(true)),
            "prompts/list" => (listed_prompts(self.context).map_err(failed)?, Some(false)),
            "prompts/get" => (self.prompt(&params)?, None),
            _ => return Err(Failure::new(METHOD_NOT_FOUND, format!("there is no method `{method}`"))),
        };
        Ok(Some(complete(value, is_modern, may_be_kept)))
    }

    fn resource(&self, params: &Map<String, Value>, is_modern: bool) -> Answered {
        /// The code in the versions with a handshake.
        const NOT_FOUND: i64 = -32002;
        let uri = text(params, "uri")?;
        let unknown = Error::not_found(format!("there is no resource `{uri}`"));
        let page = self.shared.as_ref().map_or(Err(unknown), |shared| resource_page(uri, &shared.ledger));
        page.map_err(|error| {
            let code = if is_modern { INVALID_PARAMS } else { NOT_FOUND };
            let code = if error.code() == Code::NotFound { code } else { INTERNAL_ERROR };
            Failure { data: json!({ "uri": uri }), ..Failure::new(code, error.without_secrets().to_string()) }
        })
    }

    fn prompt(&self, params: &Map<String, Value>) -> Answered {
        let given = params.get("arguments").cloned().unwrap_or_else(|| json!({}));
        let arguments: BTreeMap<String, String> = serde_json::from_value(given)
            .map_err(|e| Failure::new(INVALID_PARAMS, format!("the arguments are not texts: {e}")))?;
        prompt_text(text(params, "name")?, &arguments, self.context).map_err(failed)
    }

    /// Queues a call, and starts it if a slot is free.
    fn call(
        &mut self,
        id: &RawValue,
        mut params: Map<String, Value>,
        client: Client,
    ) -> std::result::Result<(), Failure> {
        let name = text(&params, "name")?.to_owned();
        if !self.tools.has(&name) {
            return Err(Failure::new(INVALID_PARAMS, format!("there is no tool `{name}`")));
        }
        let bytes: usize = self.waiting.iter().map(|call| call.bytes).sum();
        if self.waiting.len() >= WAITING.0 || bytes >= WAITING.1 {
            return Err(Failure::new(INTERNAL_ERROR, format!("{} calls wait already", self.waiting.len())));
        }
        if self.running.iter().any(|ticket| ticket.id == id.get() && !ticket.stop.load(Relaxed))
            || self.waiting.iter().any(|call| call.id.get() == id.get())
        {
            return Err(Failure::new(INVALID_REQUEST, format!("a call with the id {id} is under way")));
        }
        let mut arguments = match params.remove("arguments") {
            None => Map::new(),
            Some(Value::Object(arguments)) => arguments,
            Some(_) => return Err(Failure::new(INVALID_PARAMS, "the arguments are not an object")),
        };
        let input = Value::Object(arguments.clone()).to_string();
        let input_hash = keys::hash(input.as_bytes());
        let consent = Consent::of(&params, &mut arguments);
        let operation = self.tools.operation(&name, arguments, &self.root);
        let progress = params.get("_meta").and_then(|meta| meta.get("progressToken")).cloned();
        self.waiting.push_back(Call {
            id: id.to_owned(),
            name,
            input_hash,
            bytes: input.len(),
            operation,
            consent,
            client,
            progress,
        });
        self.start().map_err(failed)
    }

    /// Starts waiting calls while there are free slots.
    fn start(&mut self) -> Result<()> {
        while self.running.len() < SLOTS
            && let Some(call) = self.waiting.pop_front()
        {
            if self.shared.is_none() {
                let made = Shared::new(&call.client, self.allowance, self.post.clone(), self.context)?;
                self.shared = Some(Arc::new(made));
            }
            let Some(shared) = self.shared.clone() else { return Ok(()) };
            let ticket = Ticket::of(&call);
            let own = Arc::clone(&ticket);
            std::thread::Builder::new()
                .name(call.name.clone())
                .spawn(move || carry_out(&call, &own, &shared))
                .map_err(|e| Error::io("starting a thread", e))?;
            self.running.push(ticket);
        }
        Ok(())
    }

    /// Writes a line of a call. After the response of a call the next one starts.
    fn done(&mut self, line: &[u8]) -> Result<()> {
        stdio::write(line, self.context)?;
        if let Some(at) =
            self.running.iter().position(|ticket| ticket.answer.get().is_some_and(|answer| answer == line))
        {
            self.running.swap_remove(at);
        }
        self.start()
    }

    /// Stops a call, or removes it from the queue. A cancelled call gets no response.
    fn cancel(&mut self, params: Option<&RawValue>) {
        let Ok(params) = members(params) else { return };
        let Some(id) = params.get("requestId").map(Value::to_string) else { return };
        self.waiting.retain(|call| call.id.get() != id);
        self.running.iter().filter(|ticket| ticket.id == id).for_each(|ticket| ticket.stop.store(true, Relaxed));
    }
}

fn text<'a>(params: &'a Map<String, Value>, name: &str) -> std::result::Result<&'a str, Failure> {
    let text = params.get(name).and_then(Value::as_str);
    text.ok_or_else(|| Failure::new(INVALID_PARAMS, format!("`{name}` is not a text")))
}

/// The failure for an error.
fn failed(error: Error) -> Failure {
    let error = error.without_secrets();
    let code = match error.code() {
        Code::NotFound | Code::Validation => INVALID_PARAMS,
        _ => INTERNAL_ERROR,
    };
    Failure { data: error.to_value(), ..Failure::new(code, error.to_string()) }
}
