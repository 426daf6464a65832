//! What is wrong with the answer of a backend that is a program: all of it at once, so that its author need not ask again and again.

use cp_common::wire::record::{Kind, SCHEMA_VERSION};
use cp_common::wire::schemas::MESSAGE;
use cp_schema::Schema;
use serde_json::Value;

/// More faults than this help nobody.
const MOST: usize = 20;

/// What is wrong with a line that should be a `message` record; nothing where it is one.
pub(crate) fn of_line(line: &[u8]) -> Vec<String> {
    let record: Value = match serde_json::from_slice(line) {
        Ok(record) => record,
        Err(e) => return vec![format!("the line is not JSON: {e}")],
    };
    if !record.is_object() {
        return vec!["the line is not a JSON object".to_owned()];
    }
    let mut faults = Vec::new();
    if record["ok"] != true {
        faults.push("`ok` must be true".to_owned());
    }
    if record["schema_version"] != SCHEMA_VERSION {
        faults.push(format!("`schema_version` must be \"{SCHEMA_VERSION}\""));
    }
    if record["type"] != Kind::Message.name() {
        faults.push(format!("`type` must be \"{}\"", Kind::Message.name()));
    }
    match record.get("data") {
        Some(data) => faults.extend(of_message(data)),
        None => faults.push("`data`, the message, is missing".to_owned()),
    }
    faults
}

/// What is wrong with the data of a message.
fn of_message(data: &Value) -> Vec<String> {
    let schema = serde_json::from_str(MESSAGE.1).map_err(|e| e.to_string()).and_then(Schema::compile);
    match schema {
        Ok(schema) => {
            let faults = schema.faults(data, MOST).into_iter();
            faults.map(|fault| format!("data{}: {}", fault.pointer, fault.message)).collect()
        }
        Err(why) => vec![why],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"{"ok":true,"schema_version":"1.0","type":"message","data":{"id":"1","role":"assistant","content":"hi","model":"m","backend":"b","stop_reason":"end_turn","usage":{}}}"#;

    #[test]
    fn a_message_has_no_faults_and_each_that_it_lacks_is_named() {
        assert!(of_line(WHOLE.as_bytes()).is_empty(), "{:?}", of_line(WHOLE.as_bytes()));
        let faults = of_line(br#"{"ok":true,"data":{"content":"hi"}}"#).join("; ");
        for name in ["schema_version", "type", "id", "role", "model", "backend", "stop_reason", "usage"] {
            assert!(faults.contains(name), "{name}: {faults}");
        }
        assert!(!faults.contains("`ok`"), "{faults}");
    }
}
