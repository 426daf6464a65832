//! The last questions of all conversations, from the ledgers: time, cost, session, model and the first line.

use std::collections::HashMap;

use cp_common::coprocess::{Child, ChildOptions, cmd, find};
use cp_common::output::{printable_line, to_stderr};
use cp_common::wire::record::Record;
use cp_common::wire::{Content, Turn};
use cp_common::{Error, Result};
use rustix::stdio::stdout;
use rustix::termios::isatty;
use serde::Deserialize as _;
use serde_json::Value;

/// Lists the last questions, or those in which a text is, in any case; the newest last.
pub(crate) fn list(limit: usize, sought: Option<&str>) -> Result<String> {
    let words = ["query", "--event", "llm.request", "--event", "llm.response", "--reverse", "--format", "json"];
    let command = cmd(find("cp-log")?, words).stderr_null();
    let mut ledger = Child::start("cp-log", &command, ChildOptions::DEFAULT)?;
    let sought = sought.map(str::to_lowercase);
    let (mut answers, mut lines) = (HashMap::<String, Option<Value>>::new(), Vec::new());
    let mut skipped = None::<(Error, u64)>;
    while lines.len() < limit {
        let Some(line) = ledger.next_line()? else { break };
        let record = Record::parse(line)?;
        if !record.ok {
            // The closing line sums up the lines and files that were left out.
            if record.closed && skipped.is_none() {
                return Err(record.failure());
            }
            skipped.get_or_insert_with(|| (record.failure(), 0)).1 += u64::from(!record.closed);
        }
        let Some("entry") = record.kind_name.as_deref() else { continue };
        let entry: Value = record.read()?;
        // What belongs to no conversation cannot be continued.
        let Some(session) = entry["session"].as_str() else { continue };
        let request = format!("{}{session}", entry["data"]["request_hash"]);
        if entry["event"] == "llm.response" {
            // A request that is repeated has several answers; in this order the latest comes first.
            answers.entry(request).or_insert(Some(entry));
            continue;
        }
        // The request that was killed has no answer.
        let Some(answer) = answers.insert(request, None).unwrap_or_else(|| Some(entry.clone())) else { continue };
        let question = question_of(&entry["content"]);
        let is_sought = |text: &str| sought.as_deref().is_none_or(|sought| text.to_lowercase().contains(sought));
        if is_sought(&question) || is_sought(&Content::deserialize(&answer["content"]).unwrap_or_default().text()) {
            lines.push(line_of(&answer, &question));
        }
    }
    if let Some((first, count)) = skipped {
        if lines.is_empty() {
            return Err(first);
        }
        let first = printable_line(first.message());
        to_stderr(&format!("cp-ask: left out {count} that cannot be read (cp-log verify names them): first {first}\n"));
    }
    if lines.is_empty() && limit > 0 {
        let message = if sought.is_some() { "no question or answer has these words" } else { "no questions yet" };
        return Err(Error::not_found(message));
    }
    lines.reverse();
    Ok(lines.concat())
}

/// Returns the text of the last turn of the person.
fn question_of(content: &Value) -> String {
    let turns = Vec::<Turn>::deserialize(content).unwrap_or_default();
    turns.iter().rev().find(|turn| turn.role == "user").map(|turn| turn.content.text()).unwrap_or_default()
}

fn line_of(answer: &Value, question: &str) -> String {
    let data = &answer["data"];
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let time: String = text(&answer["ts"]).replace('T', " ").chars().take(16).collect();
    let cost = data["usage"]["cost_usd"].as_f64().map_or("-".to_owned(), |cost| format!("${cost:.4}"));
    let first = question.lines().find(|line| !line.trim().is_empty()).unwrap_or("-");
    let [session, endpoint, model] = [&answer["session"], &data["endpoint"], &data["model"]].map(text);
    let head = format!("{time}  {cost}  {session}  {endpoint}/{model}");
    // At a terminal of 80 columns the question has a line of its own.
    let (most, between) = if isatty(stdout()) { (76, "\n    ") } else { (100, "  ") };
    let shown = |text: &str| printable_line(text).chars().take(most).collect::<String>();
    format!("{}{between}{}\n", shown(&head), shown(first))
}
