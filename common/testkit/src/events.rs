//! The table of events: each line that a program writes in a test has the members of its event, with their types.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use serde_json::Value;

/// The members of each event. A member is a list of types; a `?` at its end says that it may be absent.
static TABLE: LazyLock<BTreeMap<String, BTreeMap<String, String>>> = LazyLock::new(|| {
    let events: BTreeMap<String, Value> =
        serde_json::from_str(include_str!("../../ledger/events.json")).expect("the table is JSON");
    let members = |event: Value| serde_json::from_value(event["members"].clone()).expect("members have types");
    events.into_iter().map(|(name, event)| (name, members(event))).collect()
});

/// The members of a line that belong to its event, besides those of `data`.
const OF_LINE: [&str; 4] = ["turn", "role", "content", "message"];

/// Larger files are not read.
const LARGEST: u64 = 16 << 20;

/// The first line in the ledgers of a directory that is not as the table says.
pub(crate) fn first_fault(directory: &Path) -> Option<String> {
    fs::read_dir(directory).into_iter().flatten().flatten().find_map(|entry| {
        let (path, metadata) = (entry.path(), entry.metadata().ok()?);
        if metadata.is_dir() {
            return first_fault(&path);
        }
        let is_read = metadata.is_file() && metadata.len() <= LARGEST;
        path.extension().filter(|extension| is_read && *extension == "jsonl")?;
        let bytes = fs::read(&path).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        let mut lines = text.lines().filter(|_| text.contains("\"event\":\"ledger.open\""));
        lines
            .find_map(|line| Some(format!("{}: {}: {line}", path.display(), fault(&serde_json::from_str(line).ok()?)?)))
    })
}

/// What is wrong with a line. An event that the table does not have is one of users, unless its name begins like one of
/// ours, as in `exec.` and `run_`.
fn fault(line: &Value) -> Option<String> {
    let event = line["event"].as_str()?;
    let beginning = |name: &str| name.find(['.', '_']).map(|end| name[..=end].to_owned());
    let Some(known) = TABLE.get(event) else {
        let is_ours = beginning(event).is_some_and(|ours| TABLE.keys().any(|name| name.starts_with(&ours)));
        return is_ours.then(|| format!("the table of events has no {event}"));
    };
    let empty = serde_json::Map::new();
    let data = line["data"].as_object().unwrap_or(&empty);
    let of_line = OF_LINE.into_iter().filter_map(|name| Some((name, line.get(name)?)));
    let of_data = data.iter().filter(|(name, _)| !OF_LINE.contains(&name.as_str()));
    let given: BTreeMap<&str, &Value> = of_line.chain(of_data.map(|(name, value)| (name.as_str(), value))).collect();
    let types = |name: &str| known.get(name).or_else(|| TABLE["*"].get(name));
    let other = data.keys().find(|name| OF_LINE.contains(&name.as_str()) || types(name).is_none());
    let other = other.map(String::as_str).or_else(|| given.keys().copied().find(|name| types(name).is_none()));
    if let Some(name) = other {
        return Some(format!("{event} has no member {name}"));
    }
    let absent = known.iter().find(|(name, types)| !types.ends_with('?') && !given.contains_key(name.as_str()));
    let wrong = given.into_iter().find_map(|(name, value)| {
        let types = types(name)?.trim_end_matches('?');
        let is_blob = value["blob"].is_string();
        (!is_blob && !types.split('|').any(|known| ["any", type_of(value)].contains(&known))).then_some((name, types))
    });
    let wrong = wrong.map(|(name, types)| format!("{name} of {event} is not {types}"));
    absent.map(|(name, _)| format!("{event} is without {name}")).or(wrong)
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault_of_each_kind_is_found() {
        let paused = |data: Value| json!({"event": "run_paused", "message": "m", "data": data});
        for (line, found) in [
            (paused(json!({"code": "c", "tally": {}})), None),
            (paused(json!({"code": "c", "tally": {}, "redactions": 1})), None),
            (paused(json!({"code": "c", "tally": {"blob": "sha256:0", "len": 1, "json": true}})), None),
            (json!({"event": "run_paused", "data": {"code": "c", "tally": {}}}), Some("is without message")),
            (paused(json!({"code": "c"})), Some("is without tally")),
            (paused(json!({"code": "c", "tally": {}, "more": 1})), Some("has no member more")),
            (paused(json!({"code": "c", "tally": {}, "message": "n"})), Some("has no member message")),
            (paused(json!({"code": null, "tally": {}})), Some("code of run_paused is not string")),
            (json!({"event": "run_over"}), Some("has no run_over")),
            (json!({"event": "deploy", "data": {"any": 1}}), None),
        ] {
            let fault = fault(&line);
            let is_expected = match (&fault, found) {
                (None, None) => true,
                (Some(fault), Some(found)) => fault.contains(found),
                _ => false,
            };
            assert!(is_expected, "{line}: {fault:?}");
        }
    }

    /// What the table says about an event is about members that it has, and events that there are.
    #[test]
    fn lines_pairs_and_causes_name_members_and_events_of_the_table() {
        let events: BTreeMap<String, Value> = serde_json::from_str(include_str!("../../ledger/events.json")).unwrap();
        let mut kinds = BTreeMap::<&str, Vec<bool>>::new();
        for (name, event) in &events {
            let members = &event["members"];
            let has = |path: &str| {
                let member = path.trim_start_matches("data/").split('/').next().unwrap();
                assert!(["seq", "run"].contains(&path) || members[member].is_string(), "{name} has no {path}");
            };
            let texts = |value: &Value| -> Vec<String> { serde_json::from_value(value.clone()).unwrap_or_default() };
            for part in texts(&event["line"]) {
                let paths = part.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("a member in {}").0;
                paths.split('|').for_each(has);
            }
            texts(&event["pair"]["by"]).iter().flat_map(|by| by.split('|')).for_each(has);
            kinds
                .entry(event["pair"]["of"].as_str().unwrap_or_default())
                .or_default()
                .extend(event["pair"]["start"].as_bool());
            for (member, cause) in event["because"].as_object().into_iter().flatten() {
                has(member);
                assert!(events.contains_key(cause.as_str().unwrap()), "{name} is because of {cause}");
            }
            assert!(event["what"].is_string(), "{name}");
            for (member, types) in members.as_object().unwrap() {
                for kind in types.as_str().unwrap().trim_end_matches('?').split('|') {
                    let kinds = ["null", "boolean", "number", "string", "array", "object", "any"];
                    assert!(kinds.contains(&kind), "{name}: {member} is {kind}");
                }
            }
        }
        for (kind, starts) in kinds.into_iter().filter(|(kind, _)| !kind.is_empty()) {
            assert!(starts.len() == 2 && starts[0] != starts[1], "{kind}: {starts:?}");
        }
    }

    #[test]
    fn place_panics_about_a_fault_unless_it_is_forged() {
        let wrong = |is_forged: bool| {
            let place = crate::Place::new();
            place.work.write("a/x.jsonl", "{\"event\":\"ledger.open\"}\n");
            if is_forged {
                place.forged();
            }
        };
        wrong(true);
        assert!(std::panic::catch_unwind(|| wrong(false)).is_err());
    }
}
