//! `cp-toolloop tools`: what a model would be offered, and what was left out.

use cp_common::context::options::QueryOptions;
use cp_common::wire::Reply;
use cp_common::wire::fields;
use cp_common::{Context, Error, Result};
use serde::Serialize;
use serde_json::Value;

use crate::run::ToolOptions;
use crate::tool::Tool;

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
        let word = |item: &Value, name: &str| item.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let line = |item: &Value| {
            if item.get("why").is_some() {
                return format!("✗ {}: {}", word(item, "left_out"), word(item, "why"));
            }
            let description = word(item, "description");
            format!("{:<24} {}", word(item, "name"), description.lines().next().unwrap_or_default())
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
    let items = tools.chain(broken).map(|item| {
        let value = serde_json::to_value(&item).map_err(|e| Error::new(cp_common::Code::Unknown, e.to_string()))?;
        Ok(fields::project(value, &args.query.fields))
    });
    let items = items.collect::<Result<Vec<Value>>>()?;
    let (items, next_cursor) = page(items, &args.query)?;
    context.out.answer(&Page { count: items.len(), has_more: next_cursor.is_some(), items, next_cursor })
}

/// The part of a list that was asked for, and where the next part begins.
pub(crate) fn page<T>(items: Vec<T>, query: &QueryOptions) -> Result<(Vec<T>, Option<String>)> {
    let skip: usize = match &query.cursor {
        Some(cursor) => {
            cursor.parse().map_err(|_| Error::usage("--cursor must be the next_cursor of an earlier page"))?
        }
        None => 0,
    };
    let take = query.limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let more = items.len() > skip.saturating_add(take);
    let next = more.then(|| (skip + take).to_string());
    Ok((items.into_iter().skip(skip).take(take).collect(), next))
}
