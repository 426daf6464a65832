//! Who decides about a call that requires approval: the approver program if one was named, else a person, later.

use std::process::Command;
use std::time::Duration;

use cp_common::coprocess::{self, Child, Grace};
use cp_common::wire::ToolCall;
use cp_common::{Code, Context, Error, Result};
use serde::{Deserialize, Serialize};

use crate::state::step::Decision;
use crate::tools::tool::Tool;

/// The most characters of an approver's reason that the model is given.
const LONGEST_REASON: usize = 1000;

/// Which calls require approval, and the program that gives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approver {
    /// The program, with its arguments; none: a person.
    argv: Option<Vec<String>>,
    policy: ToolsPolicy,
}

/// `[tools]` of the policy, as far as this program reads it. cp-exec reads the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ToolsPolicy {
    /// The tools that require approval; `*` stands for any run of characters.
    approve: Vec<String>,
}

#[derive(Serialize)]
struct Question<'a> {
    run_id: &'a str,
    call: &'a ToolCall,
    tool: &'a Tool,
}

impl Approver {
    /// The approver of a command line, with the policy of this home.
    pub(crate) fn new(command: Option<&str>, context: &Context) -> Result<Self> {
        let argv = command.map(coprocess::command_line).transpose().map_err(Error::fatal)?;
        Ok(Self { argv, policy: cp_policy::table(&context.home, "tools")? })
    }

    /// Whether a call of this tool requires approval.
    pub(crate) fn is_required_for(&self, tool: &Tool) -> bool {
        tool.hints.approve || self.policy.approve.iter().any(|pattern| matches(pattern, &tool.name))
    }

    /// The program's decision. `None`: there is no program.
    pub(crate) fn decide(&self, run: &str, call: &ToolCall, tool: &Tool) -> Result<Option<Decision>> {
        let Some((program, arguments)) = self.argv.as_ref().and_then(|argv| argv.split_first()) else {
            return Ok(None);
        };
        let mut question = serde_json::to_vec(&Question { run_id: run, call, tool })
            .map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        question.push(b'\n');
        let mut child = Child::start(Command::new(program).args(arguments), Grace::default())?;
        // One that decides without reading is free to.
        let _ = child.write(&question);
        child.close_input();
        let mut output = Vec::new();
        while child.read_some(&mut output, Duration::MAX)? != Some(0) {}
        if child.wait()?.success() {
            return Ok(Some(Decision::Approved));
        }
        let reason: String = String::from_utf8_lossy(&output).trim().chars().take(LONGEST_REASON).collect();
        Ok(Some(Decision::Denied(if reason.is_empty() { "the approver denied it".to_owned() } else { reason })))
    }
}

/// Whether a name fits a pattern, in which `*` stands for any run of characters.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name.strip_prefix(head).is_some_and(|tail| {
            (0..=tail.len()).filter(|at| tail.is_char_boundary(*at)).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn a_star_stands_for_anything() {
        assert!(matches("*", "x") && matches("de*y", "deploy") && matches("deploy", "deploy"));
        assert!(!matches("deploy", "deploy_all") && !matches("*_all", "deploy") && matches("a*b*c", "aXbYc"));
    }
}
