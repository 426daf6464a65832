//! The tools of a run: what a model may call, and what was left out and why.

use std::path::{Path, PathBuf};

use cp_common::spelling::nearest;
use cp_common::{Context, Error, Result};

use crate::mcp::{Servers, Started};
use crate::tools::builtin;
use crate::tools::tool::Allowed;
use crate::tools::tool::{Origin, Tool};

/// The tools that resolved, and what is wrong with the others.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub(crate) allowed: Allowed,
    /// Executables first, in the order of their places and names.
    pub(crate) tools: Vec<Tool>,
    pub(crate) broken: Vec<Broken>,
    /// The directories that cp-exec finds them in.
    pub(crate) directories: Vec<PathBuf>,
    /// The servers that were started to list their tools.
    pub(crate) servers: Option<Servers>,
    /// What each of those is.
    pub(crate) started: Vec<Started>,
    /// What each says of its tools to a model, under its name.
    pub(crate) instructions: Vec<(String, String)>,
    /// Why the first server that failed did: a run does not begin without one that it was given.
    pub(crate) failure: Option<Error>,
    /// What is not done with tools that are there.
    pub(crate) notices: Vec<String>,
}

/// A tool that was left out.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The file or name. An executable that claims to be no tool is listed too, and not warned of.
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) is_tool: bool,
}

impl Catalogue {
    /// Lets cp-exec look in a directory.
    pub(crate) fn look_in(&mut self, directory: &Path) {
        if !self.directories.iter().any(|known| known == directory) {
            self.directories.push(directory.to_owned());
        }
    }

    /// Adds a tool if it may be called and its name is free.
    pub(crate) fn add(&mut self, tool: Tool) {
        if self.allowed.allows(&tool.name) {
            self.add_meant(tool);
        }
    }

    /// Adds a tool whose name may be called, if it is free. A run that may only look has none that changes something.
    pub(crate) fn add_meant(&mut self, tool: Tool) {
        if self.allowed.read_only && !tool.hints.read_only {
            return;
        }
        if self.has(&tool.name) {
            return self.leave_out(tool.name, "the name is taken by another tool");
        }
        self.tools.push(tool);
    }

    /// Whether there is a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Leaves something out, and keeps the reason.
    pub(crate) fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.broken.push(Broken { what: what.into(), why: why.into(), is_tool: true });
    }

    /// Notes an executable among the tools that does not claim to be one. Nobody is warned of it at each run.
    pub(crate) fn pass_over(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.broken.push(Broken { what: what.into(), why: why.into(), is_tool: false });
    }

    /// Warns about what was left out.
    pub(crate) fn report(&self, context: &Context) {
        for broken in self.broken.iter().filter(|broken| broken.is_tool) {
            context.warn(&format!("{} is left out: {}", broken.what, broken.why));
        }
        self.notices.iter().for_each(|notice| context.warn(notice));
    }

    /// Whether each name that may be called is that of a tool: one that is misspelled would allow nothing, and nobody would know why.
    pub(crate) fn check_allowed(&self) -> Result<()> {
        let is_tool = |name: &String| {
            let there = |tool: &Tool| match &tool.origin {
                Origin::Mcp { tool: own, .. } => tool.name == *name || own == name,
                Origin::Builtin | Origin::Executable { .. } => tool.name == *name,
            };
            name.is_empty() || builtin::NAMES.contains(&name.as_str()) || self.tools.iter().any(there)
        };
        let Some(unknown) = self.allowed.names.iter().find(|name| !is_tool(name)) else { return Ok(()) };
        let known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).chain(builtin::NAMES).collect();
        let left_out: Vec<String> =
            self.broken.iter().map(|broken| format!("{}: {}", broken.what, broken.why)).collect();
        let near = nearest(unknown, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let hint = near.unwrap_or_else(|| "cp-toolloop tools, with the same options, lists the tools".to_owned());
        Err(Error::not_found(format!("--allow {unknown}: no tool has this name"))
            .with("tools", known)
            .with("left_out", left_out)
            .hint(hint))
    }
}
