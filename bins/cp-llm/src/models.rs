//! `cp-llm models`: the models of backends.

use std::time::Duration;

use cp_common::context::options::{QueryOptions, seconds};
use cp_common::context::pages::Pages;
use cp_common::output::Severity;
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;

use crate::backend::Backends;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Endpoint};
use crate::backend::price::Prices;
use crate::policy::Policy;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "models",
    class: Class::Query,
    output: "models",
    examples: &["cp-llm models --backend stub"],
    sort: Some("id"),
    ..VerbDoc::EMPTY
};

/// List the models of the default backend, or of all configured ones
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The backend: a provider, an endpoint of config/cp.toml, ollama, llamacpp, vllm, lmstudio or stub
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// The time limit of each list
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "30s")]
    timeout: f64,
    #[command(flatten)]
    query: QueryOptions,
}

/// A model.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Model {
    /// The name, for `-m`.
    id: String,
    /// The wire API of its endpoint.
    backend: String,
    /// The name of its endpoint.
    endpoint: String,
    /// True if its price is known.
    priced: bool,
}

impl Reply for Model {
    fn text(&self) -> String {
        self.id.clone()
    }
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let permission = Policy::load(&context.home)?.permission();
    let endpoints = Endpoints::load(&context.config, args.backend.as_deref())?.probing(permission().is_ok());
    let meant = endpoints.selected()?;
    let names: Vec<&str> = meant.iter().map(|endpoint| endpoint.name.as_str()).collect();
    let pages = Pages::of("cp-llm models", &names.join(","), &args.query)?;
    let prices = Prices::load(&context.home.path("config/prices.toml"))?;
    let limit = Duration::from_secs_f64(args.timeout.max(1.0));
    let (mut models, mut failed) = (Vec::new(), None);
    for endpoint in &meant {
        let found = of_endpoint(endpoint, limit, context).and_then(|found| {
            found.ok_or_else(|| {
                Error::validation(format!("the backend {} cannot list its models", endpoint.name))
                    .hint("ask the program itself")
            })
        });
        let found = match found {
            // A failed list does not hide the others.
            Err(e) if meant.len() > 1 && e.code() != Code::Interrupted => {
                context.warn(e.message());
                context.out.notice("endpoint_not_listed", Severity::Warning, e.message().to_owned());
                failed.get_or_insert(e);
                continue;
            }
            found => found?,
        };
        models.extend(found.into_iter().map(|name| Model {
            priced: endpoint.price.is_some() || prices.knows(&name),
            id: if meant.len() > 1 { format!("{}/{name}", endpoint.name) } else { name },
            backend: endpoint.api.name().to_owned(),
            endpoint: endpoint.name.clone(),
        }));
    }
    if let Some(e) = failed.filter(|_| models.is_empty()) {
        return Err(e);
    }
    models.sort_by(|a, b| a.id.cmp(&b.id));
    models.dedup_by(|a, b| a.id == b.id);
    context.out.answer(&pages.page(models.into_iter().map(|model| (model.id.clone(), model)))?)
}

/// Lists the models of an endpoint; `None` if it has no such list.
pub(crate) fn of_endpoint(endpoint: &Endpoint, limit: Duration, context: &Context) -> Result<Option<Vec<String>>> {
    let permission = Policy::load(&context.home)?.permission();
    let backend = Backends::new(BackendOptions::new(limit, permission)).of(endpoint)?.backend;
    backend.models().transpose()
}
