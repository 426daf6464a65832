//! What the ledger of a run knows of a call that was started and has no result.

use std::collections::HashSet;
use std::path::Path;

use cp_common::Result;
use cp_common::wire::{Receipt, quoted};
use cp_ledger::format::line::Hash;
use cp_ledger::proof::leaves::origin_of;
use cp_ledger::read;
use cp_ledger::store::blob;
use serde::Deserialize;

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
    fn kept(&self, ledger: Option<&Path>) -> Option<String> {
        let kept = blob::load(ledger?, &Hash::parse(self.blob.as_deref()?)?).ok()?;
        Some(String::from_utf8_lossy(&kept).into_owned())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct About {
    id: Option<String>,
    call: Option<String>,
}

impl Ended {
    /// The text for the model.
    pub(crate) fn text(&self, ledger: Option<&Path>) -> String {
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

/// Searches a call from the end of the ledger back to the message that made it.
pub(crate) fn find_call_end(ledger: &Path, call: &str) -> Result<Found> {
    let mut lines = read::backward(ledger)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event("message") {
            break;
        }
        let data = line.member("data").unwrap_or_default();
        let about: About = serde_json::from_slice(data).unwrap_or_default();
        let is_about = about.call.as_deref() == Some(call);
        if is_about && line.is_event("exec.result") {
            let ended = serde_json::from_slice::<Ended>(data).ok();
            let whole = ended.filter(|end| end.cut.is_none() && (end.return_code.is_some() || end.signal.is_some()));
            let origin = origin_of(ledger).ok().flatten();
            let receipt = Receipt::new(ledger, origin, line.seq(), line.hash().to_string());
            return Ok(whole.map_or(Found::Unknown, |ended| Found::Ended(Box::new(ended), receipt)));
        }
        let began = ["exec.intent", "approval.spent"].iter().any(|event| line.is_event(event));
        if is_about && began || line.is_event("tool_call") && about.id.as_deref() == Some(call) {
            return Ok(Found::Unknown);
        }
        if is_about && line.is_event("approval.asked") {
            break;
        }
    }
    Ok(Found::NotBegun)
}

/// The calls of the last message that have a result in the ledger.
pub(crate) fn noted_results(ledger: &Path) -> Result<HashSet<String>> {
    let (mut noted, mut lines) = (HashSet::new(), read::backward(ledger)?);
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event("message") {
            break;
        }
        if line.is_event("tool_result") {
            let about: About = serde_json::from_slice(line.member("data").unwrap_or_default()).unwrap_or_default();
            noted.extend(about.id);
        }
    }
    Ok(noted)
}

/// The programs that the newest command line of a call started, in order, without programs that were refused or wait
/// for approval.
pub(crate) fn started_programs(ledger: &Path, call: &str) -> Result<Vec<String>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Step {
        call: Option<String>,
        id: Option<String>,
        intent: Option<u64>,
        by: String,
        argv_as_asked: Vec<String>,
        decision: String,
        approval: Option<String>,
    }
    let (mut intent, mut spent, mut programs) = (None, HashSet::new(), Vec::new());
    let mut lines = read::backward(ledger)?;
    while let Some(raw) = lines.next()? {
        let Some(line) = raw.stored() else { continue };
        if line.is_event("message") || intent == Some(line.seq()) {
            break;
        }
        let step: Step = serde_json::from_slice(line.member("data").unwrap_or_default()).unwrap_or_default();
        if line.is_event("exec.result") && intent.is_none() && step.call.as_deref() == Some(call) {
            intent = step.intent;
        } else if line.is_event("approval.spent") {
            spent.extend(step.id);
        } else if line.is_event("exec.step") && step.intent.is_some() && step.intent == intent && step.by == "line" {
            let is_approved = step.approval.is_some_and(|id| spent.contains(&id));
            if step.decision == "allow" || is_approved {
                programs.push(step.argv_as_asked.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" "));
            }
        }
    }
    programs.reverse();
    Ok(programs)
}
