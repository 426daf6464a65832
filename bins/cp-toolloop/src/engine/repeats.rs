//! Notices when the model calls the same tool with the same arguments again, and gets the same answer again.

use std::collections::HashMap;

use cp_common::json;
use cp_common::wire::{ToolCall, ToolResult};
use cp_ledger::format::line::Hash;

use crate::state::step::Step;

/// The calls of a run, and what came of them.
#[derive(Default)]
pub(crate) struct Repeats {
    seen: HashMap<Hash, Seen>,
}

struct Seen {
    answer: Hash,
    times: u64,
}

/// How the warning begins that is put after an answer.
const WARNING: &str = "\n\n[This same call was made ";

impl Repeats {
    /// What a run that goes on has seen before.
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

    /// Counts a call and its answer. Returns a warning for the model if it goes round in circles.
    pub(crate) fn note(&mut self, call: &ToolCall, result: &ToolResult) -> Option<String> {
        let mut arguments = Vec::new();
        if json::normalize(call.input.get().as_bytes(), &mut arguments).is_err() {
            arguments = call.input.get().as_bytes().to_vec();
        }
        let key = Hash::of(&[call.name.as_bytes(), b"\n", &arguments].concat());
        let answer = Hash::of(&[&[u8::from(result.is_error)], result.content.as_bytes()].concat());
        let seen = self.seen.entry(key).or_insert(Seen { answer, times: 0 });
        if seen.answer != answer {
            *seen = Seen { answer, times: 0 };
        }
        seen.times += 1;
        // Looking twice at something that works is not a circle yet.
        let enough = if result.is_error { 2 } else { 3 };
        (seen.times >= enough).then(|| {
            format!(
                "{WARNING}{} times and gave the same {} each time. Do something else.]",
                seen.times,
                if result.is_error { "error" } else { "answer" }
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;

    fn call(input: &str) -> ToolCall {
        let input = RawValue::from_string(input.to_owned()).unwrap();
        ToolCall { id: "1".into(), name: "t".into(), input, untrusted: Vec::new() }
    }

    fn result(content: &str, is_error: bool) -> ToolResult {
        ToolResult {
            id: "1".into(),
            name: "t".into(),
            content: content.into(),
            is_error,
            exit_code: None,
            duration_ms: 0,
            receipt: None,
            untrusted: Vec::new(),
        }
    }

    #[test]
    fn the_second_same_failure_is_told_and_a_new_answer_starts_over() {
        let mut repeats = Repeats::default();
        assert!(repeats.note(&call(r#"{"a":1}"#), &result("no", true)).is_none());
        assert!(repeats.note(&call(r#"{"a":2}"#), &result("no", true)).is_none());
        assert!(repeats.note(&call(r#"{ "a": 1 }"#), &result("no", true)).unwrap().contains("2 times"));
        assert!(repeats.note(&call(r#"{"a":1}"#), &result("yes", false)).is_none());
        assert!(repeats.note(&call(r#"{"a":1}"#), &result("yes", false)).is_none());
        assert!(repeats.note(&call(r#"{"a":1}"#), &result("yes", false)).is_some());
    }
}
