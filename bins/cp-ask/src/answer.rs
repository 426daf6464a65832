//! Prints the records of an answer: on a terminal the text as it arrives, else the text of the last message.

use std::path::{Path, PathBuf};

use cp_common::coprocess::ask_with;
use cp_common::home::lock;
use cp_common::output::{Output, line_to_stderr};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Message, Reply as _, ToolCall};
use cp_common::{Code, Error, Result, clock};
use cp_redact::Redactor;
use rustix::stdio::stdout;
use rustix::termios::isatty;
use serde_json::{Value, json};

use crate::environment::variable;

/// The printer of an answer.
pub(crate) struct Printer<'a> {
    out: &'a mut Output,
    is_terminal: bool,
    /// The text of the last message, printed at the end.
    last: String,
    /// True if a line on the terminal is not finished.
    is_inside: bool,
    /// The first failure of the output.
    failure: Option<Error>,
    hints: Vec<String>,
    log: Option<PathBuf>,
    events: Vec<(&'static str, String)>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(out: &'a mut Output) -> Self {
        out.outlive_reader();
        Self {
            out,
            is_terminal: isatty(stdout()),
            last: String::new(),
            is_inside: false,
            failure: None,
            hints: Vec::new(),
            log: variable("LOG_FILE").map(PathBuf::from),
            events: Vec::new(),
        }
    }

    /// True if text is to be streamed.
    pub(crate) fn streams(&self) -> bool {
        self.is_terminal
    }

    /// Prints a record. A failure of the output is kept, because the turn is stored first.
    pub(crate) fn print(&mut self, line: &[u8]) -> Result<()> {
        let record = Record::parse(line)?;
        match record.kind {
            Some(Kind::Delta) if self.is_terminal => {
                let delta: Value = record.read()?;
                self.stream(delta["text"].as_str().unwrap_or_default());
            }
            Some(Kind::Message) if record.ok => {
                let message: Message = record.read()?;
                self.log_message(&message);
                let text = line_of(message.text());
                if self.is_terminal {
                    let rest = if std::mem::take(&mut self.is_inside) { "\n".to_owned() } else { text };
                    self.write(&rest);
                } else {
                    self.last = text;
                }
            }
            _ if record.ok && self.log.is_some() => self.log_step(&record)?,
            _ => {}
        }
        if !record.ok {
            self.fail(&record);
        }
        Ok(())
    }

    /// Prints the rest of a finished answer, or the hints of a failed one. Returns the exit status.
    pub(crate) fn finish(mut self, status: u8, agent: &str) -> Result<u8> {
        if status == 0 && !self.is_terminal {
            let last = std::mem::take(&mut self.last);
            self.write(&last);
        }
        if std::mem::take(&mut self.is_inside) {
            self.write("\n");
        }
        for hint in &self.hints {
            line_to_stderr(hint);
        }
        if let Some(file) = &self.log {
            for (event, message) in &self.events {
                log_event(file, event, message, agent)?;
            }
        }
        if let Some(error) = self.failure.filter(|_| status == 0) {
            return Err(Error::new(
                Code::Io,
                format!("the answer is stored but could not be printed: {}", error.message()),
            ));
        }
        Ok(status)
    }

    /// Prints a piece without the control characters of a model, which must not reach the terminal.
    fn stream(&mut self, piece: &str) {
        self.is_inside |= !piece.is_empty();
        self.write(piece);
    }

    fn write(&mut self, text: &str) {
        let shown: String = if self.is_terminal {
            text.chars().filter(|c| matches!(c, '\n' | '\t') || !c.is_control()).collect()
        } else {
            text.to_owned()
        };
        if let Err(error) = self.out.raw(shown.as_bytes()).and_then(|()| self.out.flush()) {
            self.failure.get_or_insert(error);
        }
    }

    fn fail(&mut self, record: &Record<'_>) {
        let error = record.failure();
        let details = error.details();
        let hint = error.hint_text().map(|hint| format!("  Hint: {}", hint.replace('\n', " ")));
        let resume = details.get("resume").and_then(Value::as_str).map(|line| format!("  Resume: {line}"));
        for line in hint.into_iter().chain(resume) {
            if !self.hints.contains(&line) {
                self.hints.push(line);
            }
        }
        if record.kind != Some(Kind::Summary) {
            self.log("error", format!("{}: {}", error.code().row().name, error.message()));
        }
    }

    fn log(&mut self, event: &'static str, message: String) {
        if self.log.is_some() && !message.is_empty() {
            self.events.push((event, message));
        }
    }

    fn log_message(&mut self, message: &Message) {
        for turn in message.input.iter().filter(|turn| turn.role == "user") {
            self.log("request", turn.content.text());
        }
        self.log("response", message.content.text());
    }

    /// Logs a step of a tool loop.
    fn log_step(&mut self, record: &Record<'_>) -> Result<()> {
        let data: Value = record.read()?;
        match record.kind {
            Some(Kind::ToolCall) => {
                let call: ToolCall = record.read()?;
                self.log("tool_call", format!("{} {}", call.name, call.input.get()));
            }
            Some(Kind::ToolResult) => {
                let failed = if data["is_error"] == true { " failed" } else { "" };
                let text = words_of(&data["content"]);
                self.log("tool_result", format!("{}{failed}: {text}", data["name"].as_str().unwrap_or_default()));
            }
            Some(Kind::Item) if data["event"] == "iteration" => self.log("iteration", data["iteration"].to_string()),
            _ => {}
        }
        Ok(())
    }
}

/// Returns the text of a content: a string, or blocks.
pub(crate) fn words_of(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten().filter(|block| block["type"] == "text");
    let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
    content.as_str().map_or(text, str::to_owned)
}

fn line_of(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// Appends an event to the file of `LOG_FILE`: an entry if the file is a ledger, else a bare line without secrets.
fn log_event(file: &Path, event: &str, message: &str, agent: &str) -> Result<()> {
    use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
    let failed = |e: std::io::Error| Error::io("appending", e).in_file(file);
    let mut options = std::fs::OpenOptions::new();
    let mut opened = options.read(true).append(true).create(true).open(file).map_err(failed)?;
    let mut head = [0; 7];
    if opened.read_exact(&mut head).is_ok() && &head == b"{\"seq\":" {
        let row = json!({ "message": message }).to_string();
        let file = file.to_string_lossy();
        let words = ["append", "--rows", "--sync", "line", "--event", event, "--agent", agent, "-f", &file];
        return ask_with("cp-log", &words, row.as_bytes(), []).map(drop);
    }
    lock(&opened)?;
    // An unfinished line of another writer is not continued.
    let mut last = [b'\n'];
    if opened.seek(SeekFrom::End(-1)).is_ok() {
        opened.read_exact(&mut last).map_err(failed)?;
    }
    let start = if last == [b'\n'] { "" } else { "\n" };
    let (message, _) = Redactor::from_environment().redact_text(message);
    let line = json!({"ts": clock::now(), "agent": agent, "event": event, "message": message});
    opened.write_all(format!("{start}{line}\n").as_bytes()).map_err(failed)
}
