//! `cp-toolloop tools`: what a model would be offered, and what was left out.

use cp_common::context::options::QueryOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, fields};
use cp_common::{Context, Error, Result};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::options::ToolOptions;
use super::page::{page, projected, text_of};
use crate::tools::catalogue::Broken;
use crate::tools::description::wanting;
use crate::tools::sources::Sources;
use crate::tools::tool::{Origin, Tool};

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
    /// Check this executable or its catalogue as its author: all that is wrong with it
    #[arg(long, value_name = "FILE")]
    check: Vec<PathBuf>,
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
    /// ok, broken, or `no_tool` for an executable that does not claim to be a tool.
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

impl Item {
    fn of_broken(broken: Broken) -> Self {
        let status = if broken.is_tool { "broken" } else { "no_tool" };
        Self { tool: None, left_out: Some(broken.what), status, why: Some(broken.why) }
    }
}

/// Checks files as their author does: each is asked, and everything that is wrong is said at once.
fn check(files: &[PathBuf], context: &mut Context) -> Result<()> {
    let items: Vec<Item> = files.iter().flat_map(|file| checked(file, context)).collect();
    let wrong: Vec<String> = items
        .iter()
        .filter_map(|item| Some(format!("{}: {}", item.left_out.as_deref()?, item.why.as_deref()?)))
        .collect();
    let items = projected(items, &[])?;
    let page = Page { count: items.len(), has_more: false, items, next_cursor: None };
    if wrong.is_empty() {
        return context.out.answer(&page);
    }
    context.out.refuse(&page, &Error::validation(wrong.join("; ")).hint("see WRITING A TOOL in cp-authors(7)"))
}

/// The tools of one file, and what is wrong with it.
fn checked(file: &Path, context: &Context) -> Vec<Item> {
    let broken = |what: String, why: &str| Item::of_broken(Broken { what, why: why.to_owned(), is_tool: true });
    let sources = Sources { places: vec![file.to_owned()], ..Sources::default() };
    let catalogue = match sources.resolve(context) {
        Ok(catalogue) => catalogue,
        Err(e) => return vec![broken(file.display().to_string(), e.message())],
    };
    let of_file = catalogue.tools.into_iter().filter(|tool| matches!(tool.origin, Origin::Executable { .. }));
    let tools = of_file.map(|tool| match wanting(&tool) {
        None => Item { tool: Some(tool), left_out: None, status: "ok", why: None },
        Some(why) => broken(tool.name, why),
    });
    tools.chain(catalogue.broken.into_iter().map(Item::of_broken)).collect()
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    fields::check(&args.query.fields, &MEMBERS)?;
    if !args.check.is_empty() {
        return check(&args.check, context);
    }
    let catalogue = args.tools.sources(context)?.resolve(context)?;
    let tools =
        catalogue.tools.into_iter().map(|tool| Item { tool: Some(tool), left_out: None, status: "ok", why: None });
    let broken = catalogue.broken.into_iter().map(Item::of_broken);
    let items = projected(tools.chain(broken), &args.query.fields)?;
    let (items, next_cursor) = page(items, &args.query)?;
    context.out.answer(&Page { count: items.len(), has_more: next_cursor.is_some(), items, next_cursor })
}
