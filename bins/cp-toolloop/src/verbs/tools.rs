//! `cp-toolloop tools`: the tools that a model would be offered, and those that are left out.

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::output::printable_line;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use cp_mcp_wire::OfferingServer;
use serde::Serialize;

use super::options::ToolOptions;
use crate::tools::builtin::NAMES;
use crate::tools::catalogue::Broken;
use crate::tools::tool::Tool;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tools",
    class: Class::Query,
    output: "tools",
    // An MCP server that does not start, or does not answer.
    exits: &[7, 8],
    sort: Some("tools by name, then built-in tools, servers, and tools that are not offered"),
    examples: &["cp-toolloop tools", "cp-toolloop tools --allow system --fields name,origin,status"],
    ..VerbDoc::EMPTY
};

/// List the tools, with their schemas and origins
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    query: QueryOptions,
}

/// A tool, a server, or a tool that is left out.
#[derive(Debug, Default, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Item {
    #[serde(flatten)]
    tool: Option<Tool>,
    /// The name or file of a tool that is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    left_out: Option<String>,
    /// A server of tools.
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<OfferingServer>,
    /// ok, broken, or `no_tool` for an executable that does not claim to be a tool.
    status: &'static str,
    /// Why it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

impl Reply for Item {
    fn text(&self) -> String {
        match (&self.tool, &self.server, &self.left_out, &self.why) {
            (Some(tool), ..) => tool.text(),
            (None, Some(server), ..) => {
                let OfferingServer { name, command, server_name, server_version, protocol, .. } = server;
                let command = command.join(" ");
                printable_line(&format!(
                    "server {name}: {server_name} {server_version}, protocol {protocol}: {command}"
                ))
            }
            (None, None, left_out, why) => {
                let (left_out, why) = (left_out.as_deref().unwrap_or_default(), why.as_deref().unwrap_or_default());
                printable_line(&format!("✗ {left_out}: {why}"))
            }
        }
    }
}

impl Item {
    fn of_broken(broken: Broken) -> Self {
        let status = if broken.is_tool { "broken" } else { "no_tool" };
        Self { left_out: Some(broken.what), why: Some(broken.why), status, ..Self::default() }
    }

    fn ok(tool: Option<Tool>, server: Option<OfferingServer>) -> Self {
        Self { tool, server, status: "ok", ..Self::default() }
    }
}

/// The sort key of an item: tools of files and servers by name, then built-in tools, servers, and tools that are left
/// out.
fn key(item: &Item) -> (usize, String) {
    match (&item.tool, &item.server) {
        (Some(tool), _) => (NAMES.iter().position(|name| *name == tool.name).map_or(0, |at| at + 1), tool.name.clone()),
        (None, Some(server)) => (NAMES.len() + 1, server.name.clone()),
        (None, None) => (NAMES.len() + 2, item.text()),
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    args.tools.check()?;
    let pages = Pages::of("cp-toolloop tools", &args.tools.asked(), &args.query)?;
    let (catalogue, _) = args.tools.resolve(None, context)?;
    if catalogue.failure.is_none() {
        catalogue.check_allowed()?;
    }
    catalogue.notices.iter().for_each(|notice| context.warn(notice));
    let tools = catalogue.tools.into_iter().map(|tool| Item::ok(Some(tool), None));
    let servers = catalogue.servers.into_iter().map(|server| Item::ok(None, Some(server)));
    let mut items: Vec<Item> = tools.chain(servers).chain(catalogue.broken.into_iter().map(Item::of_broken)).collect();
    items.sort_by_key(key);
    context.out.answer(&pages.page(items.into_iter().map(|item| (key(&item), item)))?.untrusted())
}
