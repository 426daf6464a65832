//! `cp-toolloop tools`: what a model would be offered, and what was left out.

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use serde::Serialize;

use super::options::ToolOptions;
use crate::tools::builtin::NAMES;
use crate::tools::tool::Tool;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tools",
    class: Class::Query,
    output: "tools",
    examples: &["cp-toolloop tools", "cp-toolloop tools --allow system --fields name,origin,status"],
    dangerous: false,
};

/// List the tools that resolve, with their schemas and where they come from
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    query: QueryOptions,
}

/// A tool, or one that was left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Item {
    #[serde(flatten)]
    tool: Option<Tool>,
    /// The name or file of a tool that was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// ok or broken.
    status: &'static str,
    /// Why it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Reply for Item {
    fn text(&self) -> String {
        match (&self.tool, &self.left_out, &self.why) {
            (Some(tool), ..) => {
                format!("{:<24} {}", tool.name, tool.description.lines().next().unwrap_or_default())
            }
            (None, left_out, why) => {
                format!("✗ {}: {}", left_out.as_deref().unwrap_or_default(), why.as_deref().unwrap_or_default())
            }
        }
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let sources = args.tools.sources(context)?;
    let pages = Pages::of("cp-toolloop tools", &args.tools.asked(), &args.query)?;
    let catalogue = sources.resolve(context)?;
    let tools =
        catalogue.tools.into_iter().map(|tool| Item { tool: Some(tool), left_out: None, status: "ok", why: None });
    let broken = catalogue.broken.into_iter().map(|broken| Item {
        tool: None,
        left_out: Some(broken.what),
        status: "broken",
        why: Some(broken.why),
    });
    // Tools of files and servers by name, then the built-in ones in their order, then what was left out.
    let key = |item: &Item| match &item.tool {
        Some(tool) => {
            let built_in = NAMES.iter().position(|name| *name == tool.name);
            (built_in.map_or(0, |at| at + 1), Some(tool.name.clone()), None)
        }
        None => (NAMES.len() + 1, item.left_out.clone(), item.why.clone()),
    };
    let mut items: Vec<Item> = tools.chain(broken).collect();
    items.sort_by_key(key);
    context.out.answer(&pages.page(items.into_iter().map(|item| (key(&item), item)))?.untrusted())
}
