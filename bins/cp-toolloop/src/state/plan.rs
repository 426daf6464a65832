//! The plan of a run: everything that a resume needs; and the files of the run: its ledger, and beside it its exact
//! state until it is over, or its recording.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::home::TIERS;
use cp_common::keys;
use cp_common::wire::Prompt;
use cp_common::{Context, Result, clock};
use serde::{Deserialize, Serialize};

use crate::tools::tool::Tool;

/// A run's plan. It does not change; a resume may only give it new [`Limits`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    pub(crate) run: String,
    /// The name of the run.
    #[serde(default)]
    pub(crate) name: Option<String>,
    pub(crate) started: String,
    /// The directory of `.` in the policy.
    pub(crate) base: PathBuf,
    /// The governed tree of commands and tools.
    #[serde(default)]
    pub(crate) root: Option<PathBuf>,
    /// The prompt, with the tools.
    pub(crate) prompt: Prompt,
    /// The tools, pinned.
    pub(crate) tools: Vec<Tool>,
    /// The directories in which cp-exec finds the executables.
    pub(crate) directories: Vec<PathBuf>,
    /// The MCP servers.
    pub(crate) mcp: ServerOptions,
    pub(crate) model: ModelCommand,
    pub(crate) limits: Limits,
    pub(crate) fail_on_tool_error: bool,
    /// The approver, as on the command line.
    pub(crate) approver: Option<String>,
    /// True if commands and tools may not write.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// The file of the recording.
    pub(crate) record: Option<PathBuf>,
    /// The budget file that the model shares with other processes.
    #[serde(default)]
    pub(crate) budget_file: Option<PathBuf>,
}

impl Plan {
    /// A hash of the request: the prompt, the tools and the model command.
    pub(crate) fn request(&self) -> String {
        let program = self.model.argv.first().map(|program| name_of(program));
        keys::hash(&serde_json::to_vec(&(&self.prompt, program, self.model.argv.get(1..))).unwrap_or_default())
    }

    /// The options of cp-llm for a shared budget.
    pub(crate) fn shared_budget(&self, limits: &Limits) -> Vec<String> {
        let Some(file) = &self.budget_file else { return Vec::new() };
        let tokens = limits.tokens.map(|tokens| format!("--budget-tokens={tokens}"));
        let usd = limits.usd.map(|usd| format!("--budget-usd={usd}"));
        [Some(format!("--budget-file={}", file.display())), tokens, usd].into_iter().flatten().collect()
    }
}

/// The servers, as the options of cp-mcp name them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServerOptions {
    /// Names, with commands that the policy does not have.
    pub(crate) mcp: Vec<String>,
    /// Files in the form of .mcp.json.
    pub(crate) files: Vec<PathBuf>,
}

/// The command of the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ModelCommand {
    /// The program that answers prompts, with its arguments.
    pub(crate) argv: Vec<String>,
    /// True if the program drives the loop itself: it gets the prompt once, and then only results.
    pub(crate) drives: bool,
}

impl ModelCommand {
    /// The program that gets prompts: the command itself, or the command in the arguments of a loop backend.
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

/// True if a program is one of the cp-tools.
pub(crate) fn is_ours(program: &str) -> bool {
    name_of(program).starts_with("cp-")
}

/// True if a program supports budget files.
pub(crate) fn keeps_budgets(program: &str) -> bool {
    name_of(program) == "cp-llm"
}

/// True if a loop backend takes the model command as its arguments.
pub(crate) fn takes_command(program: &str) -> bool {
    name_of(program) == "cp-loop-elixir"
}

fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// Turns of the model.
    pub(crate) max_iterations: u64,
    /// Input and output tokens.
    pub(crate) tokens: Option<u64>,
    pub(crate) usd: Option<f64>,
    /// Seconds, counted from the start of each process.
    pub(crate) deadline: Option<f64>,
}

/// A new run's id: `RUN-`, the date, 8 hex digits.
pub(crate) fn new_id() -> Result<String> {
    Ok(format!("RUN-{}-{}", clock::today(), keys::hex(&keys::random::<4>()?)))
}

/// A run and its files.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunFiles {
    pub(crate) run: String,
    pub(crate) ledger: PathBuf,
}

impl RunFiles {
    /// The files of a run that is started in this context.
    pub(crate) fn of(run: &str, context: &Context) -> Self {
        let ledger = context.home.runs(&context.tier()).join(format!("{run}.jsonl"));
        Self { run: run.to_owned(), ledger }
    }

    /// Every run of this home, including a run that was killed before it created its ledger.
    pub(crate) fn all(context: &Context) -> Vec<Self> {
        let listings = TIERS.iter().filter_map(|tier| std::fs::read_dir(context.home.runs(tier)).ok());
        let of_file = |file: PathBuf| {
            let name = file.file_name()?.to_str()?;
            let run = name.strip_suffix(".jsonl").or_else(|| name.strip_suffix(".sealed"))?.to_owned();
            run.starts_with("RUN-").then(|| Self { run, ledger: file.with_extension("jsonl") })
        };
        let all: BTreeSet<Self> = listings.flatten().filter_map(|entry| of_file(entry.ok()?.path())).collect();
        all.into_iter().collect()
    }

    /// The file of its exact state until the run ends.
    pub(crate) fn state(&self) -> PathBuf {
        self.ledger.with_extension("sealed")
    }

    /// The file of its steps after the run has ended, if it is recorded.
    pub(crate) fn recording(&self) -> PathBuf {
        self.ledger.with_extension("recorded")
    }
}
