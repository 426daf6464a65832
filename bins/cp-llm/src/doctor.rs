//! What `doctor` checks: the backend and its key, the policy, the prices.

use std::time::Duration;

use cp_common::program::{Check, Status};
use cp_common::{Context, Error};

use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{DialectName, Endpoint};
use crate::backend::external;
use crate::engine::prices::Prices;
use crate::models;
use crate::policy::Policy;

/// The longest time to wait for a server.
const LIMIT: Duration = Duration::from_secs(5);

/// The longest time to wait for a program, which may have a model to load.
const PROGRAM_LIMIT: Duration = Duration::from_mins(1);

/// The checks of this program.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let mut checks = Vec::new();
    match Endpoints::load(&context.config, None).and_then(|endpoints| endpoints.default_for(None)) {
        Ok(endpoint) if endpoint.dialect == DialectName::Program => checks.extend(program(&endpoint)),
        Ok(endpoint) => {
            checks.extend(upstream(&endpoint, context));
            checks.push(Check::pass("backend", &endpoint.name));
        }
        Err(e) => checks.push(failing("backend", Status::Warn, &e, "choose with --backend")),
    }
    if let Err(e) = Policy::load(&context.home) {
        checks.push(failing("policy", Status::Fail, &e, "correct the file"));
    }
    let file = context.home.path("config/prices.toml");
    checks.push(match Prices::load(&file) {
        Ok(_) if file.exists() => Check::pass("prices", file.display().to_string()),
        Ok(_) => {
            Check::not_fine("prices", Status::Warn, "no prices: costs are null", format!("write {}", file.display()))
        }
        Err(e) => failing("prices", Status::Fail, &e, "correct the file"),
    });
    checks
}

/// Whether a backend of the user's own answers as it must: a check for each thing that is wrong.
fn program(endpoint: &Endpoint) -> Vec<Check> {
    let name = endpoint.program();
    let faults = match external::examine(name, PROGRAM_LIMIT) {
        Ok(faults) => faults,
        Err(e) => return vec![failing("backend", Status::Fail, &e, "name an executable")],
    };
    if faults.is_empty() {
        return vec![Check::pass("backend", format!("{name} answered a prompt"))];
    }
    let fix = "see WRITING A BACKEND in cp-authors(7)";
    faults.into_iter().map(|fault| Check::not_fine("backend", Status::Fail, format!("{name}: {fault}"), fix)).collect()
}

/// Whether the server accepts our key: listing its models is the cheapest request.
fn upstream(endpoint: &Endpoint, context: &Context) -> Option<Check> {
    let name = &endpoint.name;
    match models::of_endpoint(endpoint, LIMIT, context) {
        Ok(models) => {
            let count = models?.len();
            Some(Check::pass("upstream", format!("{name} has {count} models for this key")))
        }
        Err(e) => Some(failing("upstream", Status::Fail, &e, "see error.code with `cp-llm models`")),
    }
}

fn failing(name: &'static str, status: Status, error: &Error, hint: &str) -> Check {
    Check::not_fine(name, status, error.message(), error.hint_text().unwrap_or(hint))
}
