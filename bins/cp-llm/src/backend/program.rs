//! Programs as backends: an executable that reads `prompt` records and answers each with a `message` record, and the
//! `llm` program.
//!
//! The `llm` program reads one text and prints one, so a conversation is sent as its turns, each with its role. It logs
//! nothing.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, ChildOptions, Stderr, cmd, find, grouped, on_path};
use cp_common::wire::record::{Kind, Record, SCHEMA_VERSION, open_line};
use cp_common::wire::schemas::MESSAGE;
use cp_common::wire::{Block, Delta, Message, Prompt, Turn, Usage};
use cp_common::{Code, Error, Result};
use cp_schema::Schema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Backend, Exchange};
use crate::wire_api::{
    Answer, Call, Lowered, OnText, Request, TextKind, anthropic, bad_answer, count_but_text, cut, shortened,
};

/// The time that a program has to exit after its input ended. A model may need some time to release its resources.
const OPTIONS: ChildOptions = ChildOptions {
    after_input: Duration::from_secs(1),
    after_term: Duration::from_millis(200),
    ..ChildOptions::DEFAULT
};

/// The program that runs an agent and converts its stream to records.
const AGENT: &str = "cp-agent";

/// An executable that answers records with records. It is started on first use and kept running, except an agent: each
/// of its answers has a process group of its own, so that programs that the agent leaves running are stopped after the
/// answer.
pub(super) struct ExternalBackend {
    /// The path as the user gave it, or the name of an agent.
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
    is_agent: bool,
    limit: Duration,
    idle: Mutex<Vec<Child>>,
}

impl Backend for ExternalBackend {
    fn name(&self) -> &str {
        &self.name
    }

    fn reports_cost(&self) -> bool {
        // Codex and Gemini CLI report tokens only, and opencode no cost of a model that it does not know.
        self.is_agent && self.name == "claude"
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        // The program gets a record. The Anthropic form is recorded because it keeps the most of a request.
        anthropic::recorded(request)
    }

    fn exchange(&self, request: &Request, _: &[u8], show: &mut OnText<'_>) -> Exchange {
        let outcome = self.answer(request, show);
        // A program reports the usage of a failed answer in the details of its error.
        let usage = outcome.as_ref().err().and_then(|error| error.details().get("usage").cloned());
        Exchange { usage: usage.and_then(|usage| serde_json::from_value(usage).ok()), ..Exchange::of(outcome) }
    }
}

impl ExternalBackend {
    /// The executable at a path, with a time limit for each answer.
    pub(super) fn at(name: &str, arguments: &[String], limit: Duration) -> Result<Self> {
        let path = find(name).map_err(Error::fatal)?;
        let arguments = arguments.to_vec();
        Ok(Self { name: name.to_owned(), path, arguments, is_agent: false, limit, idle: Mutex::default() })
    }

    /// The adaptor of an agent, with more arguments for the agent.
    pub(super) fn agent(name: &str, arguments: &[String], limit: Duration) -> Result<Self> {
        let arguments = [&[name.to_owned()], arguments].concat();
        Ok(Self { name: name.to_owned(), is_agent: true, ..Self::at(AGENT, &arguments, limit)? })
    }

    fn answer(&self, request: &Request, show: &mut OnText<'_>) -> Result<Answer> {
        let kept = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut child = match kept {
            Some(child) => child,
            None => Child::start(&self.name, &grouped(&cmd(&self.path, &self.arguments)), OPTIONS)?,
        };
        let answer = exchange(&mut child, &PromptRecord::of(request), Instant::now() + self.limit, show)?;
        // A program that failed is not used again.
        if !self.is_agent {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(child);
        }
        Ok(answer)
    }
}

/// The error of a program that exceeds its time limit.
fn timeout_error() -> Error {
    Error::new(Code::Timeout, "the program did not answer in time").hint("raise --timeout to allow for longer answers")
}

fn exchange(child: &mut Child, prompt: &PromptRecord<'_>, end: Instant, show: &mut OnText<'_>) -> Result<Answer> {
    child.write(&open_line(Kind::Prompt.name(), prompt)?).map_err(|error| match error.code() {
        Code::Interrupted => error,
        // The program has exited without an answer.
        _ => cut(),
    })?;
    loop {
        if !child.wait_line(end.saturating_duration_since(Instant::now()))? {
            return Err(timeout_error());
        }
        let Some(line) = child.next_line()? else { return Err(cut()) };
        let record = Record::parse(line).map_err(|error| {
            let is_partial = serde_json::from_slice::<IgnoredAny>(line).is_err_and(|e| e.is_eof());
            if is_partial { cut() } else { bad_answer("invalid_json", incomplete_message_error(error, line).message()) }
        })?;
        if !record.ok {
            return Err(record.failure());
        }
        match record.kind {
            Some(Kind::Delta) => {
                let Delta { text, thinking, .. } = record.read()?;
                thinking.map_or(Ok(()), |thinking| show(TextKind::Thinking, &thinking))?;
                if !text.is_empty() {
                    show(TextKind::Answer, &text)?;
                }
            }
            Some(Kind::Message) => {
                return answer_of(record.read().map_err(|error| incomplete_message_error(error, line))?);
            }
            _ => {}
        }
    }
}

/// Lists all faults of a message, not only the first one.
fn incomplete_message_error(error: Error, line: &[u8]) -> Error {
    let faults = faults_of_line(line);
    if faults.is_empty() {
        return error;
    }
    Error::new(error.code(), format!("the program's message is not complete: {}", faults.join("; ")))
        .hint("set CP_BACKEND and run `cp-llm doctor` to list the faults")
}

/// Sends a short prompt to the executable at a path, and lists all faults of its answer.
pub(crate) fn examine(name: &str, limit: Duration) -> Result<Vec<String>> {
    let path = find(name)?;
    let mut child = Child::start(name, &grouped(&cmd(path, [""; 0])), OPTIONS)?;
    let prompt: Prompt =
        serde_json::from_value(serde_json::json!({"messages": [{"role": "user", "content": "Say: ok"}]}))
            .map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    // If the program has exited, reading its answer fails below.
    let _ = child.write(&open_line(Kind::Prompt.name(), &prompt)?);
    let end = Instant::now() + limit;
    loop {
        if !child.wait_line(end.saturating_duration_since(Instant::now()))? {
            return Ok(vec![format!(
                "no answer in {} seconds: it must answer each prompt without waiting for the end of its input",
                limit.as_secs()
            )]);
        }
        let Some(line) = child.next_line()? else {
            return Ok(vec!["it ended without an answer: it must write one line of JSON for each prompt".to_owned()]);
        };
        match Record::parse(line) {
            Ok(record) if record.ok && record.kind == Some(Kind::Delta) => {}
            Ok(record) if !record.ok => {
                return Ok(vec![format!("it answered with a failure: {}", record.failure().message())]);
            }
            _ => return Ok(faults_of_line(line)),
        }
    }
}

/// A prompt with all parameters, including those that only the program knows.
#[derive(Serialize)]
struct PromptRecord<'a> {
    #[serde(flatten)]
    prompt: Prompt,
    #[serde(skip_serializing_if = "Map::is_empty")]
    params: &'a Map<String, Value>,
}

impl<'a> PromptRecord<'a> {
    fn of(request: &'a Request) -> Self {
        let prompt = Prompt {
            system: Some(request.system.clone()).filter(|system| !system.is_empty()),
            messages: request.messages.clone(),
            tools: request.tools.clone(),
            model: Some(request.model.clone()),
            ..Prompt::default()
        };
        Self { prompt, params: &request.params }
    }
}

fn answer_of(message: Message) -> Result<Answer> {
    let calls = message.tool_calls.into_iter().map(|call| Call { id: call.id, name: call.name, input: call.input });
    Answer {
        id: Some(message.id),
        model: Some(message.model),
        content: message.content,
        calls: calls.collect(),
        blocks: message.blocks,
        stop: message.stop_reason,
        usage: Some(message.usage).filter(|usage| *usage != Usage::default()),
    }
    .checked()
}

/// The most faults to report.
const MOST: usize = 20;

/// Lists the faults of a line that should be a `message` record.
fn faults_of_line(line: &[u8]) -> Vec<String> {
    let record: Value = match serde_json::from_slice(line) {
        Ok(record) => record,
        Err(e) => return vec![format!("the line is not JSON: {e}")],
    };
    if !record.is_object() {
        return vec!["the line is not a JSON object".to_owned()];
    }
    let mut faults = Vec::new();
    if record["ok"] != true {
        faults.push("`ok` must be true".to_owned());
    }
    if record["schema_version"] != SCHEMA_VERSION {
        faults.push(format!("`schema_version` must be \"{SCHEMA_VERSION}\""));
    }
    if record["type"] != Kind::Message.name() {
        faults.push(format!("`type` must be \"{}\"", Kind::Message.name()));
    }
    match record.get("data") {
        Some(data) => faults.extend(faults_of_message(data)),
        None => faults.push("`data`, the message, is missing".to_owned()),
    }
    faults
}

/// Lists the faults of the data of a message.
fn faults_of_message(data: &Value) -> Vec<String> {
    let schema = serde_json::from_str(MESSAGE).map_err(|e| e.to_string()).and_then(Schema::compile);
    match schema {
        Ok(schema) => {
            let faults = schema.faults(data, MOST).into_iter();
            faults.map(|fault| format!("data{}: {}", fault.pointer, fault.message)).collect()
        }
        Err(why) => vec![why],
    }
}

/// The `llm` program.
pub(super) struct Llm {
    path: PathBuf,
    limit: Duration,
}

/// The call of the program, which is recorded as the body of a request.
#[derive(Serialize, Deserialize)]
struct Invocation {
    arguments: Vec<String>,
    stdin: String,
}

impl Backend for Llm {
    fn name(&self) -> &'static str {
        "llm"
    }

    fn reports_usage(&self) -> bool {
        false
    }

    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        let cannot = |what: &str| {
            Error::validation(format!("the llm program cannot be given {what}")).hint("choose another --backend")
        };
        if !request.tools.is_empty() {
            return Err(cannot("tools"));
        }
        let mut blocks = request.messages.iter().flat_map(|turn| turn.content.blocks());
        let is_file = |block: Block| block.view().is_ok_and(|view| ["image", "document"].contains(&view.kind.as_ref()));
        if blocks.any(is_file) {
            return Err(cannot("images or documents"));
        }
        let call = Invocation { arguments: arguments(request), stdin: transcript(&request.messages) };
        serde_json::to_vec(&call).map_err(|e| Error::new(Code::Unknown, format!("encoding the request: {e}")))
    }

    fn lowered(&self, request: &Request) -> Result<Lowered> {
        // The program gets only the text of a request.
        let mut lowered = Lowered::new();
        for turn in &request.messages {
            let blocks = if turn.blocks.is_empty() { turn.content.blocks() } else { turn.blocks.clone() };
            count_but_text(&blocks, &mut lowered)?;
        }
        Ok(lowered)
    }

    fn exchange(&self, request: &Request, body: &[u8], show: &mut OnText<'_>) -> Exchange {
        Exchange::of(self.answer(request, body, show))
    }
}

impl Llm {
    /// The program on `PATH`.
    pub(super) fn on_path(limit: Duration) -> Result<Self> {
        let path = on_path("llm").ok_or_else(|| {
            Error::config("the llm program is not on PATH").hint("install it, or choose another --backend").fatal()
        })?;
        Ok(Self { path, limit })
    }

    fn answer(&self, request: &Request, body: &[u8], show: &mut OnText<'_>) -> Result<Answer> {
        let Invocation { arguments, stdin } =
            serde_json::from_slice(body).map_err(|e| Error::new(Code::Unknown, format!("reading the request: {e}")))?;
        let text = self.printed(&arguments, &stdin, show)?;
        Answer { model: Some(request.model.clone()), ..Answer::of_text(text) }.checked()
    }

    /// Returns the output of the program without trailing newlines. `show` gets the text as it arrives.
    fn printed(&self, arguments: &[String], stdin: &str, show: &mut OnText<'_>) -> Result<String> {
        let command = grouped(&cmd(&self.path, arguments));
        let mut child = Child::start("llm", &command, ChildOptions { stderr: Stderr::Kept, ..OPTIONS })?;
        // A program that does not read all its input fails with its status.
        let _ = child.write(stdin.as_bytes());
        let mut shown = 0;
        let ended = child.output(Some(Instant::now() + self.limit), &mut |printed| {
            let whole = printed[shown..].utf8_chunks().next().map_or("", |chunk| chunk.valid());
            shown += whole.len();
            if whole.is_empty() { Ok(()) } else { show(TextKind::Answer, whole) }
        })?;
        let (status, printed) = ended.ok_or_else(timeout_error)?;
        if !status.success() {
            let said = child.error_text();
            let reason = said.rsplit("; ").next().filter(|said| !said.is_empty()).unwrap_or("it gave no reason");
            return Err(Error::new(Code::CommandFailed, format!("llm failed: {}", shortened(reason)))
                .with("origin", "upstream")
                .with("return_code", status.code().unwrap_or(-1))
                .with("partial", String::from_utf8_lossy(&printed).into_owned())
                .with("_untrusted", vec!["/partial"]));
        }
        let text =
            String::from_utf8(printed).map_err(|_| bad_answer("invalid_utf8", "the answer is not valid UTF-8"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }
}

fn arguments(request: &Request) -> Vec<String> {
    let mut arguments = vec!["prompt".to_owned(), "--no-log".to_owned()];
    let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
    if !request.model.is_empty() {
        add(&["-m", &request.model]);
    }
    if !request.system.is_empty() {
        add(&["-s", &request.system]);
    }
    if !request.stream {
        add(&["--no-stream"]);
    }
    for (name, value) in &request.params {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        add(&["-o", name, &value]);
    }
    arguments
}

/// The turns as one text, each with its role; a single turn is its text alone.
fn transcript(turns: &[Turn]) -> String {
    match turns {
        [only] => only.content.text(),
        turns => {
            let line = |turn: &Turn| format!("{}: {}", turn.role, turn.content.text());
            turns.iter().map(line).collect::<Vec<_>>().join("\n\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"1","role":"assistant","content":"hi","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}}"#;

    #[test]
    fn missing_members_are_listed() {
        assert!(faults_of_line(WHOLE.as_bytes()).is_empty(), "{:?}", faults_of_line(WHOLE.as_bytes()));
        let faults = faults_of_line(br#"{"ok":true,"data":{"content":"hi"}}"#).join("; ");
        for name in ["schema_version", "type", "id", "role", "model", "backend", "stop_reason"] {
            assert!(faults.contains(name), "{name}: {faults}");
        }
        assert!(!faults.contains("`ok`"), "{faults}");
    }
}
