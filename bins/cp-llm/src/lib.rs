//! `cp-llm`: send a prompt to a model, get a message.
//!
//! A prompt that policy permits ([`policy`]) becomes a request in the dialect of a backend ([`wire`]), goes over HTTP ([`http`],
//! [`exchange`]), is tried again and on other models ([`call`], [`retry`]), is recorded ([`book`]), and comes out as a message ([`send`]),
//! alone or among many ([`batch`]).

mod backend;
mod batch;
mod book;
mod budget;
mod call;
mod dry_run;
mod exchange;
mod governed;
mod http;
mod llm;
mod loose;
mod message;
mod mirror;
mod models;
mod options;
mod pace;
mod policy;
mod prices;
mod program;
mod resume;
mod retry;
mod schema;
mod secret;
mod send;
mod sse;
mod stub;
mod tape;
mod wire;
mod work;

use cp_common::program::{Check, Class, Program, Status, VerbDoc};
use cp_common::{Context, Result};

/// What this program says of itself.
pub static PROGRAM: Program = Program {
    name: "cp-llm",
    about: "send a prompt to a model and get a message",
    risk_tier: "T1",
    verbs: &[
        VerbDoc {
            path: "",
            class: Class::Governed,
            output: "message",
            examples: &["cp-llm --backend stub -- hello", "cp-llm --backend stub --dry-run -s 'be brief' -- hello"],
            dangerous: false,
        },
        VerbDoc {
            path: "models",
            class: Class::Query,
            output: "models",
            examples: &["cp-llm models --backend stub"],
            dangerous: false,
        },
    ],
    implicit: Some("send"),
    schemas: &[
        cp_common::wire::schemas::MESSAGE,
        cp_common::wire::schemas::DELTA,
        ("models", include_str!("../schemas/models.json")),
        ("item", include_str!("../schemas/item.json")),
    ],
    checks,
    credentials: backend::credentials,
    audit: book::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-llm")]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    #[command(hide = true)]
    Send(Box<options::Args>),
    Models(models::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Send(args) => send::run(&args, context),
        Verb::Models(args) => models::run(&args, context),
    }
}

fn checks(context: &mut Context) -> Vec<Check> {
    let mut checks = Vec::new();
    match backend::name_of(None, None, context) {
        Ok(name) => checks.extend([probe(&name, context), Some(Check::pass("backend", name))].into_iter().flatten()),
        Err(e) => {
            let cure = e.hint_text().unwrap_or("choose with --backend");
            checks.push(Check::not_fine("backend", Status::Warn, e.message(), cure));
        }
    }
    if let Err(e) = policy::Policy::load(&context.home) {
        let cure = e.hint_text().unwrap_or("correct the file");
        checks.push(Check::not_fine("policy", Status::Fail, e.message(), cure));
    }
    let file = context.home.path("config/prices.toml");
    checks.push(match prices::Prices::load(&file) {
        Ok(_) if file.exists() => Check::pass("prices", file.display().to_string()),
        Ok(_) => {
            Check::not_fine("prices", Status::Warn, "no prices: costs are null", format!("write {}", file.display()))
        }
        Err(e) => Check::not_fine("prices", Status::Fail, e.message(), "correct the file"),
    });
    checks
}

/// Whether the server takes our key: the cheapest thing that can be asked is what models it has.
fn probe(name: &str, context: &Context) -> Option<Check> {
    let outcome = models::of_backend(name, std::time::Duration::from_secs(5), context)?;
    Some(match outcome {
        Ok(models) => Check::pass("upstream", format!("{name} has {} models for this key", models.len())),
        Err(e) => Check::not_fine(
            "upstream",
            Status::Fail,
            e.message(),
            e.hint_text().unwrap_or("see error.code with `cp-llm models`"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schemas that are checked in are those of the types. `UPDATE=1` writes them.
    #[test]
    fn schemas_are_those_of_the_types() {
        let request = serde_json::to_value(schemars::schema_for!(dry_run::DryRun)).unwrap();
        let models = serde_json::to_value(schemars::schema_for!(models::Models)).unwrap();
        for (name, schema) in [("item", request), ("models", models)] {
            let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas").join(format!("{name}.json"));
            let text = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
            if std::env::var_os("UPDATE").is_some() {
                std::fs::write(&file, &text).unwrap();
            }
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text, "{}: run with UPDATE=1", file.display());
        }
    }
}
