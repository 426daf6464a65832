//! Prints the records of an answer: on a terminal the text as it arrives, else the text of the last message.

use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;

use cp_common::coprocess::ask_with;
use cp_common::home::lock;
use cp_common::output::{Output, printable_line, to_stderr};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Message, Reply as _};
use cp_common::{Code, Error, Result, clock};
use cp_redact::Redactor;
use rustix::stdio::{stderr, stdout};
use rustix::termios::isatty;
use serde_json::{Value, json};

use crate::environment::variable;

/// The printer of an answer.
pub(crate) struct Printer<'a> {
    out: &'a mut Output,
    /// True if text is streamed to a terminal.
    pub is_terminal: bool,
    /// The text of the last message, printed at the end.
    last: String,
    /// True if a line on the terminal is not finished.
    is_inside: bool,
    /// The first failure of the output.
    failure: Option<Error>,
    hints: Vec<String>,
    /// The tools that the last message calls.
    called: Vec<String>,
    /// The events for `LOG_FILE`.
    events: Vec<(&'static str, String)>,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(out: &'a mut Output) -> Self {
        out.outlive_reader();
        let (last, hints, called, events) = Default::default();
        Self { out, is_terminal: isatty(stdout()), last, is_inside: false, failure: None, hints, called, events }
    }

    /// Prints a record. A failure of the output is kept, because the turn is stored first.
    pub(crate) fn print(&mut self, line: &[u8]) -> Result<()> {
        let record = Record::parse(line)?;
        let data: Value = if record.data.is_some() { record.read()? } else { Value::Null };
        let name = data["name"].as_str().unwrap_or_default();
        match record.kind {
            _ if !record.ok => self.fail(&record),
            Some(Kind::Delta) if self.is_terminal => {
                let piece = data["text"].as_str().unwrap_or_default();
                self.is_inside |= !piece.is_empty();
                self.write(piece);
            }
            Some(Kind::Message) => {
                let message: Message = record.read()?;
                let users = message.input.iter().filter(|turn| turn.role == "user");
                self.events.extend(users.map(|turn| ("request", turn.content.text())));
                self.events.push(("response", message.content.text()));
                self.called = message.tool_calls.iter().map(|call| call.name.clone()).collect();
                let text = line_of(message.text());
                match (self.is_terminal, std::mem::take(&mut self.is_inside)) {
                    (true, true) => self.write("\n"),
                    (true, false) => self.write(&text),
                    _ => self.last = text,
                }
            }
            Some(Kind::ToolCall) => self.events.push(("tool_call", format!("{name} {}", data["input"]))),
            Some(Kind::ToolResult) => {
                let failed = if data["is_error"] == true { " failed" } else { "" };
                self.events.push(("tool_result", format!("{name}{failed}: {}", words_of(&data["content"]))));
            }
            Some(Kind::Item) if data["event"] == "iteration" => {
                self.events.push(("iteration", data["iteration"].to_string()));
            }
            _ => {}
        }
        Ok(())
    }

    /// Keeps the hints of a failure. Its program prints the message.
    fn fail(&mut self, record: &Record<'_>) {
        let error = record.failure();
        // The text of an answer that was cut is printed, and the exit status says that it is not whole.
        if let Some(Value::String(text)) = error.details().remove("partial").filter(|_| error.code() == Code::Partial)
            && !self.is_inside
        {
            self.write(&line_of(text));
        }
        // The message of the program, which may be on this terminal, has ended the line.
        self.is_inside &= !isatty(stderr());
        let hint = error.hint_text().map(|hint| format!("  Hint: {hint}"));
        let resume = error.details().get("resume").and_then(Value::as_str).map(|line| format!("  Resume: {line}"));
        for line in hint.into_iter().chain(resume).map(|text| text.replace('\n', "\n  ")) {
            if !self.hints.contains(&line) {
                self.hints.push(line);
            }
        }
        if record.kind != Some(Kind::Summary) {
            self.events.push(("error", format!("{}: {}", error.code().row().name, error.message())));
        }
    }

    /// Prints the rest of an answer that is stored.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let last = std::mem::take(&mut self.last);
        self.write(&last);
        if !self.called.is_empty() {
            let called = printable_line(&self.called.join(", "));
            self.hints
                .push(format!("cp-ask: the model called {called}, but it has no tools: --tools DIR permits them"));
        }
        let unprinted = |e: Error| format!("the answer is stored but could not be printed: {}", e.message());
        self.failure.take().map_or(Ok(()), |e| Err(Error::new(Code::Io, unprinted(e))))
    }

    /// Ends an unfinished line, prints the hints of a failure and writes the events to `LOG_FILE`.
    pub(crate) fn close(&mut self, agent: &str) -> Result<()> {
        if std::mem::take(&mut self.is_inside) {
            self.write("\n");
        }
        self.hints.iter().for_each(|hint| to_stderr(&format!("{hint}\n")));
        let Some(file) = variable("LOG_FILE") else { return Ok(()) };
        let mut events = self.events.iter().filter(|(_, message)| !message.is_empty());
        events.try_for_each(|(event, message)| log_event(Path::new(&file), event, message, agent))
    }

    /// Writes text, to a terminal without the control characters of a model.
    fn write(&mut self, text: &str) {
        let is_shown = |c: &char| !self.is_terminal || matches!(c, '\n' | '\t') || !c.is_control();
        let shown: String = text.chars().filter(is_shown).collect();
        if let Err(error) = self.out.raw(shown.as_bytes()).and_then(|()| self.out.flush()) {
            self.failure.get_or_insert(error);
        }
    }
}

/// Returns the text of a content: a string, or blocks.
pub(crate) fn words_of(content: &Value) -> String {
    let blocks = content.as_array().into_iter().flatten().filter(|block| block["type"] == "text");
    let text: String = blocks.filter_map(|block| block["text"].as_str()).collect();
    content.as_str().map_or(text, str::to_owned)
}

fn line_of(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}

/// Appends an event to a file: an entry if the file is a ledger, else a bare line without secrets.
fn log_event(file: &Path, event: &str, message: &str, agent: &str) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("appending", e).in_file(file);
    let options = std::fs::File::options().read(true).append(true).create(true).clone();
    let mut opened = options.open(file).map_err(failed)?;
    let mut head = [0; 7];
    if opened.read_exact(&mut head).is_ok() && &head == b"{\"seq\":" {
        let row = json!({ "message": message }).to_string();
        let name = file.to_string_lossy();
        let words = ["append", "--rows", "--sync", "line", "--event", event, "--agent", agent, "-f", &name];
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
