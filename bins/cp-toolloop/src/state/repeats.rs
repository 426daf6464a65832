//! Detects that the model repeats a failing call without change.
//!
//! Only failures count, because a successful call may be repeated to wait for a change. A failed call may also be
//! repeated after another call, which may have removed the cause.

use cp_common::json;
use cp_common::wire::{ToolCall, ToolResult};
use cp_ledger::format::line::Hash;

/// The failed call that was made last, and how many times in a row.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats {
    last: Option<Hash>,
    times: u64,
}

impl Repeats {
    /// Counts a call and its result. Returns a warning for the model if the same call failed with the same exit status
    /// before; its output may differ in a time or the name of a file.
    pub(crate) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> Option<String> {
        let mut arguments = Vec::new();
        if json::normalize(call.input.get().as_bytes(), &mut arguments).is_err() {
            arguments = call.input.get().as_bytes().to_vec();
        }
        let head = format!("{}\n{:?}\n", call.name, result.exit_code);
        let failure = result.is_error.then(|| Hash::of(&[head.as_bytes(), &arguments].concat()));
        if failure.is_none() || failure != self.last {
            *self = Self { last: failure, times: 1 };
            return None;
        }
        self.times += 1;
        Some(format!(
            "\n\n[This same call was made {} times in a row and failed each time. Do something else.]",
            self.times
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn call(input: &str) -> ToolCall {
        let input = RawValue::from_string(input.to_owned()).unwrap();
        ToolCall { id: "1".into(), name: "t".into(), input, timeout: None, untrusted: Vec::new() }
    }

    fn result(content: &str, exit_code: i32) -> ToolResult {
        ToolResult {
            content: content.into(),
            is_error: exit_code != 0,
            exit_code: Some(exit_code),
            ..ToolResult::default()
        }
    }

    #[test]
    fn repeated_failure_is_detected_and_other_calls_are_not() {
        let mut repeats = Repeats::default();
        let (one, two) = (call(r#"{"a":1}"#), call(r#"{"a":2}"#));
        assert!(repeats.note(&one, &result("no", 1)).is_none());
        assert!(repeats.note(&two, &result("no", 1)).is_none());
        assert!(repeats.note(&one, &result("no", 1)).is_none(), "another call was between them");
        assert!(repeats.note(&call(r#"{ "a": 1 }"#), &result("no", 1)).unwrap().contains("2 times in a row"));
        assert!(repeats.note(&one, &result("no, at 12:01", 1)).unwrap().contains("3 times in a row"));
        assert!(repeats.note(&one, &result("no", 2)).is_none(), "another exit status");
        for _ in 0..5 {
            assert!(repeats.note(&one, &result("yes", 0)).is_none());
        }
        assert!(repeats.note(&one, &result("no", 2)).is_none(), "a good answer was between them");
    }
}
