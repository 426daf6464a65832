//! The models that a backend has.

use std::time::Duration;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;

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

/// A model.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Model {
    /// Its name, for -m.
    id: String,
    /// Who has it.
    backend: String,
    /// Whether config/prices.toml has its price.
    priced: bool,
}

impl Reply for Model {
    fn text(&self) -> String {
        self.id.clone()
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let name = choice::name_of(args.backend.as_deref(), None, context)?;
    let pages = Pages::of("cp-llm models", &name, &args.query)?;
    let found = of_backend(&name, Duration::from_secs(args.timeout.max(1)), context)?;
    let mut ids = found.ok_or_else(|| {
        Error::validation(format!("the backend {name} cannot list its models")).hint("ask the program itself")
    })?;
    ids.sort();
    ids.dedup();
    let prices = Prices::load(&context.home.path("config/prices.toml"))?;
    let model = |id: String| (id.clone(), Model { priced: prices.knows(&id), id, backend: name.clone() });
    context.out.answer(&pages.page(ids.into_iter().map(model))?)
}

/// The models of a backend; none where it cannot list them.
pub(crate) fn of_backend(name: &str, limit: Duration, context: &Context) -> Result<Option<Vec<String>>> {
    let timeouts = Timeouts { total: limit, idle: None };
    let backend =
        choice::by_name(name, &Setup { timeouts, connections: 1, needs_key: true, stub_script: None, headers: &[] })?;
    let Some(list) = backend.model_list() else { return Ok(None) };
    if backend.is_metered() {
        Policy::load(&context.home)?.network()?;
    }
    list.models().map(Some)
}
