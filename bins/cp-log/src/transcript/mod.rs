//! Transcripts of other coding agents: the tool calls that a host itself recorded. No reader keeps more than a line,
//! but that of opencode, whose transcript is one document.

mod claude;
mod codex;
mod copilot;
mod gemini;
mod opencode;

use std::path::{Path, PathBuf};

use cp_common::{Error, Result, signals};
use cp_hosts::Host;
use cp_ledger::format::line::Hash;
use cp_ledger::read::End;
use cp_ledger::read::source::lines_of;
use serde_json::{Map, Value};

/// The members of a JSON object.
pub(crate) type Members = Map<String, Value>;

/// A tool call as the hook of the host describes it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Call {
    /// The id that pairs the call with its result in the transcript.
    pub(crate) id: String,
    /// The session in which the hook of the host reports the call.
    pub(crate) session: String,
    pub(crate) tool: String,
    pub(crate) input: Members,
    /// The working directory, against which the host resolves relative paths of the input.
    pub(crate) cwd: Option<PathBuf>,
    /// The time of the call, if the transcript has it.
    pub(crate) ts: Option<String>,
    /// The place in the transcript, such as `line 3`.
    pub(crate) place: String,
    /// True if the hook of the host receives this id.
    pub(crate) has_id: bool,
}

/// The end of a tool call according to the transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The host reports success.
    Succeeded,
    /// The tool failed, or was denied.
    Failed,
    /// The host rejected the call before its hook, for example because it has no such tool.
    Rejected,
}

/// The result of a tool call.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    /// The id of the call.
    pub(crate) id: String,
    pub(crate) session: String,
    pub(crate) status: Status,
    /// The hash of the result as the hook of the host receives it, if the transcript has the same bytes.
    pub(crate) hash: Option<String>,
}

/// A part of a transcript.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    Call(Call),
    Outcome(Outcome),
}

/// Decodes the lines of one transcript.
trait LineReader {
    /// Decodes a line; its calls and results are appended to `items`.
    fn line(&mut self, bytes: &[u8], place: &str, items: &mut Vec<Item>) -> serde_json::Result<()>;
}

/// The files of a transcript: the file, and those that Claude Code writes for the subagents of the session.
pub(crate) fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let mut files = vec![path.to_owned()];
    let subagents = path.with_extension("").join("subagents");
    if path.extension().is_some_and(|end| end == "jsonl") && subagents.is_dir() {
        let listing = |e| Error::io("listing the transcripts of subagents", e).in_file(&subagents);
        for entry in std::fs::read_dir(&subagents).map_err(listing)? {
            let path = entry.map_err(listing)?.path();
            if path.extension().is_some_and(|end| end == "jsonl") {
                files.push(path);
            }
        }
        files[1..].sort();
    }
    Ok(files)
}

/// Reads a transcript, whose host is detected from its first line. Returns the number of a last line that is not whole, because the host was
/// writing it or was killed.
pub(crate) fn read(path: &Path, each: &mut dyn FnMut(Host, Item) -> Result<()>) -> Result<Option<u64>> {
    let mut lines = lines_of(path)?;
    let Some((host, mut reader)) = reader_of(lines.peek()?) else {
        if lines.peek()?.first() == Some(&b'{') {
            let text = std::fs::read(path).map_err(|e| Error::io("the transcript", e).in_file(path))?;
            if serde_json::from_slice::<serde::de::IgnoredAny>(&text).is_ok() {
                return opencode::read(path, &text, &mut |item| each(Host::Opencode, item)).map(|()| None);
            }
        }
        return Err(Error::validation("not a transcript of a known agent").in_file(path).hint(TRANSCRIPTS));
    };
    let (mut items, mut torn) = (Vec::new(), None);
    while let Some(raw) = lines.next()? {
        if raw.bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let damaged = |why: &str| Err(Error::validation(format!("line {}: {why}", raw.number)).in_file(path));
        match (reader.line(raw.bytes, &format!("line {}", raw.number), &mut items), raw.end) {
            (_, End::Limit) => return damaged("the line is too long"),
            (Err(_), End::File) => torn = Some(raw.number),
            (Err(e), End::LineFeed) => return damaged(&format!("not a line of {}: {e}", host.name())),
            (Ok(()), _) => items.drain(..).try_for_each(|item| each(host, item))?,
        }
        if raw.number % 256 == 0 {
            signals::check()?;
        }
    }
    Ok(torn)
}

/// The host that writes such a first line, and the reader of its transcripts.
fn reader_of(first: &[u8]) -> Option<(Host, Box<dyn LineReader>)> {
    let members: Members = serde_json::from_slice(first).ok()?;
    let has = |name: &str| members.contains_key(name);
    match members.get("type").and_then(Value::as_str) {
        Some("session_meta") => Some((Host::Codex, Box::<codex::Reader>::default())),
        Some("session.start") => Some((Host::Copilot, Box::<copilot::Reader>::default())),
        Some(_) if ["sessionId", "uuid", "leafUuid"].into_iter().any(has) => {
            Some((Host::Claude, Box::new(claude::Reader)))
        }
        None if has("sessionId") && has("projectHash") => Some((Host::Gemini, Box::<gemini::Reader>::default())),
        _ => None,
    }
}

/// The places of the transcripts.
const TRANSCRIPTS: &str = "projects/*/*.jsonl of Claude Code, sessions/**/rollout-*.jsonl of Codex, session-state/*/events.jsonl of Copilot, \
                           tmp/*/chats/*.jsonl of Gemini CLI, or the output of `opencode export SESSION`";

/// The input of a call with the command that the model wrote, if the hook replaced it by this line: `cp-exec ... -c 'COMMAND'`.
fn with_original_command(mut input: Members) -> Members {
    let original = |line: &str| {
        // Words of the command itself come before, and only the last word is a quoted word to the end.
        let splits = line.match_indices(" -c '").map(|(at, mark)| (&line[..at], &line[at + mark.len()..]));
        let words =
            splits.filter(|(ours, _)| ours.contains(" --hosted ")).filter_map(|(_, word)| word.strip_suffix('\''));
        let mut words = words.map(|word| word.replace(r"'\''", "\0"));
        words.find(|word| !word.contains('\'')).map(|word| word.replace('\0', "'"))
    };
    if let Some(command) = input.get_mut("command")
        && let Some(text) = command.as_str().and_then(original)
    {
        *command = text.into();
    }
    input
}

/// The hash that entries have of the value of a hook: of a text, else of its JSON.
pub(crate) fn hash_of(value: &Value) -> String {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Hash::of(text.as_bytes()).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calls of a recorded transcript: the host, the tool, the first line of the command, and the status.
    fn calls(file: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/transcripts").join(file);
        let mut calls: Vec<(String, Option<String>, String)> = Vec::new();
        read(&path, &mut |host, item| {
            match item {
                // A transcript may repeat its history.
                Item::Call(call) if calls.iter().any(|(id, ts, _)| (id, ts) == (&call.id, &call.ts)) => {}
                Item::Call(call) => {
                    let command = call.input.get("command").and_then(Value::as_str).unwrap_or_default();
                    let first = command.lines().next().unwrap_or_default();
                    calls.push((call.id, call.ts, format!("{} {} [{first}]", host.name(), call.tool)));
                }
                Item::Outcome(outcome) => {
                    let (.., text) = calls.iter_mut().rev().find(|(id, ..)| *id == outcome.id).expect("a call");
                    if text.ends_with(']') {
                        *text = format!("{text} {:?}", outcome.status);
                    }
                }
            }
            Ok(())
        })
        .unwrap();
        calls.into_iter().map(|(.., text)| text + "\n").collect()
    }

    #[test]
    fn recorded_transcript_has_each_call_with_its_command_and_status() {
        let files = ["claude.jsonl", "codex.jsonl", "copilot.jsonl", "gemini.jsonl", "opencode.json"];
        assert_eq!(files.map(calls).concat(), include_str!("../../tests/data/transcripts/calls.txt"));
    }

    #[test]
    fn replaced_command_is_the_one_that_the_model_wrote() {
        let original = |line: &str| with_original_command(Members::from_iter([("command".to_owned(), line.into())]));
        let replaced = r"/b/cp-exec --hosted gemini/s/c -c 'echo '\''a'\'' -c '\''b'\'''";
        assert_eq!(original(replaced)["command"], "echo 'a' -c 'b'");
        assert_eq!(original("sh -c 'id'")["command"], "sh -c 'id'");
    }
}
