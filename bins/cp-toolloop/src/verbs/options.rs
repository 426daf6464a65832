//! Options that several verbs have.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::context::options::Shared;
use cp_common::program::require_text;
use cp_common::{Context, Error, Result, coprocess};
use cp_mcp_wire::Offers;

use crate::parts::part::Part;
use crate::state::plan::{ModelCommand, is_ours, takes_command};
use crate::tools::catalogue::Catalogue;
use crate::tools::tool::Allowed;

/// The options of the sources of tools.
#[derive(clap::Args, Debug)]
pub(super) struct ToolOptions {
    /// A directory of tools, one tool, or a JSON catalogue (repeatable)
    #[arg(long, value_name = "DIR|FILE", help_heading = "Tools")]
    tools: Vec<PathBuf>,
    /// A tool that may be called (repeatable; default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',', help_heading = "Tools")]
    allow: Vec<String>,
    /// An MCP server, its name and its command (repeatable)
    #[arg(long, value_name = "NAME=COMMAND", help_heading = "Tools")]
    pub(super) mcp: Vec<String>,
    /// Offer only read-only tools, and let no command write or use a network
    #[arg(long, help_heading = "Tools")]
    pub(super) read_only: bool,
}

impl ToolOptions {
    /// The options that decide which tools there are.
    pub(super) fn asked(&self) -> impl serde::Serialize + use<'_> {
        (&self.tools, &self.allow, &self.mcp, self.read_only)
    }

    /// Resolves all tools: those of the configured directory unless `--tools` is given, and those that the servers list
    /// until a deadline. Also returns the servers, which were started.
    pub(super) fn resolve(&self, limit: Option<Duration>, context: &Context) -> Result<(Catalogue, Part)> {
        // The paths are passed on as text.
        require_text(self.tools.iter().map(PathBuf::as_path))?;
        let configured = || context.config.text("tools_dir", None).map(PathBuf::from).into_iter().collect();
        let places = if self.tools.is_empty() { configured() } else { self.tools.clone() };
        let allowed = Allowed { names: self.allow.clone(), read_only: self.read_only };
        let mut servers = Part::of_servers(&self.mcp);
        let offers = if self.mcp.is_empty() { Offers::default() } else { servers.offers(limit, context)? };
        Ok((Catalogue::of(&places, &allowed, offers, context)?, servers))
    }
}

/// The command of the model.
#[derive(clap::Args, Debug)]
pub(super) struct ModelOptions {
    /// The program that answers prompts, with its arguments (default: cp-llm)
    #[arg(long, value_name = "COMMAND", help_heading = "Model and backend", hide_short_help = true)]
    llm: Option<String>,
    /// The backend of cp-llm
    #[arg(long, value_name = "B", help_heading = "Model and backend")]
    backend: Option<String>,
    /// The model
    #[arg(short, long, value_name = "MODEL", help_heading = "Model and backend")]
    model: Option<String>,
    /// The script of the stub backend
    #[arg(long, value_name = "FILE", help_heading = "Model and backend", hide_short_help = true)]
    stub_script: Option<PathBuf>,
    /// Print the answer as it is generated
    #[arg(long, help_heading = "Model and backend")]
    stream: bool,
    /// The loop backend: native, bash, llm, elixir, or a program
    #[arg(long, value_name = "B", help_heading = "Model and backend", hide_short_help = true)]
    tool_backend: Option<String>,
}

impl ModelOptions {
    /// The command that asks the model.
    pub(super) fn command(&self, context: &Context) -> Result<ModelCommand> {
        let backend = context.config.text("tool_backend", self.tool_backend.as_deref()).unwrap_or_default();
        let mut argv = match backend.as_str() {
            "native" => return Ok(ModelCommand { argv: self.native()?, drives: false }),
            name @ ("bash" | "llm" | "elixir") => {
                vec![coprocess::find(&format!("cp-loop-{name}"))?.display().to_string()]
            }
            program => coprocess::command_line(program)?,
        };
        // A complete command gets no options from settings.
        let (ours, bare) = (is_ours(&argv[0]), argv.len() == 1);
        if bare && takes_command(&argv[0]) {
            argv.extend(self.native()?);
            return Ok(ModelCommand { argv, drives: true });
        }
        let refused = [
            ("--llm", self.llm.is_some()),
            ("--stub-script", self.stub_script.is_some()),
            ("--backend", self.backend.is_some() && !(ours && bare)),
        ];
        if let Some((option, _)) = refused.iter().find(|(_, given)| *given) {
            return Err(Error::usage(format!(
                "{option} cannot be used with --tool-backend {backend}, which asks the model itself"
            )));
        }
        add(&mut argv, "--model", self.model.clone());
        if ours && bare {
            // The script uses this backend, or refuses it.
            add(&mut argv, "--backend", context.config.text("backend", self.backend.as_deref()));
        }
        Ok(ModelCommand { argv, drives: true })
    }

    /// The command of the native loop.
    fn native(&self) -> Result<Vec<String>> {
        let mut argv = match &self.llm {
            Some(text) => coprocess::command_line(text)?,
            None => vec![coprocess::find("cp-llm")?.display().to_string()],
        };
        let script = self.stub_script.as_deref().map(std::path::absolute).transpose()?;
        add(&mut argv, "--model", self.model.clone());
        add(&mut argv, "--backend", self.backend.clone());
        add(&mut argv, "--stub-script", script.map(|script| script.display().to_string()));
        argv.extend(self.stream.then(|| "--stream".to_owned()));
        Ok(argv)
    }
}

fn add(argv: &mut Vec<String>, flag: &str, value: Option<String>) {
    argv.extend(value.into_iter().flat_map(|value| [flag.to_owned(), value]));
}

/// The options that pass the context on to another program, with these changes.
pub(super) fn passed_on(context: &mut Context, change: impl FnOnce(&mut Shared)) -> Vec<OsString> {
    let outside = context.options.clone();
    change(&mut context.options);
    let flags = context.handed_on();
    context.options = outside;
    flags
}
