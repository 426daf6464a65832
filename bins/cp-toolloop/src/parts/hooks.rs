//! The programs that decide about calls: before and after each tool, and the approver.

use std::time::{Duration, Instant};

use cp_common::coprocess::{self, Said, question, reason};
use cp_common::program::approval::{self, Verdict};
use cp_common::wire::record::{Kind, Record, open_line};
use cp_common::wire::{Approval, Grant, How, ToolCall, ToolResult};
use cp_common::{Context, Error, Result};
use cp_servers::matches;
use serde::{Deserialize, Serialize};

use crate::state::plan::Plan;
use crate::state::step::Screened;
use crate::tools::tool::{Origin, Tool};

/// The time limit of each program.
const LIMIT: Duration = Duration::from_mins(1);

/// The before-tool and after-tool programs, with their arguments.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    before: Option<Vec<String>>,
    after: Option<Vec<String>>,
}

impl Hooks {
    /// The programs of a run.
    pub(crate) fn of(plan: &Plan) -> Result<Self> {
        let argv = |command: &Option<String>| {
            command.as_deref().map(coprocess::command_line).transpose().map_err(Error::fatal)
        };
        Ok(Self { before: argv(&plan.before_tool)?, after: argv(&plan.after_tool)? })
    }

    /// The decision of the before-tool program about a call; `None` without a program.
    pub(crate) fn before_tool(&self, call: &ToolCall, until: Option<Instant>) -> Result<Option<Screened>> {
        let Some(argv) = &self.before else { return Ok(None) };
        let asked = asked(argv, Kind::ToolCall, call, until)?;
        Ok(Some(match asked {
            Answer::Same => Screened::Passed,
            Answer::Refused(why) => Screened::Denied(why),
            Answer::Record(line) => match read::<ToolCall>(&line) {
                Some(changed) if changed.id == call.id && changed.name == call.name => Screened::Changed(changed.input),
                _ => {
                    Screened::Denied("the program before tools did not answer with the record of this call".to_owned())
                }
            },
        }))
    }

    /// The result as the after-tool program has changed it; `None` if it is unchanged.
    pub(crate) fn after_tool(&self, result: &ToolResult, until: Option<Instant>) -> Result<Option<ToolResult>> {
        let Some(argv) = &self.after else { return Ok(None) };
        let withheld = |why: String| {
            Some(ToolResult {
                content: format!("The result is withheld: {why}"),
                images: Vec::new(),
                is_error: true,
                ..result.clone()
            })
        };
        Ok(match asked(argv, Kind::ToolResult, result, until)? {
            Answer::Same => None,
            Answer::Refused(why) => withheld(why),
            Answer::Record(line) => match read::<ToolResult>(&line) {
                Some(ToolResult { id, content, images, is_error, .. }) if id == result.id => {
                    Some(ToolResult { content, images, is_error, ..result.clone() })
                }
                _ => withheld("the program after tools did not answer with the record of this result".to_owned()),
            },
        })
    }
}

enum Answer {
    Same,
    Record(Vec<u8>),
    Refused(String),
}

fn asked<T: Serialize>(argv: &[String], kind: Kind, data: &T, until: Option<Instant>) -> Result<Answer> {
    let limit = Instant::now() + LIMIT;
    let until = until.map_or(limit, |until| until.min(limit));
    Ok(match question(argv, &open_line(kind.name(), data)?, Some(until))? {
        Said::Answer(0, output) if output.trim_ascii().is_empty() => Answer::Same,
        Said::Answer(0, output) => Answer::Record(output.trim_ascii().to_vec()),
        Said::Answer(status, output) => {
            Answer::Refused(reason(&output).unwrap_or_else(|| format!("{} exited with {status}", argv[0])))
        }
        Said::Nothing(why) => Answer::Refused(format!("{} {why}", argv[0])),
    })
}

/// The data of a record, or the bare object.
fn read<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Option<T> {
    match Record::parse(line) {
        Ok(record) => record.read().ok(),
        Err(_) => serde_json::from_slice(line).ok(),
    }
}

/// Which calls require approval, and the program that gives it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Approver {
    /// The approver, with its arguments.
    argv: Option<Vec<String>>,
    policy: ToolsPolicy,
}

/// The part of `[tools]` in the policy that this program reads; cp-exec reads the rest.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct ToolsPolicy {
    /// The tools that require approval; `*` stands for any run of characters.
    approve: Vec<String>,
}

impl Approver {
    /// The approver of a command line, with the policy of this home.
    pub(crate) fn new(command: Option<&str>, context: &Context) -> Result<Self> {
        let argv = command.map(coprocess::command_line).transpose().map_err(Error::fatal)?;
        Ok(Self { argv, policy: cp_policy::table(&context.home, "tools")? })
    }

    /// The rule by which each call of a tool requires approval, and the reason; `None` if it requires no approval here. cp-exec itself
    /// requests approval for the tools that it runs.
    pub(crate) fn reason(&self, tool: &Tool) -> Option<(&'static str, String)> {
        if self.policy.approve.iter().any(|pattern| matches(pattern, &tool.name)) {
            let why = || format!("tools.approve of the policy lists `{}`", tool.name);
            return (!matches!(tool.origin, Origin::Executable { .. })).then(|| ("tools.approve", why()));
        }
        let why = || format!("{} requires approval of each call", tool.name);
        tool.hints.approve.then(|| ("tool.approve", why()))
    }

    /// A grant by the approver.
    pub(crate) fn grant(&self) -> Grant {
        Grant::by("approver", self.argv.iter().flatten().next().map_or("", String::as_str), How::Approver)
    }

    /// The answer of the approver, until a deadline; `None` without an approver.
    pub(crate) fn ask(&self, approval: &Approval, until: Option<Instant>) -> Result<Option<Verdict>> {
        self.argv.as_ref().map(|argv| approval::ask(argv, approval, until)).transpose()
    }
}
