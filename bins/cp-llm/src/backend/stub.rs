//! The stub: a model without network and key that gives the same answers every time. It numbers its answers,
//! or takes them from a script.

use std::path::Path;
use std::time::Duration;

use cp_common::context::given::{self, text_of};
use cp_common::wire::{ToolCall, Usage};
use cp_common::{Code, Error, Result, keys};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Backend, Exchange};
use crate::pause;
use crate::wire_api::{Answer, OnText, Request, TextKind};

#[derive(Default)]
pub(crate) struct Stub {
    script: Vec<Line>,
}

/// A line of a script.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<ScriptedCall>,
    stop_reason: Option<String>,
    usage: Option<Usage>,
    #[serde(default)]
    delay_ms: u64,
    /// An error, as records have it.
    error: Option<Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScriptedCall {
    id: Option<String>,
    name: String,
    #[serde(default)]
    input: Option<Box<RawValue>>,
}

impl Backend for Stub {
    fn name(&self) -> &'static str {
        "stub"
    }

    fn is_metered(&self) -> bool {
        false
    }

    fn exchange(&self, request: &Request, _: &[u8], show: &mut OnText<'_>) -> Exchange {
        let answer = match self.answer(request) {
            Ok(answer) => answer,
            Err(error) => return Exchange::of(Err(error)),
        };
        let text = answer.content.text();
        let hash = Some(keys::hash(text.as_bytes()));
        let shown = if request.stream {
            text.split_inclusive(' ').try_for_each(|piece| show(TextKind::Answer, piece))
        } else {
            Ok(())
        };
        Exchange { hash, ..Exchange::of(shown.map(|()| answer)) }
    }

    fn models(&self) -> Result<Option<Vec<String>>> {
        Ok(Some(vec!["stub".to_owned()]))
    }
}

impl Stub {
    /// A stub that plays a script, and numbers its answers after the end of the script.
    pub(crate) fn with_script(file: &Path) -> Result<Self> {
        let text = given::bytes(file, 64 << 20).map_err(Error::fatal)?;
        let text = text_of(&text)?;
        let mut script = Vec::new();
        for (n, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let line: Line = serde_json::from_str(line)
                .map_err(|e| Error::config(e.to_string()).at_line(n as u64 + 1).in_file(file).fatal())?;
            let is_known = |error: &Value| error["code"].as_str().is_some_and(|code| Code::from_name(code).is_some());
            if let Some(error) = line.error.as_ref().filter(|error| !is_known(error)) {
                let unknown = format!("{} is not an error code", error["code"]);
                return Err(Error::config(unknown).at_line(n as u64 + 1).in_file(file).fatal());
            }
            script.push(line);
        }
        Ok(Self { script })
    }

    fn answer(&self, request: &Request) -> Result<Answer> {
        let turns = request.messages.iter().filter(|turn| turn.role == "assistant").count() as u64;
        let number = 1 + turns.max(request.position);
        let scripted = usize::try_from(number - 1).ok().and_then(|at| self.script.get(at));
        let line = scripted
            .cloned()
            .unwrap_or_else(|| Line { content: Some(format!("stub response {number}")), ..Line::default() });
        pause(Duration::from_millis(line.delay_ms))?;
        if let Some(error) = line.error {
            let error = Error::from_value(&error).with("origin", "upstream");
            let is_fatal = matches!(error.code(), Code::Auth | Code::Forbidden | Code::Config);
            return Err(if is_fatal { error.fatal() } else { error });
        }
        let text = line.content.unwrap_or_default();
        let usage = line.usage.unwrap_or_else(|| counted(request, &text));
        let calls = line.tool_calls.into_iter().enumerate().map(|(n, call)| ToolCall {
            id: call.id.unwrap_or_else(|| format!("call_{number}_{}", n + 1)),
            name: call.name,
            input: call.input.unwrap_or_else(|| RawValue::from_string("{}".to_owned()).unwrap_or_default()),
            ..ToolCall::default()
        });
        let mut answer = Answer {
            id: Some(format!("stub-{number}")),
            model: Some(request.model.clone()),
            calls: calls.collect(),
            usage: Some(usage),
            ..Answer::of_text(text)
        };
        let usual = if answer.is_empty() { "" } else { "end_turn" };
        answer.stop = line.stop_reason.unwrap_or_else(|| usual.to_owned());
        answer.checked()
    }
}

/// Counts a word as a token, which is enough to try out a budget.
fn counted(request: &Request, text: &str) -> Usage {
    let words = |text: &str| text.split_whitespace().count() as u64;
    let prompt_words = request.messages.iter().map(|turn| words(&turn.content.text()));
    Usage {
        input_tokens: words(&request.system) + prompt_words.sum::<u64>(),
        output_tokens: words(text),
        ..Usage::default()
    }
}
