//! The `llm` program as a backend. It reads one text and prints one, so a conversation is sent as its turns, each with its role. The program
//! logs nothing.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::coprocess::{Child, on_path};
use cp_common::wire::{Block, Turn};
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};

use super::program::{GRACE, timeout_error};
use super::{Backend, Exchange};
use crate::wire_api::{Answer, Lowered, OnText, Request, TextKind, bad_answer, count_but_text, shortened};

/// The `llm` program.
pub(super) struct Llm {
    path: PathBuf,
    limit: Duration,
}

/// The call of the program, which is recorded as the body of a request.
#[derive(Serialize, Deserialize)]
struct Call {
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
        let call = Call { arguments: arguments(request), stdin: transcript(&request.messages) };
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
        let Call { arguments, stdin } =
            serde_json::from_slice(body).map_err(|e| Error::new(Code::Unknown, format!("reading the request: {e}")))?;
        let text = self.printed(&arguments, &stdin, show)?;
        Answer { model: Some(request.model.clone()), ..Answer::of_text(text) }.checked()
    }

    /// Returns the output of the program without trailing newlines. `show` gets the text as it arrives.
    fn printed(&self, arguments: &[String], stdin: &str, show: &mut OnText<'_>) -> Result<String> {
        let mut child = Child::start_group(Command::new(&self.path).args(arguments).stderr(Stdio::piped()), GRACE)?;
        // A program that does not read all its input fails with its status.
        let _ = child.write(stdin.as_bytes());
        child.close_input();
        let end = Instant::now() + self.limit;
        let (mut printed, mut shown) = (Vec::new(), 0);
        while child.read_some(&mut printed, end.saturating_duration_since(Instant::now()))?.ok_or_else(timeout_error)?
            > 0
        {
            let whole = printed[shown..].utf8_chunks().next().map_or("", |chunk| chunk.valid());
            if !whole.is_empty() {
                show(TextKind::Answer, whole)?;
                shown += whole.len();
            }
        }
        let status = child.wait()?;
        if !status.success() {
            let reason = child.last_error_line().unwrap_or_else(|| "it gave no reason".to_owned());
            return Err(Error::new(Code::CommandFailed, format!("llm failed: {}", shortened(&reason)))
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
