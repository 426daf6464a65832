//! `cp-toolloop tools`: what a model would be offered, and what was left out.

use cp_common::context::options::QueryOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, fields};
use cp_common::{Context, Result};
use serde::Serialize;
use serde_json::Value;

use super::options::ToolOptions;
use super::page::{page, projected, text_of};
use crate::tools::tool::Tool;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tools",
    class: Class::Query,
    output: "tools",
    examples: &["cp-toolloop tools", "cp-toolloop tools --allow system --fields name,origin,status"],
    ..VerbDoc::EMPTY
};

/// List the tools that resolve, with their schemas and where they come from
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    #[command(flatten)]
    query: QueryOptions,
}

/// A page of tools.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["items"])))]
pub(crate) struct Page {
    /// The tools.
    #[cfg_attr(test, schemars(with = "Vec<Item>"))]
    items: Vec<Value>,
    /// How many are on this page.
    count: usize,
    /// Where the next page begins.
    next_cursor: Option<String>,
    /// Whether there is one.
    has_more: bool,
}

/// A tool, or one that was left out.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Item {
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

const MEMBERS: [&str; 8] = ["name", "description", "input_schema", "origin", "hints", "left_out", "status", "why"];

impl Reply for Page {
    fn text(&self) -> String {
        let line = |item: &Value| {
            if item.get("why").is_some() {
                return format!("✗ {}: {}", text_of(item, "left_out"), text_of(item, "why"));
            }
            let description = text_of(item, "description");
            format!("{:<24} {}", text_of(item, "name"), description.lines().next().unwrap_or_default())
        };
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    fields::check(&args.query.fields, &MEMBERS)?;
    let catalogue = args.tools.sources(context)?.resolve(context)?;
    let tools =
        catalogue.tools.into_iter().map(|tool| Item { tool: Some(tool), left_out: None, status: "ok", why: None });
    let broken = catalogue.broken.into_iter().map(|broken| Item {
        tool: None,
        left_out: Some(broken.what),
        status: "broken",
        why: Some(broken.why),
    });
    let items = projected(tools.chain(broken), &args.query.fields)?;
    let (items, next_cursor) = page(items, &args.query)?;
    context.out.answer(&Page { count: items.len(), has_more: next_cursor.is_some(), items, next_cursor })
}
