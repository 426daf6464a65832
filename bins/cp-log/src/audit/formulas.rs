//! The hashes of commands, results, payloads and requests for approval, each by the one formula of cp-ledger(5).

use cp_common::Result;
use cp_common::program::approval::id_of;
use cp_ledger::format::canonical::{hash_normal, hash_value};
use cp_ledger::format::claims::{ExecResult, Form, command_hash, exec_command, exec_result};
use cp_ledger::format::line::Hash;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::claims::{Claims, Verdict};
use super::entry::Entry;

/// A hash that was computed again.
enum Over {
    Hash(String),
    /// What it is over is not in the entry.
    Missing,
    /// It is over bytes that only the caller got, or a secret was taken out of them.
    Unseen,
}

impl From<Option<String>> for Over {
    fn from(computed: Option<String>) -> Self {
        computed.map_or(Self::Missing, Self::Hash)
    }
}

/// An event, the member of its data that has the hash, the claim, and the formula.
type Formula = (&'static str, &'static str, &'static str, fn(&Entry) -> Over);

const FORMULAS: [Formula; 6] = [
    ("agent_turn", "command_hash", "command_hash", turn),
    ("exec.intent", "command_hash", "command_hash", |entry| command(entry).into()),
    ("exec.result", "result_hash", "result_hash", |entry| result(entry).into()),
    ("llm.response", "response_hash", "response_hash", response),
    ("WO_APPLIED", "payload_hash", "payload_hash", payload),
    ("approval.asked", "id", "approval", |entry| member(entry, "approval").and_then(|found| id_of(&found).ok()).into()),
];

/// Judges the hash that an entry proves by itself.
pub(super) fn judge(entry: &Entry, claims: &mut Claims<'_>) -> Result<()> {
    for (_, member, claim, formula) in FORMULAS.iter().filter(|(event, ..)| *event == entry.event) {
        let is_taken_out = entry.text("command_hmac").is_some() || entry.is_redacted();
        let verdict = match (entry.text(member), formula(entry)) {
            (_, Over::Unseen) => continue,
            (Some(claimed), Over::Hash(computed)) if computed == claimed => Verdict::Holds,
            (Some(claimed), Over::Hash(computed)) => {
                Verdict::Broken(format!("the hash is {claimed}, and what it is over has {computed}"))
            }
            (Some(_), Over::Missing) => Verdict::Broken("what its hash is over is not in the line".to_owned()),
            (None, _) if *member != "command_hash" => continue,
            (None, _) if is_taken_out => Verdict::Unknown("a secret was taken out of what the hash is over".to_owned()),
            (None, _) => Verdict::Broken("the command has no hash".to_owned()),
        };
        claims.record(entry.place, claim, verdict)?;
    }
    Ok(())
}

fn member<T: DeserializeOwned>(entry: &Entry, name: &str) -> Option<T> {
    serde_json::from_value(entry.at(&format!("data/{name}"))?.clone()).ok()
}

fn turn(entry: &Entry) -> Over {
    let form: Option<Form> = member(entry, "command_form");
    form.zip(entry.text("command")).map(|(form, command)| command_hash(form, command)).into()
}

fn command(entry: &Entry) -> Option<String> {
    let names: Vec<&String> = entry.at("data/env")?.as_object()?.keys().collect();
    let argv: Vec<&str> = entry.at("data/argv")?.as_array()?.iter().map(Value::as_str).collect::<Option<_>>()?;
    Some(hash_normal(&exec_command(&argv, entry.text("cwd")?, &names)))
}

fn result(entry: &Entry) -> Option<String> {
    let stream = |name: &str| entry.at(&format!("data/{name}/sha256"))?.as_str();
    let (stdout, stderr) = (stream("stdout")?, stream("stderr")?);
    let (return_code, signal) = (member(entry, "return_code"), member(entry, "signal"));
    Some(exec_result(&ExecResult { return_code, signal, stdout, stderr }))
}

/// It is over the text of the answer if the model is a program.
fn response(entry: &Entry) -> Over {
    let Some(text) = entry.at("content").and_then(Value::as_str) else { return Over::Unseen };
    let (computed, claimed) = (Hash::of(text.as_bytes()).to_string(), entry.text("response_hash").unwrap_or_default());
    let is_of_program = entry.text("backend") == Some("stub") && !entry.is_redacted();
    if computed == claimed || is_of_program || Hash::parse(claimed).is_none() {
        Over::Hash(computed)
    } else {
        Over::Unseen
    }
}

fn payload(entry: &Entry) -> Over {
    match entry.at("data/payload") {
        Some(payload) if !entry.is_redacted() => Over::Hash(hash_value(payload)),
        _ => Over::Unseen,
    }
}
