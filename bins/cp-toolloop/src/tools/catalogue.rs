//! The tools of a run: what a model may call, and what was left out and why.

use std::path::{Path, PathBuf};

use cp_common::Context;

use crate::mcp::Servers;
use crate::tools::tool::Tool;

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
}

/// What may be called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowed {
    /// By these names; none: all.
    pub(crate) names: Vec<String>,
    /// Only what changes nothing.
    pub(crate) read_only: bool,
}

/// A tool that was left out.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    /// The file or name. An executable that claims to be no tool is listed too, and not warned of.
    pub(crate) what: String,
    pub(crate) why: String,
    pub(crate) is_tool: bool,
}

impl Allowed {
    /// Whether a name may be called.
    pub(crate) fn allows(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|allowed| allowed == name)
    }
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
        if !self.allowed.allows(&tool.name) || self.allowed.read_only && !tool.hints.read_only {
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
    }
}
