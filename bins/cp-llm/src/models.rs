//! The models that a backend has.

use std::time::Duration;

use cp_common::context::options::QueryOptions;
use cp_common::context::pages::Pages;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::Serialize;

use crate::backend::choice::Endpoints;
use crate::backend::endpoint::Endpoint;
use crate::backend::ready::{Backends, Setup};
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
    let endpoint = Endpoints::load(&context.config, args.backend.as_deref())?.default_for(None)?;
    let name = endpoint.name.clone();
    let pages = Pages::of("cp-llm models", &name, &args.query)?;
    let found = of_endpoint(&endpoint, Duration::from_secs(args.timeout.max(1)), context)?;
    let mut ids = found.ok_or_else(|| {
        Error::validation(format!("the backend {name} cannot list its models")).hint("ask the program itself")
    })?;
    ids.sort();
    ids.dedup();
    let prices = Prices::load(&context.home.path("config/prices.toml"))?;
    let model = |id: String| (id.clone(), Model { priced: prices.knows(&id), id, backend: name.clone() });
    context.out.answer(&pages.page(ids.into_iter().map(model))?)
}

/// The models of an endpoint; none where it cannot list them.
pub(crate) fn of_endpoint(endpoint: &Endpoint, limit: Duration, context: &Context) -> Result<Option<Vec<String>>> {
    let permission = Policy::load(&context.home)?.permission();
    let backends = Backends::new(Setup {
        timeouts: Timeouts { total: limit, idle: None },
        connections: 1,
        needs_key: true,
        stub_script: None,
        network: Box::new(move || permission().map(Some)),
    });
    let backend = backends.of(endpoint)?.backend;
    let Some(list) = backend.model_list() else { return Ok(None) };
    list.models().map(Some)
}
