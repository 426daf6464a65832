//! An entry that is judged, and the hashes that it proves by itself, each by the one formula of cp-ledger(5).

use std::borrow::Cow;
use std::path::Path;

use cp_common::program::approval::id_of;
use cp_common::{Result, json};
use cp_ledger::blob;
use cp_ledger::format::canonical::{ExecResult, command_hash, exec_command, exec_result, hash_normal, hash_value};
use cp_ledger::format::line::{Hash, Line, inside, members};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Claims, Place, Verdict};

/// An entry, with the large values that its hashes are over.
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) event: String,
    pub(super) hash: String,
    /// Its members that claims are about: `seq`, `run`, `turn`, `content` and `data`.
    value: Value,
}

impl Entry {
    pub(super) fn of(line: &Line<'_>, place: Place, ledger: &Path) -> Self {
        let event = line.member("event").and_then(json::unquote).unwrap_or_default();
        let member = |name: &str| line.member(name).unwrap_or_default();
        let data = whole(ledger, member("data"));
        let data: Map<String, Value> = members(inside(&data).unwrap_or_default())
            .map(|(name, value)| {
                let name = json::unquote(&[b"\"", name, b"\""].concat()).unwrap_or_default();
                (name, parsed(&whole(ledger, value)))
            })
            .collect();
        let content = if event == "llm.response" { parsed(&whole(ledger, member("content"))) } else { Value::Null };
        let (run, turn) = (parsed(member("run")), parsed(member("turn")));
        let value = json!({"seq": line.seq(), "run": run, "turn": turn, "content": content, "data": data});
        Self { place, event, hash: line.hash().to_string(), value }
    }

    /// The value of a member, by the names on the way to it: `data/intent`.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        self.value.pointer(&format!("/{path}")).filter(|value| !value.is_null())
    }

    /// A text of the data.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.value["data"].get(name).and_then(Value::as_str)
    }

    /// A member of the data with its type.
    pub(super) fn data<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        serde_json::from_value(self.value["data"].get(name)?.clone()).ok()
    }

    /// True if a secret was taken out of it.
    fn is_redacted(&self) -> bool {
        self.data("redactions").is_some_and(|count: u64| count > 0)
    }
}

fn parsed(raw: &[u8]) -> Value {
    serde_json::from_slice(raw).unwrap_or_default()
}

/// A value, or what the blob has that it stands for. A blob that is not there is judged by itself.
fn whole<'a>(ledger: &Path, value: &'a [u8]) -> Cow<'a, [u8]> {
    blob::resolve(ledger, value).ok().flatten().map_or(Cow::Borrowed(value), Cow::Owned)
}

/// An event, the member of its data that has the hash, the claim, and the formula; last whether what the hash is over
/// has to be in the entry, or may be bytes that only the caller got.
type Formula = (&'static str, &'static str, &'static str, fn(&Entry) -> Option<String>, bool);

const FORMULAS: [Formula; 6] = [
    ("agent_turn", "command_hash", "command_hash", turn, true),
    ("exec.intent", "command_hash", "command_hash", command, true),
    ("exec.result", "result_hash", "result_hash", result, true),
    ("llm.response", "response_hash", "response_hash", response, false),
    ("WO_APPLIED", "payload_hash", "payload_hash", payload, false),
    ("approval.asked", "id", "approval", |entry| id_of(&entry.data("approval")?).ok(), true),
];

/// Judges the hash that an entry proves by itself.
pub(super) fn judge(entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
    for (_, member, claim, formula, is_here) in FORMULAS.iter().filter(|(event, ..)| *event == entry.event) {
        let has_secret = entry.text("command_hmac").is_some() || entry.is_redacted();
        let verdict = match (entry.text(member), formula(entry)) {
            (Some(said), Some(hash)) if hash == said => Verdict::Holds,
            (Some(said), Some(hash)) => Verdict::Broken(format!("the hash is {said}, what it is over has {hash}")),
            (Some(_), None) if *is_here => Verdict::Broken("what its hash is over is not in the line".to_owned()),
            (None, _) if *member == "command_hash" && has_secret => {
                Verdict::Unknown("a secret was taken out of what the hash is over".to_owned())
            }
            (None, _) if *member == "command_hash" => Verdict::Broken("the command has no hash".to_owned()),
            _ => continue,
        };
        claims.record(entry.place, claim, verdict)?;
    }
    Ok(())
}

fn turn(entry: &Entry) -> Option<String> {
    Some(command_hash(entry.data("command_form")?, entry.text("command")?))
}

fn command(entry: &Entry) -> Option<String> {
    let names: Vec<&String> = entry.at("data/env")?.as_object()?.keys().collect();
    let argv: Vec<String> = entry.data("argv")?;
    Some(hash_normal(&exec_command(&argv, entry.text("cwd")?, &names)))
}

fn result(entry: &Entry) -> Option<String> {
    let stream = |name: &str| entry.at(&format!("data/{name}/sha256"))?.as_str();
    let (stdout, stderr) = (stream("stdout")?, stream("stderr")?);
    let (return_code, signal) = (entry.data("return_code"), entry.data("signal"));
    Some(exec_result(&ExecResult { return_code, signal, stdout, stderr }))
}

/// It is over the text of the answer if the model is a program.
fn response(entry: &Entry) -> Option<String> {
    let computed = Hash::of(entry.at("content")?.as_str()?.as_bytes()).to_string();
    let claimed = entry.text("response_hash").unwrap_or_default();
    let is_of_program = entry.text("backend") == Some("stub") && !entry.is_redacted();
    (computed == claimed || is_of_program || Hash::parse(claimed).is_none()).then_some(computed)
}

fn payload(entry: &Entry) -> Option<String> {
    entry.at("data/payload").filter(|_| !entry.is_redacted()).map(hash_value)
}
