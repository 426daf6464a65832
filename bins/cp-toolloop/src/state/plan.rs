//! What a run is started with: everything that a resume needs to go on as if nothing had happened.

use std::path::PathBuf;

use cp_common::keys;
use cp_common::wire::Prompt;
use cp_common::{Result, clock};
use serde::{Deserialize, Serialize};

use crate::mcp::Spec;
use crate::tools::tool::Tool;

/// A run's plan. It does not change; a resume may only give it new [`Limits`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) run: String,
    /// What people call it.
    #[serde(default)]
    pub(crate) name: Option<String>,
    pub(crate) started: String,
    /// The directory that `.` means in policy.
    pub(crate) base: PathBuf,
    /// What was asked, with the tools that may be used.
    pub(crate) prompt: Prompt,
    /// The tools, pinned.
    pub(crate) tools: Vec<Tool>,
    /// Where they were looked for: an agent looks there too.
    #[serde(default)]
    pub(crate) places: Vec<PathBuf>,
    /// Where cp-exec finds the executables among them.
    pub(crate) directories: Vec<PathBuf>,
    /// The MCP servers among them.
    pub(crate) mcp: Vec<Spec>,
    pub(crate) model: ModelCommand,
    pub(crate) limits: Limits,
    /// How many calls of a message run at the same time.
    pub(crate) parallel: usize,
    pub(crate) fail_on_tool_error: bool,
    /// As it was given.
    pub(crate) approver: Option<String>,
    /// The program that sees each call before it is made, as it was given.
    #[serde(default)]
    pub(crate) before_tool: Option<String>,
    /// The program that sees each result before the model does, as it was given.
    #[serde(default)]
    pub(crate) after_tool: Option<String>,
    /// How many levels of agents may be under this run.
    #[serde(default)]
    pub(crate) agent_depth: u8,
    /// Whether commands and tools may write nothing.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// The run that this one works for.
    #[serde(default)]
    pub(crate) parent: Option<String>,
    /// Where the whole run is kept when it is over.
    pub(crate) record: Option<PathBuf>,
    /// The budget that its model shares with other processes, those of its agents among them.
    #[serde(default)]
    pub(crate) budget_file: Option<PathBuf>,
    /// The part of a larger work that this run belongs to.
    #[serde(default)]
    pub(crate) shard: Option<String>,
}

impl Plan {
    /// A hash of what is asked, and of whom: the prompt, with its tools, and how the model is asked.
    pub(crate) fn request(&self) -> String {
        let program = self.model.argv.first().map(|program| name_of(program));
        keys::hash(&serde_json::to_vec(&(&self.prompt, program, self.model.argv.get(1..))).unwrap_or_default())
    }

    /// The options of cp-llm that share a budget. The file keeps the limits, and those of an agent are only a share of them.
    pub(crate) fn shared_budget(&self, limits: &Limits) -> Vec<String> {
        let Some(file) = &self.budget_file else { return Vec::new() };
        let limits = Some(limits).filter(|_| self.parent.is_none());
        let tokens = limits.and_then(|limits| limits.tokens).map(|tokens| format!("--budget-tokens={tokens}"));
        let usd = limits.and_then(|limits| limits.usd).map(|usd| format!("--budget-usd={usd}"));
        [Some(format!("--budget-file={}", file.display())), tokens, usd].into_iter().flatten().collect()
    }
}

/// How the model is asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelCommand {
    /// The program that answers prompts, with its arguments.
    pub(crate) argv: Vec<String>,
    /// Whether the program drives the loop itself: it is given the prompt once, and results from then on.
    pub(crate) drives: bool,
}

impl ModelCommand {
    /// The program that is sent prompts: the command itself, or the one that a loop is given as its arguments.
    pub(crate) fn asking(&self) -> Option<&str> {
        let (first, rest) = self.argv.split_first()?;
        let asking = if !self.drives {
            Some(first)
        } else if takes_command(first) {
            rest.first()
        } else {
            None
        };
        asking.map(String::as_str)
    }
}

/// Whether a program is one of the cp-tools.
pub(crate) fn is_ours(program: &str) -> bool {
    name_of(program).starts_with("cp-")
}

/// Whether a program is the one that keeps budget files.
pub(crate) fn keeps_budgets(program: &str) -> bool {
    name_of(program) == "cp-llm"
}

/// Whether a program that drives the loop asks through a command that it is given as its arguments.
pub(crate) fn takes_command(program: &str) -> bool {
    name_of(program) == "cp-loop-elixir"
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Turns of the model.
    pub(crate) max_iterations: u64,
    /// Read and written.
    pub(crate) tokens: Option<u64>,
    pub(crate) usd: Option<f64>,
    /// About how much of the conversation the model is asked with at once.
    #[serde(default)]
    pub(crate) context_tokens: Option<usize>,
    /// Seconds, counted anew by each resume.
    pub(crate) deadline: Option<f64>,
}

/// A new run's id: `RUN-`, the date, 8 hex digits.
pub(crate) fn new_id() -> Result<String> {
    Ok(format!("RUN-{}-{}", clock::today(), keys::hex(&keys::random::<4>()?)))
}
