//! `cp-llm`: send a prompt to a model, get a message.
//!
//! Each module uses only modules that come after it:
//!
//! - [`send`], [`jobs`], [`models`]: the verbs, and the checks of `doctor`
//! - [`policy`]: the prompts that may be sent, the use of the network, the budget
//! - [`engine`]: from a prompt to a message: tries, budgets, recordings, the ledger
//! - [`backend`]: servers, programs and the stub, which answer requests
//! - [`wire_api`]: requests and answers as each provider writes them
//! - [`code_block`]: fenced code in an answer
//! - [`command_line`]: this command line in the audit

mod backend;
mod code_block;
mod command_line;
mod engine;
mod jobs;
mod models;
mod policy;
mod send;
mod wire_api;

use std::time::Duration;

use cp_common::program::Program;
use cp_common::{Context, Result, signals};

/// The description of a variable with a key.
const KEY: &str = "API key; with _FILE added: a file with the key; with _COMMAND: a command that prints it";

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-llm",
    about: "send a prompt to a model and get a message",
    risk_tier: "T1",
    compliance: None,
    verbs: &[send::DOC, jobs::DOCS[0], jobs::DOCS[1], jobs::DOCS[2], jobs::DOCS[3], models::DOC],
    groups: &[],
    environment: &[
        ("ANTHROPIC_API_KEY", KEY),
        ("OPENAI_API_KEY", KEY),
        ("GEMINI_API_KEY", KEY),
        ("ANTHROPIC_BASE_URL", "Base URL of another server with the same API"),
        ("OPENAI_BASE_URL", "Base URL of another server with the same API"),
        ("GEMINI_BASE_URL", "Base URL of another server with the same API"),
        ("OLLAMA_HOST", "Address of Ollama, in the format of Ollama"),
        ("CAPABILITY_NETWORK", "The token that permits use of the network, where policy requires one"),
        ("CP_BACKEND", "The backend of cp-llm"),
        ("CP_MODEL", "The model of cp-llm"),
        ("CP_STUB_SCRIPT", "The script of the stub backend"),
        ("HTTPS_PROXY", "The proxy of requests over TLS"),
        ("http_proxy", "The proxy of requests without TLS"),
        ("ALL_PROXY", "The proxy of requests of either kind"),
        ("NO_PROXY", "The hosts that are reached without a proxy"),
        ("SSL_CERT_FILE", "Certificate authorities to trust instead of the built-in ones"),
        ("TRACEPARENT", "Passed on to the server"),
    ],
    schemas: cp_common::schemas!(batch_job models item),
    checks: models::checks,
    credentials: Some(backend::choice::credentials),
    audit: command_line::audit,
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-llm")]
pub struct Cli {
    #[command(flatten)]
    args: send::Args,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Let a provider answer prompts later, for less
    #[command(subcommand)]
    Batch(jobs::Verb),
    Models(models::Args),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        None => send::run(&cli.args, context),
        Some(Verb::Batch(verb)) => jobs::run(&verb, context),
        Some(Verb::Models(args)) => models::run(&args, context),
    }
}

/// Sleeps. Fails if a signal arrives first.
fn pause(length: Duration) -> Result<()> {
    if cp_http::pause(length) { Ok(()) } else { signals::check() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema files match the types. `UPDATE=1` writes them.
    #[test]
    fn schemas_match_types() {
        use cp_testkit::{of_record, same_or_update};
        let models = schemars::schema_for!(cp_common::wire::Page<models::Model>);
        for (name, schema) in [
            ("batch_job", of_record(schemars::schema_for!(jobs::state::BatchJob))),
            ("item", of_record(schemars::schema_for!(send::DryRun))),
            ("models", models),
        ] {
            same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
        }
    }
}
