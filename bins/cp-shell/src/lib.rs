//! `cp-shell`: the front door. The map: its verbs, and what `reference` says of them.

mod agent;
mod agents;
mod config;
mod init;
mod interactive;
mod journal;
mod parts;
mod pipe;
mod plane;
mod reset;
mod session;
mod signals;

use clap::{Parser, Subcommand};
use cp_common::coprocess;
use cp_common::program::{Check, Class, Credentials, Program, Status, VerbDoc};
use cp_common::wire::schemas;
use cp_common::{Context, Result};

/// The front door: requests from programs, a session with a person
#[derive(Parser)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    #[command(hide = true)]
    Session(session::Args),
    Init(init::Args),
    Config(config::Args),
    Reset(reset::Args),
}

/// What the program says of itself.
pub static PROGRAM: Program = Program {
    name: "cp-shell",
    about: "the front door: requests from programs, a session with a person",
    risk_tier: "T2",
    verbs: &[
        VerbDoc {
            path: "",
            class: Class::Governed,
            output: "response",
            examples: &[
                "echo '{\"operation\":\"governed_roots\"}' | cp-shell | jq -c .result",
                "echo '{\"ok\":true,\"schema_version\":\"1.0\",\"type\":\"tool_call\",\"data\":{\"id\":\"1\",\"name\":\"explain_path\",\"input\":{\"path\":\"lib/x\"}},\"meta\":{\"duration_ms\":0}}' | cp-shell",
            ],
            dangerous: false,
        },
        VerbDoc {
            path: "init",
            class: Class::Append,
            output: "init",
            examples: &["cp-shell init --dry-run", "cp-shell init"],
            dangerous: false,
        },
        VerbDoc {
            path: "config",
            class: Class::Query,
            output: "config",
            examples: &["cp-shell config"],
            dangerous: false,
        },
        VerbDoc {
            path: "config get",
            class: Class::Query,
            output: "setting",
            examples: &["cp-shell config get tier"],
            dangerous: false,
        },
        VerbDoc {
            path: "config agent",
            class: Class::Query,
            output: "agent_setting",
            examples: &["cp-shell init | jq -c .ok; cp-shell config agent default soul"],
            dangerous: false,
        },
        VerbDoc {
            path: "reset",
            class: Class::Write,
            output: "reset",
            examples: &[
                "export CP_SESSION=$(cp-session start --format text); T=$(cp-shell reset --dry-run | jq -r .data.confirm_token); cp-shell reset --confirm \"$T\"",
            ],
            dangerous: false,
        },
    ],
    implicit: Some("session"),
    schemas: &[
        ("init", include_str!("../schemas/init.json")),
        ("config", include_str!("../schemas/config.json")),
        ("setting", include_str!("../schemas/setting.json")),
        ("agent_setting", include_str!("../schemas/agent_setting.json")),
        ("reset", include_str!("../schemas/reset.json")),
        ("response", include_str!("../schemas/response.json")),
        schemas::PREVIEW,
        schemas::RECEIPT,
        schemas::TOOL_RESULT,
    ],
    checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
    audit: cp_ledger::audit,
};

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Session(args) => session::run(&args, context),
        Verb::Init(args) => init::run(&args, context),
        Verb::Config(args) => config::run(&args, context),
        Verb::Reset(args) => reset::run(&args, context),
    }
}

/// Whether the programs that it works with are there, and the agents can be read.
fn checks(context: &mut Context) -> Vec<Check> {
    let names = ["cp-log", "cp-session", "cp-compose", "cp-llm", "cp-exec", "cp-toolloop"];
    let mut checks: Vec<Check> = names
        .into_iter()
        .map(|name| match coprocess::find(name) {
            Ok(path) => Check::pass(name, path.display().to_string()),
            Err(e) => Check::not_fine(name, Status::Fail, e.message(), e.hint_text().unwrap_or("install it")),
        })
        .collect();
    checks.push(match agents::load(&context.home.agents_file()) {
        Ok(agents) => Check::pass("agents", format!("{} configured", agents.len())),
        Err(e) => Check::not_fine("agents", Status::Fail, e.message(), e.hint_text().unwrap_or("correct the file")),
    });
    checks
}
