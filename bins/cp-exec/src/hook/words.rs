//! Encodes answers in the format of each host.

use serde_json::{Map, Value, json};

use super::Host;

/// The decision about a tool call.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// The host applies its own rules.
    Pass,
    /// The tool runs with this input.
    Rewrite(Map<String, Value>),
    /// The tool runs with this input if the user agrees.
    Ask(Map<String, Value>, String),
    /// The host stops, and asks again when its session is resumed.
    Defer(String),
    /// The tool does not run.
    Deny(String),
}

impl Verdict {
    /// The name of the decision on the ledger.
    pub(crate) const fn name(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Rewrite(_) => "rewrite",
            Self::Ask(..) => "ask",
            Self::Defer(_) => "defer",
            Self::Deny(_) => "deny",
        }
    }
}

/// The line that the host reads from standard output; empty if it expects none. For a denial the exit status is also
/// 2, with a message on standard error, which all hosts accept as a denial.
pub(crate) fn response(host: Host, verdict: &Verdict) -> String {
    let words = match host {
        Host::Claude | Host::Codex => match verdict {
            Verdict::Pass => return String::new(),
            Verdict::Rewrite(input) => permission("allow", "cp-exec runs it in its sandbox", Some(input)),
            // Only Claude Code receives this.
            Verdict::Ask(input, why) => permission("ask", why, Some(input)),
            Verdict::Defer(why) => permission("defer", why, None),
            Verdict::Deny(why) => permission("deny", why, None),
        },
        Host::Gemini => match verdict {
            Verdict::Pass => return String::new(),
            Verdict::Rewrite(input) => {
                json!({ "hookSpecificOutput": { "hookEventName": "BeforeTool", "tool_input": input } })
            }
            Verdict::Ask(_, why) | Verdict::Defer(why) | Verdict::Deny(why) => {
                json!({ "decision": "deny", "reason": why })
            }
        },
        Host::Copilot => match verdict {
            Verdict::Pass => return String::new(),
            Verdict::Rewrite(input) => json!({ "permissionDecision": "allow", "modifiedArgs": input }),
            Verdict::Ask(_, why) | Verdict::Defer(why) | Verdict::Deny(why) => {
                json!({ "permissionDecision": "deny", "permissionDecisionReason": why })
            }
        },
        // Our plugin for opencode accepts only an explicit `allow`.
        Host::Opencode => match verdict {
            Verdict::Pass => json!({ "decision": "allow" }),
            Verdict::Rewrite(input) => json!({ "decision": "allow", "args": input }),
            Verdict::Ask(_, why) | Verdict::Defer(why) | Verdict::Deny(why) => {
                json!({ "decision": "deny", "reason": why })
            }
        },
    };
    format!("{words}\n")
}

/// The message to the user after a tool ran; empty if only standard error is shown to the user.
pub(crate) fn report_text(host: Host, report: &str) -> String {
    match host {
        Host::Claude | Host::Codex | Host::Gemini => format!("{}\n", json!({ "systemMessage": report })),
        Host::Copilot | Host::Opencode => String::new(),
    }
}

fn permission(decision: &str, why: &str, input: Option<&Map<String, Value>>) -> Value {
    let mut words = json!({
        "hookEventName": "PreToolUse",
        "permissionDecision": decision,
        "permissionDecisionReason": why,
    });
    if let Some(input) = input {
        words["updatedInput"] = Value::Object(input.clone());
    }
    json!({ "hookSpecificOutput": words })
}
