//! `cp-llm models`: the models of backends. The checks of `doctor` list them too, to find out whether a server accepts
//! the key.

use std::sync::Arc;
use std::time::Duration;

use cp_common::context::options::{Pages, QueryOptions, positive_seconds};
use cp_common::output::Severity;
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::wire::{Reply, Turn};
use cp_common::{Code, Context, Error, Result};
use serde::Serialize;

use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Endpoint};
use crate::backend::price::Prices;
use crate::backend::table::ApiName;
use crate::backend::{Backend, Backends};
use crate::policy::Policy;
use crate::wire_api::Request;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-llm models --backend stub"],
    sort: Some("id"),
    ..VerbDoc::new("models", Class::Query, "models")
};

/// List the models of the default backend, or of all configured ones
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The backend: a provider, an endpoint of config/cp.toml, ollama, llamacpp, vllm, lmstudio or stub
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// The time limit of each list
    #[arg(long, value_name = "DURATION", value_parser = positive_seconds, default_value = "30s")]
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
    let meant = Endpoints::load(context, args.backend.as_deref())?.selected()?;
    let names: Vec<&str> = meant.iter().map(|endpoint| endpoint.name.as_str()).collect();
    let pages = Pages::of("cp-llm models", &names.join(","), &args.query)?;
    let prices = Prices::load(&context.home.path("config/prices.toml"))?;
    let limit = Duration::from_secs_f64(args.timeout.max(1.0));
    let (mut models, mut failed) = (Vec::new(), None);
    for endpoint in &meant {
        let found = backend(endpoint, limit, context).and_then(|backend| {
            backend.models()?.ok_or_else(|| {
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
            priced: endpoint.table.price.is_some() || prices.price(&[&name]).is_some(),
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

/// The backend of an endpoint, with a time limit for each request.
fn backend(endpoint: &Endpoint, limit: Duration, context: &Context) -> Result<Arc<dyn Backend>> {
    let permission = Policy::load(context)?.permission();
    Ok(Backends::new(BackendOptions::new(limit, permission)).of(endpoint)?.backend)
}

/// The longest time to wait for a server.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest time to wait for a program, which may load a model first.
const PROGRAM_LIMIT: Duration = Duration::from_mins(1);

/// The hint for an endpoint that does not work.
const CORRECT: &str = "correct [endpoints] in config/cp.toml, or see WRITING A BACKEND in cp-authors(7)";

/// The checks of this program.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let checked = |name, found| check(name, Status::Fail, found, "correct the file");
    let mut checks = match Endpoints::load(context, None) {
        Ok(endpoints) => check_endpoints(&endpoints, context),
        Err(e) => vec![checked("backend", Err(e))],
    };
    checks.extend(Policy::load(context).err().map(|e| checked("policy", Err(e))));
    let file = context.home.path("config/prices.toml");
    checks.push(match Prices::load(&file) {
        Ok(_) if !file.exists() => Check::not_fine(
            "prices",
            Status::Warn,
            "no prices: costs are null",
            format!("`cp-shell init` writes {} with those of common models", file.display()),
        ),
        prices => checked("prices", prices.map(|_| file.display().to_string())),
    });
    checks
}

/// Checks the default endpoint and the other configured endpoints.
fn check_endpoints(endpoints: &Endpoints, context: &Context) -> Vec<Check> {
    let meant = endpoints.default_for(None);
    let mut checks = vec![match &meant {
        Ok(endpoint) => check("backend", Status::Fail, answers(endpoint, context), CORRECT),
        Err(e) => check("backend", Status::Warn, Err(e.clone()), "choose with --backend"),
    }];
    let others = endpoints.configured().into_iter();
    let others = others.filter(|endpoint| meant.as_ref().map_or(true, |meant| meant.name != endpoint.name));
    checks.extend(others.map(|endpoint| check("endpoint", Status::Warn, lists(&endpoint, context), CORRECT)));
    checks
}

/// Asks a program for an answer to a short prompt, because it has no list of models.
fn answers(endpoint: &Endpoint, context: &Context) -> Result<String> {
    if endpoint.api != ApiName::Program {
        return lists(endpoint, context);
    }
    let request = Request { messages: vec![Turn::text("user", "Say: ok")], ..Request::default() };
    backend(endpoint, PROGRAM_LIMIT, context)?.exchange(&request, &[], &mut |_, _| Ok(())).outcome?;
    Ok(format!("{} answered a prompt", endpoint.name))
}

/// Lists the models of a server, which it does only for a valid key.
fn lists(endpoint: &Endpoint, context: &Context) -> Result<String> {
    let models = backend(endpoint, LIMIT, context)?.models()?;
    let found = models.map(|models| format!("{} has {} models for this key", endpoint.name, models.len()));
    Ok(found.unwrap_or_else(|| endpoint.name.clone()))
}

/// The check for a result, or for the error with its own hint or this one.
fn check(name: &'static str, status: Status, found: Result<String>, hint: &str) -> Check {
    match found {
        Ok(message) => Check::pass(name, message),
        Err(e) => Check::not_fine(name, status, e.message(), e.hint_text().unwrap_or(hint)),
    }
}
