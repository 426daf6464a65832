//! `cp-toolloop tools`: the tools that a model would be offered, and those that are left out.

use cp_common::context::options::{Pages, QueryOptions};
use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use serde::Serialize;

use super::options::ToolOptions;
use crate::tools::builtin::NAMES;
use crate::tools::catalogue::Broken;
use crate::tools::tool::Tool;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    // An MCP server that does not start, or does not answer.
    exits: &[7, 8],
    sort: Some("tools by name, then built-in tools, and tools that are not offered"),
    examples: &["cp-toolloop tools", "cp-toolloop tools --allow system --fields name,origin,status"],
    ..VerbDoc::new("tools", Class::Query, "tools")
};

/// List the tools, with their schemas and origins
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    query: QueryOptions,
}

/// A tool, or a tool that is left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Item {
    #[serde(flatten)]
    tool: Option<Tool>,
    #[serde(flatten)]
    broken: Option<Broken>,
    /// ok, broken, or `no_tool` for an executable that does not claim to be a tool.
    status: &'static str,
}

impl Reply for Item {
    fn text(&self) -> String {
        let broken = self.broken.as_ref().map(|broken| format!("✗ {}: {}", broken.left_out, broken.why));
        printable_line(&broken.unwrap_or_else(|| self.tool.as_ref().map(Tool::line).unwrap_or_default()))
    }
}

/// The sort key of an item: tools of files and servers by name, then built-in tools, and tools that are left out.
fn key(item: &Item) -> (usize, String) {
    match &item.tool {
        Some(tool) => (NAMES.iter().position(|name| *name == tool.name).map_or(0, |at| at + 1), tool.name.clone()),
        None => (NAMES.len() + 1, item.text()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let (catalogue, _) = args.tools.resolve(None, context)?;
    // The paths are text, or they were refused.
    let pages = Pages::of("cp-toolloop tools", &args.tools.asked(), &args.query)?;
    catalogue.check_allowed()?;
    catalogue.notices.iter().for_each(|notice| context.warn(notice));
    let tools = catalogue.tools.into_iter().map(|tool| Item { tool: Some(tool), broken: None, status: "ok" });
    let broken = catalogue.broken.into_iter().map(|broken| {
        let status = if broken.is_tool { "broken" } else { "no_tool" };
        Item { tool: None, broken: Some(broken), status }
    });
    let mut items: Vec<Item> = tools.chain(broken).collect();
    items.sort_by_key(key);
    context.out.answer(&pages.page(items.into_iter().map(|item| (key(&item), item)))?.untrusted())
}
