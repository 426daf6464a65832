//! The events that programs write, as their table has them, and the line for a person about an entry of each: what ran,
//! what was refused, what it cost.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use cp_common::wire::quoted;
use serde::Deserialize;
use serde_json::Value;

/// The table. A test of the workspace holds it against what the programs write.
pub(crate) static EVENTS: LazyLock<BTreeMap<String, Event>> =
    LazyLock::new(|| serde_json::from_str(cp_ledger::EVENTS).unwrap_or_default());

/// An event.
#[derive(Deserialize)]
pub(crate) struct Event {
    /// The parts of its line for a person. In a part `{a|b}` is the first member of the data that the entry has, as a
    /// path; a part one of whose members is not there is left out, and the first part without its separator.
    #[serde(default)]
    pub line: Vec<String>,
    pub pair: Option<Pair>,
}

/// What an event is the start or the end of.
#[derive(Deserialize)]
pub(crate) struct Pair {
    /// What it is, in words.
    pub of: String,
    /// True for the start.
    pub start: bool,
    /// The members that name it, as paths. Alternatives are separated by `|`.
    pub by: Vec<String>,
}

/// The longest member that is shown whole, in characters.
const LONGEST: usize = 160;

/// The line about an event with this data. None if the event is not in the table or has none of the members.
pub(crate) fn line_of(event: &str, data: &Value) -> Option<String> {
    let mut line = String::new();
    for part in &EVENTS.get(event)?.line {
        let part = if line.is_empty() { part.trim_start_matches([',', ':', ' ']) } else { part };
        line.extend(filled(part, data));
    }
    (!line.is_empty()).then_some(line)
}

fn filled(part: &str, data: &Value) -> Option<String> {
    let Some((before, rest)) = part.split_once('{') else { return Some(part.to_owned()) };
    let (paths, after) = rest.split_once('}')?;
    let value = paths.split('|').find_map(|path| data.pointer(&format!("/{path}")).filter(|value| !value.is_null()))?;
    let after = filled(after, data).filter(|_| value != &Value::Bool(false))?;
    Some(format!("{before}{}{after}", shortened(&shown(value))))
}

/// The beginning of a text, in one line.
pub(crate) fn shortened(text: &str) -> String {
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
            assert_eq!(line_of(event, &data).as_deref(), Some(line), "{event} {data}");
        }
        assert_eq!(line_of("exec.intent", &json!({})), None);
        assert_eq!(line_of("note", &json!({"line": "x"})), None);
    }

    /// Each event of the table with each of its members alone, each left out, and all of them.
    #[test]
    fn line_of_any_members_has_neither_placeholder_nor_leading_separator() {
        for (event, row) in EVENTS.iter() {
            let paths =
                row.line.iter().flat_map(|part| part.split('{').skip(1).filter_map(|rest| rest.split_once('}')));
            let paths: Vec<&str> = paths.filter_map(|(paths, _)| paths.split('|').next()).collect();
            let data_of = |chosen: &dyn Fn(usize) -> bool| {
                let mut data = json!({});
                for (_, path) in paths.iter().enumerate().filter(|(at, _)| chosen(*at)) {
                    let object = path.split('/').fold(&mut data, |object, name| &mut object[name]);
                    *object = path.to_uppercase().into();
                }
                data
            };
            let whole = line_of(event, &data_of(&|_| true)).unwrap_or_default();
            assert!(paths.iter().all(|path| whole.contains(&path.to_uppercase())), "{event}: {whole}");
            for at in 0..paths.len() {
                for data in [data_of(&|one| one == at), data_of(&|one| one != at), data_of(&|one| one >= at)] {
                    let line = line_of(event, &data).unwrap_or_default();
                    assert!(!line.contains(['{', '}']) && !line.starts_with([',', ':', ' ']), "{event} {data}: {line}");
                }
            }
        }
    }
}
