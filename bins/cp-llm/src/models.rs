//! The models that a backend has.

use std::time::Duration;

use cp_common::context::options::QueryOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Reply, fields};
use cp_common::{Context, Error, Result};
use serde::Serialize;
use serde_json::Value;

use crate::backend::choice::{self, Setup};
use crate::engine::prices::Prices;
use crate::http::client::Timeouts;
use crate::policy::Policy;

/// What the reference says of this verb.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "models",
    class: Class::Query,
    output: "models",
    examples: &["cp-llm models --backend stub"],
    sort: Some("id"),
    ..VerbDoc::EMPTY
};

/// List the models that the backend has
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The backend: anthropic, openai, gemini or stub
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// How long to wait for the list, in seconds
    #[arg(long, value_name = "S", default_value_t = 30)]
    timeout: u64,
    #[command(flatten)]
    query: QueryOptions,
}

/// The answer.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Models {
    /// One page of them, in the order of their names.
    items: Vec<Value>,
    /// How many there are on this page.
    count: usize,
    /// Where the next page starts, if there is one.
    next_cursor: Option<String>,
    /// Whether there is one.
    has_more: bool,
}

/// A model.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Model {
    /// Its name, for -m.
    id: String,
    /// Who has it.
    backend: String,
    /// Whether config/prices.toml has its price.
    priced: bool,
}

impl Reply for Models {
    fn text(&self) -> String {
        self.items.iter().filter_map(|item| item.get("id")?.as_str()).collect::<Vec<_>>().join("\n")
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    fields::check(&args.query.fields, &["id", "backend", "priced"])?;
    let name = choice::name_of(args.backend.as_deref(), None, context)?;
    let found = of_backend(&name, Duration::from_secs(args.timeout.max(1)), context)?;
    let mut ids = found.ok_or_else(|| {
        Error::validation(format!("the backend {name} cannot list its models")).hint("ask the program itself")
    })?;
    ids.sort();
    ids.dedup();
    let prices = Prices::load(&context.home.path("config/prices.toml"))?;
    let answer = page(ids, &args.query, |id| Model { priced: prices.knows(&id), id, backend: name.clone() })?;
    context.out.answer(&answer)
}

/// The models of a backend; none where it cannot list them.
pub(crate) fn of_backend(name: &str, limit: Duration, context: &Context) -> Result<Option<Vec<String>>> {
    let timeouts = Timeouts { total: limit, idle: None };
    let backend = choice::by_name(name, &Setup { timeouts, connections: 1, needs_key: true, stub_script: None })?;
    let Some(list) = backend.model_list() else { return Ok(None) };
    if backend.is_metered() {
        Policy::load(&context.home)?.network()?;
    }
    list.models().map(Some)
}

/// The page that was asked for. The cursor is the last name of the page before.
fn page(ids: Vec<String>, query: &QueryOptions, model: impl Fn(String) -> Model) -> Result<Models> {
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
    let mut left = ids.into_iter().filter(|id| query.cursor.as_ref().is_none_or(|cursor| id > cursor)).peekable();
    let mut items = Vec::new();
    let mut last = None;
    while items.len() < limit {
        let Some(id) = left.next() else { break };
        last = Some(id.clone());
        let value = serde_json::to_value(model(id)).map_err(|e| Error::validation(e.to_string()))?;
        items.push(fields::project(value, &query.fields));
    }
    let has_more = left.peek().is_some();
    Ok(Models { count: items.len(), next_cursor: last.filter(|_| has_more), has_more, items })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_without_a_gap() {
        let ids: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
        let model = |id| Model { id, backend: "x".into(), priced: false };
        let first = page(ids.clone(), &QueryOptions { limit: Some(2), ..QueryOptions::default() }, model).unwrap();
        assert_eq!((first.text().as_str(), first.has_more, first.next_cursor.as_deref()), ("a\nb", true, Some("b")));
        let next = page(ids, &QueryOptions { cursor: first.next_cursor, ..QueryOptions::default() }, model).unwrap();
        assert_eq!((next.text().as_str(), next.has_more, next.next_cursor), ("c", false, None));
    }
}
