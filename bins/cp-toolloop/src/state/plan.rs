//! The plan of a run: everything that a resume needs; and the files of the run: its ledger, and beside it its exact
//! state until it is over, or its recording.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::context::options::positive_seconds;
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
    pub(crate) mcp: Vec<String>,
    pub(crate) model: ModelCommand,
    pub(crate) limits: Limits,
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
        [format!("--budget-file={}", file.display())].into_iter().chain(limits.budgets()).collect()
    }
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
        let asking = if self.drives { rest.first().filter(|_| takes_command(first)) } else { Some(first) };
        asking.map(String::as_str)
    }
}

/// True if a program is one of the cp-tools.
pub(crate) fn is_ours(program: &str) -> bool {
    name_of(program).starts_with("cp-")
}

/// True if a loop backend takes the model command as its arguments.
pub(crate) fn takes_command(program: &str) -> bool {
    name_of(program) == "cp-loop-elixir"
}

/// The name of a program without its directory.
pub(crate) fn name_of(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The limits of a run, as options and in its plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, clap::Args, Serialize, Deserialize)]
pub(crate) struct Limits {
    /// The most turns of the model (default: 20)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..), help_heading = "Limits")]
    pub(crate) max_iterations: Option<u64>,
    /// The most tokens, read and written
    #[arg(long = "budget-tokens", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    #[arg(help_heading = "Limits", hide_short_help = true)]
    pub(crate) tokens: Option<u64>,
    /// The most dollars
    #[arg(long = "budget-usd", value_name = "X", value_parser = positive, help_heading = "Limits")]
    pub(crate) usd: Option<f64>,
    /// The most seconds
    #[arg(long, value_name = "DURATION", value_parser = positive_seconds, help_heading = "Limits")]
    pub(crate) deadline: Option<f64>,
}

impl Limits {
    /// The limits of a run without options.
    pub(crate) const DEFAULT: Self = Self { max_iterations: Some(20), tokens: None, usd: None, deadline: None };

    /// These limits, and where there are none those of before.
    pub(crate) fn or(self, before: Self) -> Self {
        Self {
            max_iterations: self.max_iterations.or(before.max_iterations),
            tokens: self.tokens.or(before.tokens),
            usd: self.usd.or(before.usd),
            deadline: self.deadline.or(before.deadline),
        }
    }

    /// The options for the budgets, which cp-llm has too.
    pub(crate) fn budgets(&self) -> impl Iterator<Item = String> + use<> {
        let tokens = self.tokens.map(|tokens| format!("--budget-tokens={tokens}"));
        tokens.into_iter().chain(self.usd.map(|usd| format!("--budget-usd={usd}")))
    }

    /// The options for all limits.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> + use<> {
        let turns = self.max_iterations.map(|turns| format!("--max-iterations={turns}"));
        let deadline = self.deadline.map(|seconds| format!("--deadline={seconds}"));
        turns.into_iter().chain(self.budgets()).chain(deadline)
    }
}

/// Parses a limit.
fn positive(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && *number <= 1e9);
    number.ok_or("must be a number of more than 0 and at most 1000000000")
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
    pub(crate) fn of(run: &str, context: &Context) -> Result<Self> {
        let ledger = context.home.runs(&context.tier(None)?).join(format!("{run}.jsonl"));
        Ok(Self { run: run.to_owned(), ledger })
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
