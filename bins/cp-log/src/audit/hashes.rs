//! The hashes of commands, results and payloads, each by the one formula of cp-ledger(5).

use cp_common::Result;
use cp_ledger::format::canonical::{hash_normal, hash_value};
use cp_ledger::format::claims::{ExecResult, Form, command_hash, exec_command, exec_result};
use cp_ledger::format::line::Hash;
use serde_json::Value;

use super::claim::{Claims, Entry, Verdict};

/// Judges the hashes that an entry can prove by itself.
pub(super) fn judge(entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
    match entry.event.as_str() {
        "agent_turn" => {
            let computed = || {
                let form = serde_json::from_value::<Form>(entry.data.get("command_form")?.clone()).ok()?;
                Some(command_hash(form, entry.text("command")?))
            };
            command(entry, computed, claims)
        }
        "llm.response" => response(entry, claims),
        "exec.intent" => command(entry, || exec(entry), claims),
        "exec.result" => ended(entry, claims),
        "WO_APPLIED" => {
            let (Some(claimed), Some(payload)) = (entry.text("payload_hash"), entry.data.get("payload")) else {
                return Ok(());
            };
            let verdict = match hash_value(payload) {
                computed if computed != claimed && entry.is_redacted() => taken_out(),
                computed => Verdict::same(&computed, claimed),
            };
            claims.record(entry.source(), "payload_hash", verdict)
        }
        _ => Ok(()),
    }
}

/// The hash of a response. It is over the text of the answer if the model is a program; otherwise over bytes that only the caller got.
fn response(entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
    let (Some(claimed), Some(text)) = (entry.text("response_hash"), entry.content.as_str()) else { return Ok(()) };
    let is_text = claimed == Hash::of(text.as_bytes()).to_string();
    if is_text || entry.text("backend") == Some("stub") && !entry.is_redacted() || Hash::parse(claimed).is_none() {
        let verdict = Verdict::when(is_text, || "it is not the hash of the text".to_owned());
        return claims.record(entry.source(), "response_hash", verdict);
    }
    Ok(())
}

fn taken_out() -> Verdict {
    Verdict::Unknown("a secret was taken out of what it is over".to_owned())
}

fn command(entry: &Entry<'_>, computed: impl FnOnce() -> Option<String>, claims: &mut Claims<'_>) -> Result<()> {
    if entry.text("command_hmac").is_some() {
        return claims.record(entry.source(), "command_hmac", taken_out());
    }
    let verdict = match (entry.text("command_hash"), computed()) {
        (Some(claimed), Some(computed)) => Verdict::same(&computed, claimed),
        (None, _) if entry.is_redacted() => taken_out(),
        (None, _) => Verdict::Broken("there is no hash".to_owned()),
        (Some(_), None) => Verdict::Broken("the command that it is over is not there".to_owned()),
    };
    claims.record(entry.source(), "command_hash", verdict)
}

/// The result of a command.
fn ended(entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
    let Some(claimed) = entry.text("result_hash") else { return Ok(()) };
    let verdict = result(entry).map_or_else(
        || Verdict::Broken("the members that it is over are not there".to_owned()),
        |computed| Verdict::same(&computed, claimed),
    );
    claims.record(entry.source(), "result_hash", verdict)
}

fn exec(entry: &Entry<'_>) -> Option<String> {
    let names: Vec<&String> = entry.data.get("env")?.as_object()?.keys().collect();
    let argv = entry.data.get("argv")?.as_array()?;
    let argv: Vec<&str> = argv.iter().map(Value::as_str).collect::<Option<_>>()?;
    Some(hash_normal(&exec_command(&argv, entry.text("cwd")?, &names)))
}

fn result(entry: &Entry<'_>) -> Option<String> {
    let stream = |name: &str| entry.data.get(name)?.get("sha256")?.as_str();
    let number = |name: &str| entry.data.get(name)?.as_i64().and_then(|number| i32::try_from(number).ok());
    Some(exec_result(&ExecResult {
        return_code: number("return_code"),
        signal: number("signal"),
        stdout: stream("stdout")?,
        stderr: stream("stderr")?,
    }))
}
