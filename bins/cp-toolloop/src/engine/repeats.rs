//! Detects that the model repeats a failing call without change.
//!
//! Only failures count, because a successful call may be repeated to wait for a change. A failed call may also be repeated after another
//! call, which may have removed the cause.

use cp_common::json;
use cp_common::wire::{ToolCall, ToolResult};
use cp_ledger::format::line::Hash;

use crate::state::step::Step;

/// The common failure of the last calls, and their number.
#[derive(Default)]
pub(crate) struct Repeats {
    last: Option<Hash>,
    times: u64,
}

/// The beginning of the warning at the end of a result.
const WARNING: &str = "\n\n[This same call was made ";

impl Repeats {
    /// The state after the steps of a resumed run.
    pub(crate) fn of_steps(steps: &[Step]) -> Self {
        let (mut repeats, mut calls) = (Self::default(), &[][..]);
        for step in steps {
            match step {
                Step::Message(message) => calls = &message.tool_calls,
                Step::Finished(at, result) => {
                    let answered = result.content.split(WARNING).next().unwrap_or_default();
                    let result = ToolResult { content: answered.to_owned(), ..(**result).clone() };
                    if let Some(call) = calls.get(*at) {
                        repeats.note(call, &result);
                    }
                }
                _ => {}
            }
        }
        repeats
    }

    /// Counts a call and its result. Returns a warning for the model if it repeats a failing call.
    pub(crate) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> Option<String> {
        let mut arguments = Vec::new();
        if json::normalize(call.input.get().as_bytes(), &mut arguments).is_err() {
            arguments = call.input.get().as_bytes().to_vec();
        }
        let parts = [call.name.as_bytes(), b"\n", &arguments, b"\n", result.content.as_bytes()];
        let failure = result.is_error.then(|| Hash::of(&parts.concat()));
        if failure.is_none() || failure != self.last {
            *self = Self { last: failure, times: 1 };
            return None;
        }
        self.times += 1;
        Some(format!("{WARNING}{} times in a row and gave the same error each time. Do something else.]", self.times))
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

    fn result(content: &str, is_error: bool) -> ToolResult {
        ToolResult {
            id: "1".into(),
            name: "t".into(),
            content: content.into(),
            images: Vec::new(),
            is_error,
            exit_code: None,
            duration_ms: 0,
            receipt: None,
            untrusted: Vec::new(),
        }
    }

    #[test]
    fn repeated_failure_is_detected_and_other_calls_are_not() {
        let mut repeats = Repeats::default();
        let (one, two) = (call(r#"{"a":1}"#), call(r#"{"a":2}"#));
        assert!(repeats.note(&one, &result("no", true)).is_none());
        assert!(repeats.note(&two, &result("no", true)).is_none());
        assert!(repeats.note(&one, &result("no", true)).is_none(), "another call was between them");
        assert!(repeats.note(&call(r#"{ "a": 1 }"#), &result("no", true)).unwrap().contains("2 times in a row"));
        assert!(repeats.note(&one, &result("no", true)).unwrap().contains("3 times in a row"));
        assert!(repeats.note(&one, &result("another", true)).is_none(), "another failure");
        for _ in 0..5 {
            assert!(repeats.note(&one, &result("yes", false)).is_none());
        }
        assert!(repeats.note(&one, &result("another", true)).is_none(), "a good answer was between them");
    }
}
