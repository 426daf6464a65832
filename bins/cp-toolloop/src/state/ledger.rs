//! What the ledger of a run knows: its start, and what became of its calls.

use std::collections::HashSet;
use std::path::Path;

use cp_common::wire::{Receipt, quoted};
use cp_common::{Code, Error, Result};
use cp_ledger::blob;
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::read::{self, newest};
use serde::Deserialize;
use serde_json::Value;

use crate::state::plan::RunFiles;

/// True if the ledger has such an event after the entry `known`.
pub(crate) fn has_since(ledger: &Path, known: u64, event: &str) -> Result<bool> {
    let find = |line: &Line<'_>| (line.seq() <= known).then_some(false).or(line.is_event(event).then_some(true));
    Ok(newest(ledger, find)?.unwrap_or_default())
}

/// True if a receipt is of an answer that cp-llm wrote to the ledger after the entry `known`.
pub(crate) fn is_answer_since(ledger: &Path, known: u64, receipt: &Receipt) -> Result<bool> {
    let is_it = |line: &Line<'_>| line.hash().to_string() == receipt.hash && line.is_event("llm.response");
    let find = |line: &Line<'_>| (line.seq() <= receipt.seq).then(|| line.seq() > known && is_it(line));
    Ok(newest(ledger, find)?.unwrap_or_default())
}

/// The start of a run in its ledger: its time and its data. A killed process may have written only the state.
pub(crate) fn start_of(ledger: &Path) -> Result<Option<(String, Value)>> {
    if !ledger.exists() {
        return Ok(None);
    }
    let mut lines = read::lines(ledger)?;
    while let Some(raw) = lines.next()? {
        if let Some(line) = raw.stored().filter(|line| line.is_event("run_start")) {
            return Ok(Some((line.ts().to_owned(), data_of(&line))));
        }
    }
    Ok(None)
}

/// The data of an entry, or the default for data of another form.
pub(crate) fn data_of<T: Default + serde::de::DeserializeOwned>(line: &Line<'_>) -> T {
    serde_json::from_slice(line.member("data").unwrap_or_default()).unwrap_or_default()
}

/// A value of an entry, which may be stored as a blob.
pub(crate) fn whole(ledger: &Path, value: &Value) -> Result<Value> {
    let stored = blob::resolve(ledger, value.to_string().as_bytes())?;
    Ok(stored.and_then(|stored| serde_json::from_slice(&stored).ok()).unwrap_or_else(|| value.clone()))
}

/// Refuses the state of a run whose ledger has steps after `known`, the newest entry of the state: an earlier state was
/// restored, and a resume would repeat later steps. A power failure may lose at most one step that is on the ledger.
pub(crate) fn refuse_earlier(files: &RunFiles, known: u64, is_noted: impl Fn(&str) -> bool) -> Result<()> {
    let (mut after, mut steps) = (false, 0_u64);
    let newer = newest(&files.ledger, |line| {
        let is_newer = if line.seq() <= known {
            return Some(false);
        } else if line.is_event("message") || line.is_event("tool_result") {
            steps += 1;
            after || steps > 1
        } else if line.is_event("tool_call") {
            !data_of::<Value>(line)["id"].as_str().is_some_and(&is_noted)
        } else {
            after |= line.member("event").is_some_and(|event| event.starts_with(b"\"exec."));
            false
        };
        is_newer.then_some(true)
    })?;
    if newer != Some(true) {
        return Ok(());
    }
    let message = format!("the run's state is older than its ledger, which has more of it after entry {known}");
    let run = &files.run;
    let hint = format!("`cp-toolloop show {run}` lists the steps, `cp-toolloop cancel {run}` ends the run");
    Err(Error::new(Code::Integrity, message).in_file(&files.state()).hint(hint))
}

/// The outcome of a call that has no result.
pub(crate) enum Found {
    /// The call did not start.
    NotBegun,
    /// The call may have had its effect.
    Unknown,
    /// The command has ended.
    Ended(Box<Ended>, Receipt),
}

/// The end of a command.
#[derive(Debug, Deserialize)]
pub(crate) struct Ended {
    pub(crate) return_code: Option<i32>,
    signal: Option<i32>,
    /// Why the command was killed.
    #[serde(rename = "ended")]
    cut: Option<String>,
    #[serde(default)]
    stdout: Stream,
    #[serde(default)]
    stderr: Stream,
}

#[derive(Debug, Default, Deserialize)]
struct Stream {
    bytes: u64,
    /// The hash of the blob with the text of the stream.
    blob: Option<String>,
}

impl Stream {
    /// The text of the stream, if it is stored.
    fn kept(&self, ledger: &Path) -> Option<String> {
        let kept = blob::load(ledger, &Hash::parse(self.blob.as_deref()?)?).ok()?;
        Some(String::from_utf8_lossy(&kept).into_owned())
    }
}

impl Ended {
    /// The text for the model.
    pub(crate) fn text(&self, ledger: &Path) -> String {
        let end = match (self.return_code, self.signal) {
            (Some(code), _) => format!("ended with exit status {code}"),
            (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
        };
        let streams = [("output", &self.stdout), ("error", &self.stderr)].map(|(name, stream)| {
            match (stream.bytes, stream.kept(ledger)) {
                (0, _) => String::new(),
                (_, Some(text)) => format!("\nIts standard {name}: {text}"),
                (bytes, None) => format!("\nIts standard {name} is not kept: {bytes} bytes"),
            }
        });
        format!("The command {end} while the run was stopped. It is not run again.{}", streams.concat())
    }
}

/// Searches a call from the end of the ledger back to the answer that made it.
pub(crate) fn find_call_end(ledger: &Path, call: &str) -> Result<Found> {
    let found = newest(ledger, |line| {
        if is_answer(line) {
            return Some(Found::NotBegun);
        }
        let about: Value = data_of(line);
        let is_about = about["call"] == call;
        if is_about && line.is_event("exec.result") {
            let ended = serde_json::from_slice::<Ended>(line.member("data").unwrap_or_default()).ok();
            let whole = ended.filter(|end| end.cut.is_none() && (end.return_code.is_some() || end.signal.is_some()));
            let origin = || origin_of(ledger).ok().flatten();
            let receipt = || Receipt::new(ledger, origin(), line.seq(), line.hash().to_string());
            return Some(whole.map_or(Found::Unknown, |ended| Found::Ended(Box::new(ended), receipt())));
        }
        let began = ["exec.intent", "approval.spent"].iter().any(|event| line.is_event(event));
        if is_about && began || line.is_event("tool_call") && about["id"] == call {
            return Some(Found::Unknown);
        }
        (is_about && line.is_event("approval.asked")).then_some(Found::NotBegun)
    })?;
    Ok(found.unwrap_or(Found::NotBegun))
}

/// True for an answer of the model, from cp-llm or from another program.
fn is_answer(line: &Line<'_>) -> bool {
    line.is_event("llm.response") || line.is_event("message")
}

/// The programs that the newest command line of a call started, in order, without programs that were refused or wait
/// for approval.
pub(crate) fn started_programs(ledger: &Path, call: &str) -> Result<Vec<String>> {
    let (mut intent, mut spent, mut programs) = (None, HashSet::new(), Vec::new());
    newest(ledger, |line| {
        if is_answer(line) || intent == Some(line.seq()) {
            return Some(());
        }
        let step: Value = data_of(line);
        let is_of_line = || intent.is_some() && step["intent"].as_u64() == intent && step["by"] == "line";
        if line.is_event("exec.result") && intent.is_none() && step["call"] == call {
            intent = step["intent"].as_u64();
        } else if line.is_event("approval.spent") {
            spent.insert(step["id"].clone());
        } else if line.is_event("exec.step")
            && is_of_line()
            && (step["decision"] == "allow" || spent.contains(&step["approval"]))
        {
            let words = step["argv_as_asked"].as_array().into_iter().flatten().filter_map(Value::as_str);
            programs.push(words.map(quoted).collect::<Vec<_>>().join(" "));
        }
        None
    })?;
    programs.reverse();
    Ok(programs)
}
