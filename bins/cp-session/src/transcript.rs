//! Reading what a session holds. A line that is damaged or not ours hides nothing that comes after it; it is counted.

use std::path::Path;

use cp_common::wire::{Content, Turn};
use cp_common::{Code, Error, Result, json};
use cp_log::blob;
use cp_log::line::Line;
use cp_log::read::{self, End, Raw};
use serde::{Deserialize, Serialize};

/// The event of a turn: who spoke, and what.
pub(crate) const MESSAGE: &str = "message";
/// The event that starts a session.
pub(crate) const START: &str = "session_start";
/// The event that begins it again after its turns were archived.
pub(crate) const CLEAR: &str = "session_clear";
/// The event that ends one.
pub(crate) const END: &str = "session_end";
/// The event that closes a round: a question and its answer.
pub(crate) const TURN: &str = "session_turn";

/// How much of a session goes to the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) enum Mode {
    /// The whole history
    #[default]
    Persistent,
    /// Only the new prompt; the history stays on disk
    Isolated,
}

/// The `data` of the entry that starts a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Start {
    /// Who speaks in it.
    #[serde(default)]
    pub(crate) agent: String,
    /// The tier it lies in.
    #[serde(default)]
    pub(crate) tier: String,
    /// How much of it goes to the model.
    #[serde(default)]
    pub(crate) mode: Mode,
    /// Where it was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cwd: Option<String>,
    /// The session and the number of its turns that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forked_from: Option<Fork>,
}

/// Where a forked session comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Fork {
    /// The session.
    pub(crate) session_id: String,
    /// How many of its turns were taken over.
    pub(crate) turns: u64,
}

/// Turns as they were read, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The turns.
    pub(crate) list: Vec<Turn>,
    /// Whether there are older ones.
    pub(crate) has_more: bool,
    /// Lines that are no entries of ours.
    pub(crate) skipped: u64,
}

/// How a session was started, and when.
pub(crate) fn start_of(file: &Path) -> Result<(Start, String)> {
    let mut lines = read::lines(file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event(START) || line.is_event(CLEAR) {
            let data = line.member("data").unwrap_or(b"{}");
            let start = serde_json::from_slice(data)
                .map_err(|e| Error::new(Code::Integrity, format!("its start entry is wrong: {e}")).in_file(file))?;
            return Ok((start, line.ts().to_owned()));
        }
        if line.is_event(MESSAGE) {
            break;
        }
    }
    // A session whose start was lost still has its turns.
    Ok((Start::default(), String::new()))
}

/// The newest turns, at most `last` of them, read from the end.
pub(crate) fn newest(file: &Path, last: Option<usize>) -> Result<Turns> {
    let mut found = Turns::default();
    let mut lines = read::backward(file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = counted(raw, &mut found.skipped) else { continue };
        if line.is_event(MESSAGE) {
            if last.is_some_and(|last| found.list.len() >= last) {
                found.has_more = true;
                break;
            }
            found.list.push(turn_of(&line, file)?);
        }
    }
    found.list.reverse();
    Ok(found)
}

/// Calls `each` with every turn's line, oldest first. Gives the number of lines that are not ours.
pub(crate) fn each_turn(file: &Path, each: &mut dyn FnMut(&Line<'_>) -> Result<()>) -> Result<u64> {
    let mut skipped = 0;
    let mut lines = read::lines(file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = counted(raw, &mut skipped) else { continue };
        if line.is_event(MESSAGE) {
            each(&line)?;
        }
    }
    Ok(skipped)
}

/// How many turns there are.
pub(crate) fn count(file: &Path) -> Result<u64> {
    let mut turns = 0;
    each_turn(file, &mut |_| {
        turns += 1;
        Ok(())
    })?;
    Ok(turns)
}

/// The newest entry: its place and when it was stored.
pub(crate) fn tip(file: &Path) -> Result<Option<(u64, String)>> {
    let mut lines = read::backward(file)?;
    while let Some(raw) = lines.next()? {
        if let Some(line) = raw.stored() {
            return Ok(Some((line.seq(), line.ts().to_owned())));
        }
    }
    Ok(None)
}

/// The place and hash of the entry that ended the session, if it has ended. Only what may stand after it is passed over.
pub(crate) fn ended(file: &Path) -> Result<Option<(u64, String)>> {
    let mut lines = read::backward(file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event(END) {
            return Ok(Some((line.seq(), line.hash().to_string())));
        }
        if line.is_event(MESSAGE) || line.is_event(START) || line.is_event(CLEAR) {
            break;
        }
    }
    Ok(None)
}

/// Refuses a session that has ended.
pub(crate) fn must_be_open(file: &Path) -> Result<()> {
    match ended(file)? {
        None => Ok(()),
        Some((seq, _)) => Err(Error::new(Code::Conflict, "the session has ended")
            .in_file(file)
            .with("ended_at", seq)
            .hint("start a new one with cp-session start")
            .fatal()),
    }
}

fn counted<'a>(raw: Raw<'a>, skipped: &mut u64) -> Option<Line<'a>> {
    let line = raw.stored();
    // What has no line feed yet may still be on its way.
    if line.is_none() && raw.end != End::File && !raw.bytes.trim_ascii().is_empty() {
        *skipped += 1;
    }
    line
}

/// The turn of a line.
pub(crate) fn turn_of(line: &Line<'_>, file: &Path) -> Result<Turn> {
    let role = line.member("role").and_then(json::unquote).unwrap_or_default();
    let content = line.member("content").unwrap_or(b"\"\"");
    let whole = blob::resolve(file, content)?;
    let content: Content = serde_json::from_slice(whole.as_deref().unwrap_or(content))
        .map_err(|e| Error::new(Code::Integrity, format!("entry {}: {e}", line.seq())).in_file(file))?;
    Ok(Turn { role, content })
}
