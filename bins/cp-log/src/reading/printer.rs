//! Printing lines: as records, as chosen members or as text.

use std::path::PathBuf;

use cp_common::output::{Format, printable};
use cp_common::{Context, Result, json};

use crate::events::{line_of, shortened};
use crate::reading::{Target, View};

/// Prints lines up to a limit.
pub(crate) struct Printer {
    limit: u64,
    count: u64,
    pub(crate) has_more: bool,
    /// The members that are appended to the entries of a file.
    mark: Option<(PathBuf, Vec<u8>)>,
    /// The record being written; kept to reuse its memory.
    line: Vec<u8>,
}

impl Printer {
    pub(crate) fn new(limit: Option<u64>) -> Self {
        let limit = limit.unwrap_or(u64::MAX);
        Self { limit, count: 0, has_more: false, mark: None, line: Vec::new() }
    }

    /// True if nothing was printed.
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// True if the limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// Prints an entry and where it was found; false when the limit was reached before.
    pub(crate) fn print(&mut self, target: &Target, view: &View<'_>, context: &mut Context) -> Result<bool> {
        if self.is_full() {
            self.has_more = true;
            return Ok(false);
        }
        self.count += 1;
        self.line.clear();
        let format = context.out.format();
        if self.mark.as_ref().is_none_or(|(of, _)| *of != target.path) {
            self.mark = Some((target.path.clone(), target.mark()));
        }
        let mark = self.mark.as_ref().map_or(&b"}"[..], |(_, mark)| mark);
        // The mark ends with the brace of the entry.
        let open = &view.written[..view.written.len() - 1];
        let untrusted = untrusted_of(view);
        let marked = || [open, &mark[..mark.len() - 1], &untrusted, b"}"].concat();
        if format == Format::Json {
            self.line.extend_from_slice(b"{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"entry\",\"data\":");
        }
        match (&context.out.fields, format) {
            (Some(fields), Format::Text) => {
                let chosen = fields.project(&marked());
                self.line.extend_from_slice(printable(&String::from_utf8_lossy(&chosen)).as_bytes());
            }
            (Some(fields), Format::Json | Format::Raw) => self.line.extend(fields.project(&marked())),
            (None, Format::Json) => self.line.extend(marked()),
            (None, Format::Text) => self.line.extend_from_slice(printable(&text_of(view)).as_bytes()),
            (None, Format::Raw) => self.line.extend_from_slice(view.written),
        }
        if format == Format::Json {
            self.line.push(b'}');
        }
        context.out.item_succeeded();
        context.out.pass(&self.line)?;
        Ok(true)
    }

    /// Completes the closing line: how many entries there were, and where the next page begins.
    pub(crate) fn close(&self, next_cursor: Option<String>, context: &mut Context) {
        context.out.extra("count", self.count);
        context.out.extra("next_cursor", next_cursor);
        context.out.extra("has_more", self.has_more);
        context.out.extra("truncated", self.has_more);
    }
}

/// The pointers to untrusted values, as the last member of an entry; empty if there are none.
fn untrusted_of(view: &View<'_>) -> Vec<u8> {
    let mut list = Vec::new();
    for name in ["content", "message", "data"].iter().filter(|name| view.member(name).is_some()) {
        list.extend_from_slice(if list.is_empty() { b",\"_untrusted\":[\"/" } else { b",\"/" });
        list.extend_from_slice(name.as_bytes());
        list.push(b'"');
    }
    if !list.is_empty() {
        list.push(b']');
    }
    list
}

/// A line as text.
fn text_of(line: &View<'_>) -> String {
    let text = |name: &str| {
        line.member(name).map(|value| json::unquote(value).unwrap_or_else(|| String::from_utf8_lossy(value).into()))
    };
    let mut text_of_line = format!("{} {:>6} {}", line.ts, line.seq, text("event").unwrap_or_else(|| "-".to_owned()));
    let data = line.member("data").and_then(|data| serde_json::from_slice(data).ok());
    let summary = data.and_then(|data| line_of(&text("event").unwrap_or_default(), &data));
    let agent = text("agent").filter(|agent| agent != "default");
    let role = text("role").map(|role| role + ":");
    let [content, message] = ["content", "message"].map(|name| text(name).map(|text| shortened(&text)));
    for part in [agent, summary, role, content, message].into_iter().flatten() {
        text_of_line.push(' ');
        text_of_line.push_str(&part);
    }
    text_of_line
}
