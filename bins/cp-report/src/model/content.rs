//! The table of events, and the values of an entry that are shown whole: texts, command lines, arguments, differences.

use std::borrow::Cow;

use serde::Serialize;
use similar::{Change, ChangeTag, TextDiff};

use super::entry::Json;

/// A text with more lines or bytes than these is folded.
const LINES: usize = 24;
const BYTES: usize = 4 << 10;

fn part(label: impl Into<Cow<'static, str>>, form: &'static str, text: String) -> Part {
    let folded = text.len() > BYTES || text.bytes().filter(|byte| *byte == b'\n').count() > LINES;
    Part { label: label.into(), form, folded, text, rows: Vec::new() }
}

/// Adds what shows a value in this form.
pub(super) fn parts_of(value: Json<'_>, form: Form, label: String, parts: &mut Vec<Part>) {
    match form {
        Form::Content => content(value, label, parts),
        Form::Output => {
            content(value, label, parts);
            parts.iter_mut().filter(|part| part.form == "text").for_each(|part| part.form = "code");
        }
        Form::Command => parts.push(part("", "command", command(value))),
        Form::Input => input(value, parts),
        Form::Asked => match (value.at("name").and_then(Json::text), value.at("input")) {
            (Some(name), Some(arguments)) => {
                parts.push(part("", "text", name.into_owned()));
                input(arguments, parts);
            }
            _ => parts.push(part("", "command", command(value))),
        },
        Form::Difference => parts.push(unified(&value.text().unwrap_or_default())),
        Form::Value => parts.push(Part { folded: true, ..part(label, "code", value.pretty()) }),
    }
}

/// Adds the parts of a text or of a list of blocks.
fn content(value: Json<'_>, label: String, parts: &mut Vec<Part>) {
    if let Some(text) = value.text() {
        if !text.is_empty() {
            parts.push(part(label, "text", text.into_owned()));
        }
        return;
    }
    let Some(blocks) = value.items() else {
        parts.push(moved(value).unwrap_or_else(|| part(label, "code", value.pretty())));
        return;
    };
    for block in blocks {
        let kind = block.at("type").and_then(Json::text).unwrap_or_default();
        let named = |name: &str| block.at(name).and_then(Json::text).unwrap_or_default();
        match &*kind {
            "text" => parts.push(part("", "text", named("text").into_owned())),
            "thinking" => parts.push(Part { folded: true, ..part("thinking", "text", named("thinking").into_owned()) }),
            "tool_use" => {
                parts.push(part("", "text", format!("→ {}", named("name"))));
                if let Some(arguments) = block.at("input") {
                    input(arguments, parts);
                }
            }
            "tool_result" => {
                let about = format!("result of {}", named("tool_use_id"));
                if let Some(result) = block.at("content") {
                    content(result, about, parts);
                }
            }
            // A turn of a request: who speaks, and what.
            "" if block.at("role").is_some() => {
                if let Some(said) = block.at("content") {
                    content(said, named("role").into_owned(), parts);
                }
            }
            _ => parts.push(Part { folded: true, ..part(kind.into_owned(), "code", block.pretty()) }),
        }
    }
}

/// A value that was too large for its line.
fn moved(value: Json<'_>) -> Option<Part> {
    let hash = value.at("blob").and_then(Json::text)?;
    Some(part("a large value, below", "code", hash.into_owned()))
}

/// The words of a command line, quoted where a shell would need it.
fn command(argv: Json<'_>) -> String {
    let Some(words) = argv.items() else { return argv.pretty() };
    words.into_iter().map(|value| word(&value.pretty())).collect::<Vec<_>>().join(" ")
}

/// A word of a command line, quoted where a shell would need it.
pub(crate) fn word(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// The arguments of a tool: names and values, and what changes a file as a difference.
fn input(value: Json<'_>, parts: &mut Vec<Part>) {
    let Some(members) = value.members() else {
        parts.push(part("", "code", value.pretty()));
        return;
    };
    let first = parts.len();
    let is_write = value.at("operation").and_then(Json::text).is_some_and(|operation| operation == "write_file");
    let (mut plain, mut removed, mut added) = (Vec::new(), None, None);
    for (name, value) in members {
        match (&*name, value.text()) {
            ("old", Some(text)) => removed = Some(text),
            ("new", Some(text)) => added = Some(text),
            ("content", Some(text)) if is_write => added = Some(text),
            ("patch" | "diff", Some(text)) => parts.push(unified(&text)),
            ("argv", None) => parts.push(part("", "command", command(value))),
            (_, Some(text)) if !text.contains('\n') => plain.push(format!("{name}: {text}")),
            (_, Some(text)) => parts.push(part(name.into_owned(), "code", text.into_owned())),
            (_, None) => plain.push(format!("{name}: {}", value.pretty())),
        }
    }
    if !plain.is_empty() {
        parts.insert(first, part("", "code", plain.join("\n")));
    }
    if removed.is_some() || added.is_some() {
        let (removed, added) = (removed.unwrap_or_default(), added.unwrap_or_default());
        let (old, new): (Vec<&str>, Vec<&str>) = (removed.lines().collect(), added.lines().collect());
        let rows = TextDiff::from_slices(&old, &new).iter_all_changes().map(row).collect();
        parts.push(difference(rows));
    }
}

/// A line of a difference, with the sign of its change.
fn row(change: Change<&str>) -> (char, String) {
    let sign = match change.tag() {
        ChangeTag::Delete => '-',
        ChangeTag::Insert => '+',
        ChangeTag::Equal => ' ',
    };
    (sign, change.value().to_owned())
}

fn unified(text: &str) -> Part {
    let first = text.lines().position(|line| line.starts_with('@')).unwrap_or(0);
    let is_name = |at: usize, line: &str| at < first && (line.starts_with("--- ") || line.starts_with("+++ "));
    let row = |(at, line): (usize, &str)| match line.chars().next() {
        Some(sign @ ('+' | '-' | '@')) if !is_name(at, line) => (sign, line[1..].to_owned()),
        _ => (' ', line.strip_prefix(' ').unwrap_or(line).to_owned()),
    };
    difference(text.lines().enumerate().map(row).collect())
}

fn difference(rows: Vec<(char, String)>) -> Part {
    Part { folded: rows.len() > 2 * LINES, rows, ..part("", "difference", String::new()) }
}

/// A value of a line that is shown whole.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Part {
    /// The label, if the form does not make it clear.
    pub(crate) label: Cow<'static, str>,
    /// `text`, `code`, `command` or `difference`.
    pub(crate) form: &'static str,
    /// True if it is folded until the reader opens it.
    pub(crate) folded: bool,
    /// The text; of a difference, none.
    pub(crate) text: String,
    /// The lines of a difference, each with what became of it before it: `+`, `-`, `@` or a space.
    pub(crate) rows: Vec<(char, String)>,
}

/// How one event is shown. `{x}` in a title is the member `x` of the data. The script of a page has the same table.
#[derive(Serialize)]
pub(crate) struct Row {
    pub(super) event: &'static str,
    pub(super) group: &'static str,
    pub(super) title: &'static str,
    pub(super) facts: &'static str,
    pub(super) parts: &'static [(&'static str, Form)],
}

/// How a member is shown.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Form {
    /// A text, or a list of blocks.
    Content,
    /// The output of a tool.
    Output,
    /// A command line.
    Command,
    /// The arguments of a tool, changes of files as differences.
    Input,
    /// A unified difference.
    Difference,
    /// A refused action: a command line, or a tool and its arguments.
    Asked,
    /// Any value, folded.
    Value,
}

use Form::{Asked, Command, Content, Difference, Input, Output, Value};

macro_rules! rows {
    ($($event:literal $group:ident $title:literal [$($facts:literal)?] $($path:literal as $form:ident),*;)*) => {
        &[$(Row {
            event: $event, group: stringify!($group), title: $title, facts: concat!($($facts)?), parts: &[$(($path, $form)),*],
        }),*]
    };
}

/// The events that are known. The first row is that of all others.
#[rustfmt::skip]
pub(crate) const ROWS: &[Row] = rows! {
    "" other "{event}" [""] "message" as Content, "content" as Content, "data" as Value;
    "run_start" session "The run begins" ["base name messages limits.max_iterations limits.tokens limits.usd limits.deadline"] "content" as Content, "data.tools" as Value, "data.model_command" as Command;
    "run_resumed" session "The run goes on" ["limits.max_iterations limits.tokens limits.usd limits.deadline"];
    "run_paused" session "The run pauses: {code}" ["tally.iterations tally.tool_calls"] "message" as Content;
    "run_end" session "The run ends: {status}" ["tally.iterations tally.tool_calls tally.tool_errors tally.usage.input_tokens tally.usage.output_tokens tally.usage.cost_usd"];
    "iteration" session "Turn {turn} begins" [""];
    "llm.request" model "The model is asked: {model}" ["batch prompt_id endpoint attempt messages tools bytes stream"];
    "llm.response" model "The model answers: {model}" ["batch endpoint attempt code status duration_ms first_token_ms stop_reason usage.input_tokens usage.output_tokens usage.cache_read_tokens usage.cost_usd"] "message" as Content, "content" as Content;
    "llm.batch" model "A batch at the provider" ["code"] "message" as Content, "data.job" as Value;
    "message" message "{role}" ["model endpoint stop_reason usage.input_tokens usage.output_tokens usage.cost_usd"] "content" as Content;
    "tool_call" tool "Call of {name}" ["id"] "data.input" as Input;
    "tool_result" tool "Result of {name}" ["id exit_code duration_ms"] "content" as Output;
    "mcp.server" tool "A server of tools" [""] "data.server" as Value;
    "mcp.session" session "A client speaks the Model Context Protocol" ["client.name client.version protocol host_session"];
    "mcp.pinned" tool "The tools of {server} are kept" [""] "data.tools" as Value;
    "mcp.call" tool "The client calls {tool}" ["call client.name server input_hash"];
    "mcp.result" tool "Result of {tool}" ["call outcome is_error duration_ms output.bytes"];
    "mcp.refused" tool "Refused: {rule}" ["call tool server"] "message" as Content;
    "exec.intent" command "A command starts" ["tool rule risk profile network cwd timeout_ms confirmed"] "data.argv" as Command, "data.line" as Command;
    "exec.step" command "Starts {exe.path}: {decision}" ["by rule reason approval cwd"] "data.argv_as_asked" as Command;
    "exec.connection" command "Connection to {name}: {decision}" ["rule port address bytes_in bytes_out count error"];
    "exec.expanded" command "The words of part {part}" [""] "data.argv" as Command;
    "exec.part" command "Part {part} ends: exit {return_code}" ["signal ended duration_ms stdout.bytes stderr.bytes enforcement.profile enforcement.network"] "data.argv" as Command, "data.enforcement" as Value;
    "exec.result" command "The command ends: exit {return_code}" ["signal ended duration_ms stdout.bytes stderr.bytes steps.line steps.programs steps.unrecorded steps.denied enforcement.profile enforcement.network"] "data.enforcement" as Value;
    "exec.refused" command "Refused: {rule}" ["code rule"] "message" as Content, "data.asked" as Asked;
    "exec.evidence" command "What the command may touch" [""] "data" as Value;
    "exec.changes" command "Files created: {created}, changed: {changed}, removed: {removed}" ["truncated not_kept"] "data.files" as Value;
    "exec.operation" command "{operation}" ["what.call"] "data.what" as Value;
    "host.session" session "{host}: {moment}" ["host_session cwd"];
    "host.intent" tool "{host} asks about {tool}: {decision}" ["host_call rule cwd"] "data.command" as Command, "data.paths" as Value, "data.input" as Input;
    "host.result" tool "{host} has the result of {tool}" ["host_call failed output.bytes"] "data.secrets" as Value, "data.content" as Output;
    "hook.install" program "The hook of {host} is installed" ["file sha256"];
    "hook.remove" program "The hook of {host} is removed" ["file"];
    "mcp.install" program "The server is put into {host}" ["file after"];
    "mcp.remove" program "The server is taken out of {host}" ["file"];
    "undone" command "Undone" ["call"] "data" as Value;
    "policy.init" command "A policy is made" ["file sha256"];
    "approval.asked" person "Approval is asked for" ["id approval.action approval.level approval.shown.rule approval.shown.risk approval.shown.cwd approval.expires_at"] "message" as Content, "data.approval.shown.argv" as Command, "data.approval.shown.line" as Command, "data.approval.shown.input" as Input, "data.approval.shown.diff" as Difference;
    "approval.granted" person "Approved by {by}" ["id how scope uid"];
    "approval.denied" person "Denied by {by}" ["id uid"] "message" as Content;
    "approval.spent" person "The approval of {by} is used" ["id how scope"];
    "session_start" session "The session begins" ["agent mode tier name cwd"];
    "session_end" session "The session ends" [""] "message" as Content;
    "session_resumed" session "The session goes on" [""];
    "session_name" session "The session is called {name}" [""];
    "session_turn" session "A turn is complete" ["risk cancelled dry_run redactions"];
    "session_question" message "A question" [""] "content" as Content;
    "session_compact" session "The history is made shorter" [""] "content" as Content, "data" as Value;
    "session_clear" session "The history is cleared" [""];
    "agent_turn" model "A turn of {agent}" ["command_form verdict code duration_ms"] "data.command" as Content, "data" as Value;
    "memory" message "A memory" ["kind"] "message" as Content;
    "command" program "{program} {verb}" ["exit code duration_ms origin"] "data.argv" as Command;
    "error" program "{program} {verb} fails" ["exit code duration_ms origin"] "message" as Content, "data.argv" as Command;
    "log" other "A note" [""] "message" as Content, "content" as Content, "data" as Value;
    "ledger.open" ledger "The ledger begins" ["origin verifier"];
    "ledger.checkpoint" ledger "A checkpoint is signed" ["size root verifier next"];
    "ledger.recovered" ledger "The ledger was repaired" ["offset len sha256 file"];
    "segment.seal" ledger "A file of the ledger is closed" ["count first last"];
    "segment.open" ledger "A file of the ledger begins" ["file len sha256 origin"];
};
