//! The `llm` program as a backend: it takes a text and prints one. Inside a session its own conversation, named by its `--cid`, mirrors
//! the session's history, so that only what is new is said to it; otherwise it keeps nothing, and a conversation goes in as its turns.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use cp_common::wire::Turn;
use cp_common::{Code, Error, Result};
use serde::Deserialize;

use crate::mirror::Conversation;
use crate::program::Running;
use crate::wire::{Answer, Ask, bad_answer};

/// How many of the newest answers of the program are looked through for one that was just given: others may ask it too.
const NEWEST: &str = "20";

/// The `llm` program.
pub(crate) struct Llm {
    path: PathBuf,
    limit: Duration,
}

impl Llm {
    /// The program on `PATH`, in a directory that is absolute.
    pub(crate) fn on_path(limit: Duration) -> Result<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = std::env::split_paths(&path)
            .filter(|place| place.is_absolute())
            .map(|place| place.join("llm"))
            .find(|f| f.is_file());
        let path = found.ok_or_else(|| {
            Error::config("the llm program is not on PATH").hint("install it, or choose another --backend").fatal()
        })?;
        Ok(Self { path, limit })
    }

    /// The arguments it is called with, and its standard input.
    pub(crate) fn request(ask: &Ask) -> (Vec<String>, String) {
        let mut arguments = vec!["prompt".to_owned()];
        let mut add = |words: &[&str]| arguments.extend(words.iter().map(|word| (*word).to_owned()));
        match &ask.conversation {
            None => add(&["--no-log"]),
            Some(Conversation { cid: None, .. }) => add(&["--log"]),
            Some(Conversation { cid: Some(cid), .. }) => add(&["--log", "--cid", cid]),
        }
        if !ask.model.is_empty() {
            add(&["-m", &ask.model]);
        }
        if !ask.system.is_empty() {
            add(&["-s", &ask.system]);
        }
        if !ask.stream {
            add(&["--no-stream"]);
        }
        for (name, value) in &ask.params {
            let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            add(&["-o", name, &value]);
        }
        let text = ask.conversation.as_ref().map_or_else(|| transcript(&ask.messages), |c| c.text.clone());
        (arguments, text)
    }

    /// Asks it.
    pub(crate) fn answer(&self, ask: &Ask, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<Answer> {
        if !ask.tools.is_empty() {
            return Err(Error::validation("the llm program cannot be given tools").hint("choose another --backend"));
        }
        if let Some(conversation) = &ask.conversation {
            self.compare(conversation)?;
        }
        let (arguments, text) = Self::request(ask);
        let text = self.said(&arguments, &text, show)?;
        Answer { text, model: Some(ask.model.clone()), ..Answer::default() }.checked()
    }

    /// What it prints. `show` gets the words as they come.
    fn said(&self, arguments: &[String], text: &str, show: &mut dyn FnMut(&str) -> Result<()>) -> Result<String> {
        let mut command = Command::new(&self.path);
        command.args(arguments).stderr(Stdio::piped());
        let mut running = Running::start(command)?;
        let complaints = running.child.stderr.take().map(|mut stderr| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = stderr.read_to_end(&mut text);
                String::from_utf8_lossy(&text).into_owned()
            })
        });
        if let Some(mut stdin) = running.child.stdin.take() {
            // One that does not read to the end says why with its status.
            let _ = stdin.write_all(text.as_bytes());
        }
        let end = Instant::now() + self.limit;
        let mut shown = 0;
        while running.more(end)? > 0 {
            let whole = running.buffer[shown..].utf8_chunks().next().map_or("", |chunk| chunk.valid());
            if !whole.is_empty() {
                show(whole)?;
                shown += whole.len();
            }
        }
        let status = running.child.wait()?;
        if !status.success() {
            let said = complaints.and_then(|thread| thread.join().ok()).unwrap_or_default();
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
            return Err(Error::new(Code::CommandFailed, format!("llm failed: {}", crate::wire::shortened(last)))
                .with("origin", "upstream")
                .with("return_code", status.code().unwrap_or(-1))
                .with("partial", String::from_utf8_lossy(&running.buffer).into_owned())
                .with("_untrusted", vec!["/partial"]));
        }
        let text = String::from_utf8(std::mem::take(&mut running.buffer))
            .map_err(|_| bad_answer("invalid_utf8", "the answer is not valid UTF-8"))?;
        Ok(text.trim_end_matches('\n').to_owned())
    }

    /// Fails when the program's conversation has gone on without us, or is gone.
    fn compare(&self, conversation: &Conversation) -> Result<()> {
        let Some(cid) = &conversation.cid else { return Ok(()) };
        let found = self.logged(&["--cid", cid, "-n", "0"])?.len() as u64;
        if found == conversation.answers {
            return Ok(());
        }
        Err(Error::new(
            Code::Conflict,
            format!("llm's conversation {cid} has {found} answers, the session {}", conversation.answers),
        )
        .with("cid", cid.as_str())
        .hint("it was changed elsewhere: start another session, or choose another --backend"))
    }

    /// The id of the conversation in which it has just given this answer to this text; none when it keeps no log.
    pub(crate) fn conversation_of(&self, text: &str, answer: &str) -> Option<String> {
        let logged = self.logged(&["-n", NEWEST]).ok()?;
        let same =
            |one: &&Logged| one.prompt.trim_end() == text.trim_end() && one.response.trim_end() == answer.trim_end();
        logged.iter().rev().find(same).map(|one| one.conversation_id.clone())
    }

    fn logged(&self, which: &[&str]) -> Result<Vec<Logged>> {
        let arguments = [&["logs", "list", "--json"], which].concat();
        let arguments: Vec<String> = arguments.into_iter().map(str::to_owned).collect();
        let text = self.said(&arguments, "", &mut |_| Ok(()))?;
        serde_json::from_str(&text).map_err(|e| bad_answer("invalid_json", &format!("the log of llm: {e}")))
    }
}

/// It takes one text. A conversation goes in as its turns, each with who said it.
pub(crate) fn transcript(turns: &[Turn]) -> String {
    match turns {
        [only] => only.content.text(),
        turns => {
            let said = |turn: &Turn| format!("{}: {}", turn.role, turn.content.text());
            turns.iter().map(said).collect::<Vec<_>>().join("\n\n")
        }
    }
}

/// An answer in the program's log.
#[derive(Deserialize)]
struct Logged {
    conversation_id: String,
    #[serde(default)]
    prompt: String,
    #[serde(default)]
    response: String,
}
