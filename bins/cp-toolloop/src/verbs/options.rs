//! Options that several verbs have.

use std::path::PathBuf;

use cp_common::program::require_text;
use cp_common::{Context, Error, Result, coprocess};

use crate::mcp::Spec;
use crate::state::plan::ModelCommand;
use crate::tools::catalogue::Allowed;
use crate::tools::sources::Sources;

/// Where tools come from.
#[derive(clap::Args, Debug)]
pub(super) struct ToolOptions {
    /// A directory of tools, one tool, or a JSON catalogue; give it once for each
    #[arg(long, value_name = "DIR|FILE", help_heading = "Tools")]
    tools: Vec<PathBuf>,
    /// A tool that may be called; give it once for each (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Tools")]
    allow: Vec<String>,
    /// An MCP server, its name and its command; give it once for each
    #[arg(long, value_name = "NAME=COMMAND", help_heading = "Tools")]
    mcp: Vec<String>,
    /// Offer only what changes nothing, and let no command write or use a network
    #[arg(long, help_heading = "Tools")]
    pub(super) read_only: bool,
    /// How many levels of agents may be started: 0 is none
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8), help_heading = "Tools", hide_short_help = true)]
    pub(super) agent_depth: u8,
}

impl ToolOptions {
    /// What decides which tools there are.
    pub(super) fn asked(&self) -> (&[PathBuf], &[String], &[String], bool, u8) {
        (&self.tools, &self.allow, &self.mcp, self.read_only, self.agent_depth)
    }

    /// Whether cp-exec can be told of the directories of tools.
    pub(super) fn check(&self) -> Result<()> {
        require_text("--tools", self.tools.iter().map(PathBuf::as_path))
    }

    /// Where tools come from: the configured directory unless --tools is given.
    pub(super) fn sources(&self, context: &Context) -> Result<Sources> {
        self.check()?;
        let configured = || context.config.text("tools_dir", None).map(PathBuf::from).into_iter().collect();
        let places = if self.tools.is_empty() { configured() } else { self.tools.clone() };
        let mcp = self.mcp.iter().map(|server| Spec::parse(server, context)).collect::<Result<_>>()?;
        let allowed = Allowed { names: self.allow.clone(), read_only: self.read_only };
        Ok(Sources { places, mcp, agents: self.agent_depth > 0, allowed })
    }
}

/// How the model is asked.
#[derive(clap::Args, Debug)]
pub(super) struct ModelOptions {
    /// The program that answers prompts, with its arguments (default: cp-llm)
    #[arg(long, value_name = "COMMAND", help_heading = "Who answers", hide_short_help = true)]
    llm: Option<String>,
    /// The backend of cp-llm
    #[arg(long, value_name = "B", help_heading = "Who answers")]
    backend: Option<String>,
    /// The model
    #[arg(short, long, value_name = "MODEL", help_heading = "Who answers")]
    model: Option<String>,
    /// The script of the stub backend
    #[arg(long, value_name = "FILE", help_heading = "Who answers", hide_short_help = true)]
    stub_script: Option<PathBuf>,
    /// Print the answer as it is generated
    #[arg(long, help_heading = "Who answers")]
    stream: bool,
    /// What drives the loop: native, bash, llm, or a program
    #[arg(long, value_name = "B", help_heading = "Who answers", hide_short_help = true)]
    tool_backend: Option<String>,
}

impl ModelOptions {
    /// The command that asks the model.
    pub(super) fn command(&self, context: &Context) -> Result<ModelCommand> {
        let backend = context.config.text("tool_backend", self.tool_backend.as_deref()).unwrap_or_default();
        let drives = backend != "native";
        let mut argv = match (&self.llm, backend.as_str()) {
            (Some(_), _) if drives => {
                return Err(Error::usage(format!(
                    "--llm cannot be used with --tool-backend {backend}, which asks the model itself"
                )));
            }
            (Some(text), _) => coprocess::command_line(text)?,
            (None, "native") => vec![coprocess::find("cp-llm")?.display().to_string()],
            (None, name @ ("bash" | "llm")) => vec![coprocess::find(&format!("cp-loop-{name}"))?.display().to_string()],
            (None, program) => coprocess::command_line(program)?,
        };
        let mut option = |flag: &str, value: Option<String>| {
            if let Some(value) = value {
                argv.extend([flag.to_owned(), value]);
            }
        };
        option("--model", self.model.clone());
        if !drives {
            let script = self.stub_script.as_deref().map(std::path::absolute).transpose()?;
            option("--backend", self.backend.clone());
            option("--stub-script", script.map(|script| script.display().to_string()));
            argv.extend(self.stream.then(|| "--stream".to_owned()));
        }
        Ok(ModelCommand { argv, drives })
    }
}

/// A number that a limit can be.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if number > 0.0 && number <= 1e9 {
        Ok(number)
    } else {
        Err("must be more than 0 and at most 1000000000".to_owned())
    }
}
