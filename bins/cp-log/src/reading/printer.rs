//! Printing lines: as records, as chosen members, as text, or through a jq program.

use std::path::{Path, PathBuf};

use cp_common::output::{Format, printable};
use cp_common::{Context, Error, Result, json};
use cp_ledger::format::line::Line;

use crate::reading::jq::Program;

/// Prints lines up to a limit.
pub(crate) struct Printer {
    jq: Option<Program>,
    jq_failures: u64,
    limit: u64,
    count: u64,
    last: Option<(PathBuf, u64)>,
    has_more: bool,
    /// The record being written; kept to reuse its memory.
    line: Vec<u8>,
}

impl Printer {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        Self { jq: None, jq_failures: 0, limit, count: 0, last: None, has_more: false, line: Vec::new() }
    }

    /// Prints the values of a jq program instead of records.
    pub(crate) fn through(mut self, program: Option<&str>) -> Result<Self> {
        self.jq = program.map(Program::new).transpose()?;
        Ok(self)
    }
}

impl Printer {
    /// Whether there are lines beyond the limit.
    pub(crate) fn has_more(&self) -> bool {
        self.has_more
    }

    /// Whether bare values are printed, and no records.
    pub(crate) fn is_bare(&self) -> bool {
        self.jq.is_some()
    }

    /// Whether the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// Prints a line; false when the limit was reached before.
    pub(crate) fn print(&mut self, path: &Path, line: &Line<'_>, context: &mut Context) -> Result<bool> {
        if self.is_full() {
            self.has_more = true;
            return Ok(false);
        }
        self.count += 1;
        match &mut self.last {
            Some((last, seq)) if last == path => *seq = line.seq(),
            last => *last = Some((path.to_owned(), line.seq())),
        }
        self.line.clear();
        let format = context.out.format();
        if let Some(program) = &self.jq {
            if let Err(e) = program.run(line.bytes(), format != Format::Json, &mut self.line) {
                self.jq_failures += 1;
                context.warn(&format!("{}: seq {}: {e}", path.display(), line.seq()));
            }
            match format {
                Format::Text => context.out.piece(&String::from_utf8_lossy(&self.line))?,
                Format::Json | Format::Raw => context.out.raw(&self.line)?,
            }
            return Ok(true);
        }
        if format == Format::Json {
            self.line.extend_from_slice(b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":");
        }
        match context.out.fields() {
            Some(fields) => self.line.extend(fields.project(line.bytes())),
            None if format == Format::Text => self.line.extend_from_slice(printable(&text_of(line)).as_bytes()),
            None => self.line.extend_from_slice(line.bytes()),
        }
        if format == Format::Json {
            self.line.push(b'}');
        }
        context.out.item_succeeded();
        context.out.pass(&self.line)?;
        Ok(true)
    }

    /// Completes the closing line; bare values have none.
    pub(crate) fn finish(&self, context: &mut Context) -> Result<()> {
        if self.jq.is_none() {
            self.close(context);
            return Ok(());
        }
        if self.jq_failures > 0 {
            return Err(Error::validation(format!("--jq failed on {} lines", self.jq_failures)));
        }
        context.out.ended_with(0);
        Ok(())
    }

    /// Completes the closing line: how many lines there were, and where the next page begins.
    pub(crate) fn close(&self, context: &mut Context) {
        let next = self.last.as_ref().filter(|_| self.has_more).map(|(path, seq)| format!("{}:{seq}", path.display()));
        context.out.extra("count", self.count);
        context.out.extra("next_cursor", next);
        context.out.extra("has_more", self.has_more);
        context.out.extra("truncated", self.has_more);
    }
}

/// A line as text.
fn text_of(line: &Line<'_>) -> String {
    let text = |name: &str| {
        line.member(name).map(|value| json::unquote(value).unwrap_or_else(|| String::from_utf8_lossy(value).into()))
    };
    let mut text_of_line =
        format!("{} {:>6} {}", line.ts(), line.seq(), text("event").unwrap_or_else(|| "-".to_owned()));
    for part in
        [text("agent"), text("role").map(|role| role + ":"), text("content"), text("message")].into_iter().flatten()
    {
        text_of_line.push(' ');
        text_of_line.push_str(&part);
    }
    text_of_line
}
