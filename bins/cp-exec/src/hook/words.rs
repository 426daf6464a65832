//! An answer in the words of each host.

use serde_json::{Map, Value, json};

use super::Host;

/// The decision about a tool that is about to run.
#[derive(Clone, Debug)]
pub(crate) enum Verdict {
    /// It goes on by the host's own rules.
    Pass,
    /// It runs with this input.
    Rewrite(Map<String, Value>),
    /// It runs with this input once the host's person says yes.
    Ask(Map<String, Value>, String),
    /// The host stops here, and asks again when its session is resumed.
    Defer(String),
    /// It does not run.
    Deny(String),
}

impl Verdict {
    /// Its name on the ledger.
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

/// The line that the host reads from our standard output; empty where it gets none. A denial is also exit status 2 with a text on
/// standard error, which all of them take for one.
pub(crate) fn words(host: Host, verdict: &Verdict) -> String {
    let words = match host {
        Host::Claude | Host::Codex => match verdict {
            Verdict::Pass => return String::new(),
            Verdict::Rewrite(input) => permission("allow", "cp-exec runs it in its sandbox", Some(input)),
            // Only Claude Code is ever asked this.
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
        // Our plugin there takes nothing but a clear yes for one.
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

/// The same for what its person should read after a tool ran; empty where only standard error reaches them.
pub(crate) fn reported(host: Host, report: &str) -> String {
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
