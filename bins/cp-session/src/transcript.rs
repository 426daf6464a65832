//! Reading what a session holds. A line that is damaged or not an entry is counted, and hides nothing after it.

use std::path::{Path, PathBuf};

use cp_common::wire::{Block, Content, CwdName, Turn};
use cp_common::{Code, Error, Result, json};
use cp_ledger::blob;
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::proof::leaves::files_of;
use cp_ledger::read::{self, End, Raw};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The event of a turn: its role and content.
pub(crate) const MESSAGE: &str = "message";
/// The event that starts a session.
pub(crate) const START: &str = "session_start";
/// The event that says that its turns were archived.
pub(crate) const CLEAR: &str = "session_clear";
/// The event that ends one.
pub(crate) const END: &str = "session_end";
/// The event that opens one again.
pub(crate) const RESUMED: &str = "session_resumed";
/// The event of a compaction: its content stands for older turns.
pub(crate) const COMPACT: &str = "session_compact";
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
    #[serde(default)]
    pub(crate) agent: String,
    #[serde(default)]
    pub(crate) tier: String,
    /// How much of it goes to the model.
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(flatten)]
    pub(crate) cwd: Option<CwdName>,
    /// The session and the number of its turns that this one began with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) forked_from: Option<Fork>,
    /// The conversation of another program that it keeps the record of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) external: Option<External>,
}

/// A conversation of another program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct External {
    /// The program.
    pub(crate) host: String,
    /// The id of the conversation there.
    pub(crate) id: String,
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

/// A turn and the number of its entry; one that is not in the ledger has none.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    /// The number of the entry.
    pub(crate) seq: Option<u64>,
    pub(crate) turn: Turn,
}

/// Turns as they were read, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// The turns.
    pub(crate) list: Vec<Stored>,
    /// True if there are older ones.
    pub(crate) has_more: bool,
    /// Lines that are not entries.
    pub(crate) skipped: u64,
}

/// How a session was started, and when: in its first file, where its turns were archived.
pub(crate) fn start_of(file: &Path) -> Result<(Start, String)> {
    let mut lines = read::lines(files_of(file)?.first().map_or(file, PathBuf::as_path))?;
    while let Some(raw) = lines.next()? {
        let Some(line) = intact(&raw) else { continue };
        if line.is_event(START) {
            let data = line.member("data").unwrap_or(b"{}");
            let start = serde_json::from_slice(data)
                .map_err(|e| Error::new(Code::Integrity, format!("the start entry is not valid: {e}")).in_file(file))?;
            return Ok((start, line.ts().to_owned()));
        }
        if line.is_event(MESSAGE) {
            break;
        }
    }
    // A session whose start was lost still has its turns.
    Ok((Start::default(), String::new()))
}

/// The newest turns, at most `last` of them, read from the end. A call without a result is followed by one; turns that a
/// compaction covers are left out, and its summary takes their place as a round of its own.
pub(crate) fn newest(file: &Path, last: Option<usize>) -> Result<Turns> {
    let mut found = Turns::default();
    let mut covered: Option<(u64, Content)> = None;
    let mut lines = read::backward(file)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = counted(&raw, &mut found.skipped) else { continue };
        if line.is_event(COMPACT) && covered.is_none() {
            let through = line.member("data").and_then(|data| serde_json::from_slice::<Covered>(data).ok());
            covered = through
                .map(|through| turn_of(&line, file).map(|turn| (through.through_seq, turn.content)))
                .transpose()?;
        } else if line.is_event(MESSAGE) {
            if covered.as_ref().is_some_and(|(through, _)| line.seq() <= *through) {
                break;
            }
            if last.is_some_and(|last| found.list.len() >= last) {
                found.has_more = true;
                break;
            }
            let turn = turn_of(&line, file)?;
            let missing = missing_results(&turn, found.list.last());
            found.list.extend(missing.map(|turn| Stored { seq: None, turn }));
            found.list.push(Stored { seq: Some(line.seq()), turn });
        }
    }
    if let (Some((_, summary)), false) = (covered, found.has_more) {
        for (role, content) in [("assistant", summary), ("user", Content::Text(SUMMARY_REQUEST.to_owned()))] {
            if last.is_none_or(|last| found.list.len() < last) {
                found.list.push(Stored { seq: None, turn: Turn::of(role, content) });
            } else {
                found.has_more = true;
            }
        }
    }
    found.list.reverse();
    Ok(found)
}

/// The results of the calls that the next turn does not answer, because providers refuse a call without a result.
fn missing_results(turn: &Turn, next: Option<&Stored>) -> Option<Turn> {
    let Content::Blocks(blocks) = &turn.content else { return None };
    let answers = next.map(|next| next.turn.content.blocks()).unwrap_or_default();
    let is_answered =
        |id: &str| answers.iter().any(|block| block.view().is_ok_and(|it| it.tool_use_id.as_deref() == Some(id)));
    let missing = blocks.iter().filter_map(|block| {
        let id = block.view().ok().filter(|view| view.kind == "tool_use")?.id?;
        (!is_answered(&id)).then(|| Block::tool_result(&id, "no result: the call was interrupted", true))
    });
    let missing: Vec<Block> = missing.collect();
    (!missing.is_empty()).then(|| Turn::of("user", Content::Blocks(missing)))
}

/// The question that the summary of a compaction answers.
const SUMMARY_REQUEST: &str = "Summarise our conversation so far.";

#[derive(Deserialize)]
struct Covered {
    through_seq: u64,
}

/// Calls `each` with every line that is an entry, oldest first.
pub(crate) fn each_entry(file: &Path, each: &mut dyn FnMut(&Line<'_>) -> Result<()>) -> Result<()> {
    let mut lines = read::lines(file)?;
    while let Some(raw) = lines.next()? {
        if let Some(line) = intact(&raw) {
            each(&line)?;
        }
    }
    Ok(())
}

/// Calls `each` with every turn's line, oldest first.
pub(crate) fn each_turn(file: &Path, each: &mut dyn FnMut(&Line<'_>) -> Result<()>) -> Result<()> {
    each_entry(file, &mut |line| if line.is_event(MESSAGE) { each(line) } else { Ok(()) })
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

/// The newest entry: its number and when it was stored.
pub(crate) fn tip(file: &Path) -> Result<Option<(u64, String)>> {
    read::newest(file, |line| Some((line.seq(), line.ts().to_owned())))
}

/// The number and hash of the entry that ended the session, if it has ended. Entries that may follow an end are
/// skipped.
pub(crate) fn ended(file: &Path) -> Result<Option<(u64, Hash)>> {
    let ended = read::newest(file, |line| {
        let is_open = [MESSAGE, START, CLEAR, RESUMED].iter().any(|event| line.is_event(event));
        if line.is_event(END) { Some(Some((line.seq(), line.hash()))) } else { is_open.then_some(None) }
    })?;
    Ok(ended.flatten())
}

/// Refuses a session that has ended.
pub(crate) fn must_be_open(file: &Path) -> Result<()> {
    match ended(file)? {
        None => Ok(()),
        Some((seq, _)) => Err(Error::new(Code::Conflict, "the session has ended")
            .in_file(file)
            .with("ended_at", seq)
            .hint("open it again with cp-session reopen, or start a new one with cp-session start")
            .fatal()),
    }
}

/// The line as it was written; `None` if it was altered, too.
fn intact<'a>(raw: &Raw<'a>) -> Option<Line<'a>> {
    raw.stored().filter(Line::is_intact)
}

fn counted<'a>(raw: &Raw<'a>, skipped: &mut u64) -> Option<Line<'a>> {
    let line = intact(raw);
    // A line without a line feed may still be being written.
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
    Ok(Turn { role, content, blocks: blocks_of(line, file)? })
}

/// The blocks of an answer. A block from which a secret was redacted differs from the provider's and is marked so.
fn blocks_of(line: &Line<'_>, file: &Path) -> Result<Vec<Block>> {
    #[derive(Deserialize)]
    struct Data<'a> {
        #[serde(default, borrow)]
        blocks: Option<&'a RawValue>,
        #[serde(default)]
        redactions: u64,
    }
    let broken = |e| Error::new(Code::Integrity, format!("entry {}: {e}", line.seq())).in_file(file);
    let Some(data) = line.member("data").filter(|data| memchr::memmem::find(data, b"\"blocks\":").is_some()) else {
        return Ok(Vec::new());
    };
    let data: Data<'_> = serde_json::from_slice(data).map_err(broken)?;
    let Some(blocks) = data.blocks else { return Ok(Vec::new()) };
    let whole = blob::resolve(file, blocks.get().as_bytes())?;
    let blocks: Vec<Block> =
        serde_json::from_slice(whole.as_deref().unwrap_or(blocks.get().as_bytes())).map_err(broken)?;
    let is_changed = |block: &Block| data.redactions > 0 && block.raw().get().contains(cp_redact::MARK_START);
    Ok(blocks.into_iter().map(|block| if is_changed(&block) { block.redacted() } else { block }).collect())
}
