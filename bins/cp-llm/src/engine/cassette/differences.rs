//! Where a recorded request and another one differ.

use serde_json::{Map, Value, json};

/// How many differences are described.
const DIFFERENCES: usize = 5;

/// Where a recorded request and another one differ.
#[derive(Default)]
pub(super) struct Differences {
    pub count: usize,
    /// The first few, described.
    pub first: Vec<Value>,
}

impl Differences {
    pub(super) fn between(recorded: &Value, asked: &Value) -> Self {
        let mut differences = Self::default();
        differences.add("", recorded, asked);
        differences
    }

    fn add(&mut self, path: &str, recorded: &Value, asked: &Value) {
        match (recorded, asked) {
            (Value::Object(a), Value::Object(b)) => {
                for name in a.keys().chain(b.keys().filter(|name| !a.contains_key(*name))) {
                    let member = |map: &Map<String, Value>| map.get(name).cloned().unwrap_or_default();
                    self.add(&format!("{path}/{name}"), &member(a), &member(b));
                }
            }
            (Value::Array(a), Value::Array(b)) => {
                for n in 0..a.len().max(b.len()) {
                    let element = |list: &[Value]| list.get(n).cloned().unwrap_or_default();
                    self.add(&format!("{path}/{n}"), &element(a), &element(b));
                }
            }
            (a, b) if a == b => {}
            (a, b) => {
                self.count += 1;
                if self.first.len() < DIFFERENCES {
                    self.first.push(json!({"path": path, "recorded": short(a), "asked": short(b)}));
                }
            }
        }
    }
}

fn short(value: &Value) -> Value {
    match value {
        Value::String(text) if text.chars().count() > 80 => {
            Value::from(text.chars().take(80).collect::<String>() + "…")
        }
        Value::Object(_) | Value::Array(_) => short(&Value::from(value.to_string())),
        other => other.clone(),
    }
}
