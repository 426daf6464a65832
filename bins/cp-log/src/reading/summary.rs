//! One line for a person about an entry: what ran, what was refused, what it cost.

use cp_common::wire::quoted;
use serde_json::Value;

/// The events, and the parts of their lines. In a part `{a|b}` is the first member of the data that the entry has, as a
/// path; a part whose member is not there is left out.
const EVENTS: [(&str, &[&str]); 27] = [
    ("approval.asked", &["{approval/shown/line|approval/shown/argv|approval/shown/path}", " as {id}"]),
    ("approval.denied", &["{id}"]),
    ("approval.granted", &["{id}", " by {by/how}"]),
    ("approval.spent", &["{id}"]),
    ("command", &["{argv}", ", exit {exit}"]),
    ("error", &["{argv}", ", exit {exit}", ", {code}"]),
    ("exec.changes", &["{operation}: ", "{created} created, ", "{changed} changed, ", "{removed} removed"]),
    ("exec.connection", &["{name|host|address}", ": {decision}"]),
    ("exec.intent", &["{line|argv}"]),
    ("exec.operation", &["{operation}", " {what/path}"]),
    ("exec.refused", &["{asked/0|tool}", " ({rule})"]),
    ("exec.result", &["{return_code|ended|code}", ", signal {signal}", ", {duration_ms} ms"]),
    ("exec.step", &["{decision} ", "{argv_as_asked|exe/path}", " ({rule})"]),
    ("ledger.checkpoint", &["{size} entries", ", key {key}"]),
    ("ledger.open", &["{origin}"]),
    ("llm.batch", &["{job|job_id}", " {status}"]),
    ("llm.request", &["{model}"]),
    (
        "llm.response",
        &["{model}", ", {code}", ", {usage/input_tokens} in", ", {usage/output_tokens} out", ", ${usage/cost_usd}"],
    ),
    ("mcp.call", &["{server}", " {tool}", " {arguments}"]),
    ("mcp.result", &["{server}", " {tool}", ", error {is_error}"]),
    ("policy.allow", &["{kind}", " {value}", " in {project}"]),
    ("policy.init", &["{project|file}"]),
    ("run_end", &["{status}"]),
    ("run_paused", &["{reason}", " {id}"]),
    ("run_start", &["{model}"]),
    ("tool_call", &["{name}", " {input/command|input/argv|input/path|input}"]),
    ("tool_result", &["{name}", ", error {is_error}"]),
];

/// The longest member that is shown whole, in characters.
const LONGEST: usize = 160;

/// The line about an event with this data. None if the event is not in the table or has none of the members.
pub(super) fn of(event: &str, data: &Value) -> Option<String> {
    let (_, parts) = EVENTS.iter().find(|(name, _)| *name == event)?;
    let line: String = parts.iter().filter_map(|part| filled(part, data)).collect();
    (!line.is_empty()).then_some(line)
}

fn filled(part: &str, data: &Value) -> Option<String> {
    let (before, rest) = part.split_once('{')?;
    let (paths, after) = rest.split_once('}')?;
    let value = paths.split('|').find_map(|path| data.pointer(&format!("/{path}")).filter(|value| !value.is_null()))?;
    (value != &Value::Bool(false)).then(|| format!("{before}{}{after}", shortened(&shown(value))))
}

/// The beginning of a text, in one line.
pub(super) fn shortened(text: &str) -> String {
    let beginning = text.trim_end().chars().take(LONGEST);
    let line: String = beginning.map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    if line.len() < text.trim_end().len() { line + "…" } else { line }
}

/// A text, the words of a command, or JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(words) if words.iter().all(Value::is_string) => {
            let words: Vec<String> = words.iter().filter_map(Value::as_str).map(quoted).collect();
            words.join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn line_says_what_ran_what_was_refused_and_what_it_cost() {
        let usage = json!({"input_tokens": 8, "output_tokens": 3, "cost_usd": 0.0002});
        for (event, data, line) in [
            ("exec.intent", json!({"line": null, "argv": ["git", "push", "a b"]}), "git push 'a b'"),
            ("exec.intent", json!({"line": "make | tail", "argv": ["bash"]}), "make | tail"),
            ("exec.intent", json!({"line": "a\nb"}), "a b"),
            ("exec.result", json!({"return_code": 0, "signal": null, "duration_ms": 134}), "0, 134 ms"),
            ("exec.result", json!({"return_code": null, "ended": "timed_out", "signal": 9}), "timed_out, signal 9"),
            ("exec.refused", json!({"asked": [["rm", "-rf", "/"]], "rule": "destroy.root"}), "rm -rf / (destroy.root)"),
            ("llm.response", json!({"model": "gpt-4o", "usage": usage}), "gpt-4o, 8 in, 3 out, $0.0002"),
            ("tool_result", json!({"name": "bash", "is_error": false}), "bash"),
        ] {
            assert_eq!(of(event, &data).as_deref(), Some(line), "{event} {data}");
        }
        assert_eq!(of("exec.intent", &json!({})), None);
        assert_eq!(of("note", &json!({"line": "x"})), None);
        assert!(EVENTS.is_sorted());
    }
}
