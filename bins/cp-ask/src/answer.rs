//! Prints the records of an answer: the text as it arrives, or the text of the last message.

use std::collections::BTreeSet;

use cp_common::output::{Output, printable, printable_line, to_stderr};
use cp_common::wire::record::{Kind, Record};
use cp_common::wire::{Delta, Message, Reply as _, Usage};
use cp_common::{Code, Error, Result};
use rustix::stdio::stdout;
use rustix::termios::isatty;
use serde_json::Value;

/// The printer of an answer.
pub(crate) struct Printer<'a> {
    out: &'a mut Output,
    /// True if text is printed as it arrives.
    streams: bool,
    /// The text of the last message, printed at the end.
    last: String,
    /// True if what is printed of the message ends a line; `None` if nothing of it is printed.
    ends_line: Option<bool>,
    /// The first failure of the output.
    failure: Option<Error>,
    /// Lines for the end. Their order is that of their words: `Hint`, `Resume`.
    hints: BTreeSet<String>,
    /// The tools that the last message calls.
    called: Vec<String>,
    /// What all messages used.
    used: Usage,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(out: &'a mut Output, streams: bool) -> Self {
        out.outlive_reader();
        let (last, hints, called) = Default::default();
        let used = Usage { cost_usd: Some(0.0), ..Usage::default() };
        Self { out, streams, last, ends_line: None, failure: None, hints, called, used }
    }

    /// Prints a record. A failure of the output is kept, because the turn is stored first.
    pub(crate) fn print(&mut self, line: &[u8]) -> Result<()> {
        let record = Record::parse(line)?;
        match record.kind {
            _ if !record.ok => self.fail(&record),
            Some(Kind::Delta) if self.streams => {
                let Delta { text, .. } = record.read()?;
                self.ends_line = text.chars().last().map(|last| last == '\n').or(self.ends_line);
                self.write(&text);
            }
            Some(Kind::Message) => {
                let message: Message = record.read()?;
                self.called = message.tool_calls.iter().map(|call| call.name.clone()).collect();
                self.used += &message.usage;
                let text = line_of(message.text());
                match self.ends_line {
                    Some(_) => self.end_line(),
                    None if self.streams => self.write(&text),
                    None => self.last = text,
                }
                self.ends_line = None;
            }
            // The request of a dry run.
            Some(Kind::Item) => {
                let data: Value = record.read()?;
                if data["request"].is_object() {
                    self.last = format!("{:#}\n", data["request"]);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Prints a line of the program on standard error, after the text that came before it.
    pub(crate) fn say(&mut self, line: &[u8]) {
        self.end_line();
        to_stderr(&format!("{}\n", String::from_utf8_lossy(line)));
    }

    /// Keeps the hints and the usage of a failure. Its program prints the message.
    fn fail(&mut self, record: &Record<'_>) {
        let error = record.failure();
        // The text of an answer that was cut is printed, and the exit status says that it is not whole.
        if let Some(Value::String(text)) = error.details().remove("partial").filter(|_| error.code() == Code::Partial)
            && self.ends_line.is_none()
        {
            self.write(&line_of(text));
        }
        self.end_line();
        if let Some(used) = error.details().remove("usage").and_then(|used| serde_json::from_value::<Usage>(used).ok())
        {
            self.used += &used;
        }
        // The options of a request are those of this program.
        let hint = error.hint_text().map(|hint| format!("  Hint: {}", hint.replace("cp-llm --help", "cp-ask help")));
        let resume = error.details().get("resume").and_then(Value::as_str).map(|line| format!("  Resume: {line}"));
        self.hints.extend(hint.into_iter().chain(resume).map(|text| text.replace('\n', "\n  ")));
    }

    /// Prints the rest of an answer that is stored.
    pub(crate) fn finish(&mut self) -> Result<()> {
        let last = std::mem::take(&mut self.last);
        self.write(&last);
        if !self.called.is_empty() {
            let called = printable_line(&self.called.join(", "));
            let hint = format!("cp-ask: the model called {called}, but it has no tools: --tools DIR permits them");
            self.hints.insert(hint);
        }
        let unprinted = |e: Error| format!("the answer is stored but could not be printed: {}", e.message());
        self.failure.take().map_or(Ok(()), |e| Err(Error::new(Code::Io, unprinted(e))))
    }

    fn end_line(&mut self) {
        if self.ends_line == Some(false) {
            self.ends_line = Some(true);
            self.write("\n");
        }
    }

    /// Ends an unfinished line, and prints the hints of a failure.
    pub(crate) fn close(&mut self) {
        self.end_line();
        self.hints.iter().for_each(|hint| to_stderr(&format!("{hint}\n")));
    }

    /// Prints the tokens and the cost of all messages.
    pub(crate) fn say_usage(&self) {
        if self.used == Usage::default() {
            return to_stderr("cp-ask: the server reported no usage\n");
        }
        let (output, cost) = (self.used.output_tokens, self.used.cost_usd);
        let input = self.used.tokens() - output;
        let cost = cost.map_or("the price is not known".to_owned(), |cost| format!("${cost:.6}"));
        to_stderr(&format!("cp-ask: {input} tokens of input, {output} of output, {cost}\n"));
    }

    /// Writes text, to a terminal with the control characters of a model escaped.
    fn write(&mut self, text: &str) {
        let shown = if isatty(stdout()) { printable(text) } else { text.into() };
        if let Err(error) = self.out.raw(shown.as_bytes()).and_then(|()| self.out.flush()) {
            self.failure.get_or_insert(error);
        }
    }
}

fn line_of(text: String) -> String {
    if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" }
}
