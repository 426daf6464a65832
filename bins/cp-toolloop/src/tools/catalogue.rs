//! The tools of a run: those that a model may call, and those that are left out, with the reason.

use std::path::{Path, PathBuf};

use cp_common::wire::nearest;
use cp_common::{Context, Error, Result};
use cp_mcp_wire::{Offer, Offers};
use serde::Serialize;

use crate::tools::tool::{Allowed, Origin, Tool};
use crate::tools::{builtin, description};

/// The tools that are offered, and those that are left out.
#[derive(Default)]
pub(crate) struct Catalogue {
    pub(crate) allowed: Allowed,
    /// The tools, executables first, in the order of their sources and names.
    pub(crate) tools: Vec<Tool>,
    pub(crate) broken: Vec<Broken>,
    /// The directories in which cp-exec finds the executables.
    pub(crate) directories: Vec<PathBuf>,
    /// Warnings about tools that are offered.
    pub(crate) notices: Vec<String>,
}

/// A tool that is left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Broken {
    /// The name or file of a tool that is left out.
    pub(crate) left_out: String,
    /// Why it is left out.
    pub(crate) why: String,
    /// False for an executable that does not claim to be a tool.
    #[serde(skip)]
    pub(crate) is_tool: bool,
}

impl Catalogue {
    /// Adds the tools that servers offer. If a name is taken, the name of the server becomes its prefix. Fails if a
    /// server does not answer.
    pub(super) fn add_offers(&mut self, Offers { servers, tools }: Offers) -> Result<()> {
        for server in servers {
            if !server.error.is_null() {
                return Err(Error::from_value(&server.error));
            }
            for (name, why) in server.left_out {
                self.leave_out(format!("{}: {name}", server.name), why);
            }
            let its: Vec<&Offer> = tools.iter().filter(|tool| tool.server == server.name).collect();
            for offer in &its {
                self.add_offer(offer, &its);
            }
        }
        Ok(())
    }

    fn add_offer(&mut self, offer: &Offer, others: &[&Offer]) {
        let (server, own) = (&offer.server, &offer.name);
        let name = description::offered_name(own, others);
        let is_taken = builtin::NAMES.contains(&name.as_str()) || self.has(&name);
        let prefixed = description::offered_name(&format!("{server}_{name}"), &[]);
        let name = if !is_taken && (self.allowed.allows(&name) || self.allowed.allows(own)) {
            name
        } else if self.allowed.allows(&prefixed) {
            // `--allow` with the prefix means this tool even if its own name is free.
            prefixed
        } else {
            return;
        };
        match description::of_offer(name.clone(), offer) {
            Ok((tool, unchecked)) => {
                self.add_allowed(tool);
                let notice =
                    |pattern| format!("{server}: {name}: the pattern {pattern} has a lookaround and is not checked");
                self.notices.extend(unchecked.into_iter().map(notice));
            }
            Err(why) => self.leave_out(format!("{server}: {own}"), why),
        }
    }

    /// Adds a directory in which cp-exec finds tools.
    pub(crate) fn add_directory(&mut self, directory: &Path) {
        if !self.directories.iter().any(|known| known == directory) {
            self.directories.push(directory.to_owned());
        }
    }

    /// Adds a tool if it is allowed and its name is free.
    pub(crate) fn add(&mut self, tool: Tool) {
        if self.allowed.allows(&tool.name) {
            self.add_allowed(tool);
        }
    }

    /// Adds an allowed tool if its name is free, and if a read-only run may have it.
    pub(crate) fn add_allowed(&mut self, tool: Tool) {
        if self.allowed.read_only && !tool.hints.read_only {
            return;
        }
        if self.has(&tool.name) {
            return self.leave_out(tool.name, "the name is taken by another tool");
        }
        self.tools.push(tool);
    }

    /// True if there is a tool of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| tool.name == name)
    }

    /// Leaves out a tool, for this reason.
    pub(crate) fn leave_out(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.broken.push(Broken { left_out: what.into(), why: why.into(), is_tool: true });
    }

    /// Warns about the tools that are left out.
    pub(crate) fn report(&self, context: &Context) {
        for broken in self.broken.iter().filter(|broken| broken.is_tool) {
            context.warn(&format!("{} is left out: {}", broken.left_out, broken.why));
        }
        self.notices.iter().for_each(|notice| context.warn(notice));
    }

    /// Fails if an allowed name is not the name of a tool, because it may be misspelled.
    pub(crate) fn check_allowed(&self) -> Result<()> {
        let is_tool = |name: &String| {
            let there = |tool: &Tool| match &tool.origin {
                Origin::Mcp { tool: own, .. } => tool.name == *name || own == name,
                Origin::Builtin | Origin::Executable(_) => tool.name == *name,
            };
            name.is_empty() || builtin::NAMES.contains(&name.as_str()) || self.tools.iter().any(there)
        };
        let Some(unknown) = self.allowed.names.iter().find(|name| !is_tool(name)) else { return Ok(()) };
        let known: Vec<&str> = self.tools.iter().map(|tool| tool.name.as_str()).chain(builtin::NAMES).collect();
        let left_out: Vec<String> =
            self.broken.iter().map(|broken| format!("{}: {}", broken.left_out, broken.why)).collect();
        let near = nearest(unknown, known.iter().copied()).map(|near| format!("did you mean `{near}`?"));
        let hint = near.unwrap_or_else(|| "cp-toolloop tools, with the same options, lists the tools".to_owned());
        Err(Error::not_found(format!("--allow {unknown}: no tool has this name"))
            .with("tools", known)
            .with("left_out", left_out)
            .hint(hint))
    }
}
