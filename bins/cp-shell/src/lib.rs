//! `cp-shell`: the front door. The map: its verbs, each a file, and below them
//!
//! - [`interactive`]: the session with a person
//! - [`pipe`]: the session with a program
//! - [`agent`]: who answers a turn
//! - [`journal`]: the ledgers of a session
//! - [`signals`]: the state of a session in a few numbers and words
//! - [`plane`]: the control plane tree, read
//! - [`update`]: signed releases of all programs, installed

mod agent;
mod config;
mod init;
mod interactive;
mod journal;
mod pipe;
mod plane;
mod register;
mod reset;
mod session;
mod signals;
mod update;

use agent::load_agents;
use clap::{Parser, Subcommand};
use cp_common::coprocess;
use cp_common::program::{Check, Credentials, Program, Status};
use cp_common::wire::schemas;
use cp_common::{Context, Result};
use serde_json::Value;

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
    Register(register::Args),
    Reset(reset::Args),
    Update(update::Args),
}

/// The program, for `reference` and `doctor`.
pub static PROGRAM: Program = Program {
    name: "cp-shell",
    about: "the front door: requests from programs, a session with a person",
    risk_tier: "T2",
    verbs: &[
        session::DOC,
        init::DOC,
        config::DOC,
        config::DOC_GET,
        config::DOC_AGENT,
        register::DOC,
        reset::DOC,
        update::DOC,
    ],
    implicit: Some("session"),
    groups: &[],
    doctor: &[],
    environment: &[
        ("CP_AGENT", "The agent: an id in config/agents.json, or default"),
        ("CP_BACKEND", "The backend of cp-llm"),
        ("CP_MODEL", "The model of cp-llm"),
        ("CP_SESSION", "The session, where none is named"),
        ("HISTFILE", "The history of the person's shell"),
        ("HTTPS_PROXY", "The proxy of requests over TLS, for releases"),
        ("http_proxy", "The proxy of requests without TLS, for releases"),
        ("ALL_PROXY", "The proxy of requests of either kind, for releases"),
        ("NO_PROXY", "The hosts that are reached without a proxy"),
        ("SSL_CERT_FILE", "Certificate authorities to trust instead of the built-in ones"),
        ("CARGO_HOME", "Where cargo has installed the programs, if it has"),
        ("NO_COLOR", "Show no colour"),
        ("COLUMNS", "The width, where the terminal does not report one"),
    ],
    schemas: &[
        ("init", include_str!("../schemas/init.json")),
        ("config", include_str!("../schemas/config.json")),
        ("setting", include_str!("../schemas/setting.json")),
        ("agent_setting", include_str!("../schemas/agent_setting.json")),
        ("registered", include_str!("../schemas/registered.json")),
        ("reset", include_str!("../schemas/reset.json")),
        ("update", include_str!("../schemas/update.json")),
        ("response", include_str!("../schemas/response.json")),
        schemas::TOOL_RESULT,
    ],
    checks,
    credentials: |_| Credentials::none_needed(),
    audit: cp_ledger::audit,
};

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Session(args) => session::run(&args, context),
        Verb::Init(args) => init::run(&args, context),
        Verb::Config(args) => config::run(&args, context),
        Verb::Register(args) => register::run(&args, context),
        Verb::Reset(args) => reset::run(&args, context),
        Verb::Update(args) => update::run(&args, context),
    }
}

/// The data of the answer of one of our programs to these words.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)?.data()
}

/// Whether the programs that it runs are installed, and the agents can be read.
fn checks(context: &mut Context) -> Vec<Check> {
    let names = ["cp-log", "cp-session", "cp-compose", "cp-llm", "cp-exec", "cp-toolloop"];
    let mut checks: Vec<Check> = names
        .into_iter()
        .map(|name| match coprocess::find(name) {
            Ok(path) => Check::pass(name, path.display().to_string()),
            Err(e) => Check::not_fine(name, Status::Fail, e.message(), e.hint_text().unwrap_or("install it")),
        })
        .collect();
    checks.push(match load_agents(&context.home.agents_file()) {
        Ok(agents) => Check::pass("agents", format!("{} configured", agents.len())),
        Err(e) => Check::not_fine("agents", Status::Fail, e.message(), e.hint_text().unwrap_or("correct the file")),
    });
    // Without cp-llm it is said above.
    if coprocess::find("cp-llm").is_ok() {
        checks.push(backend_check(context));
    }
    checks
}

/// Whether a model can be asked, as cp-llm finds it.
fn backend_check(context: &Context) -> Check {
    let found = ask(context, "cp-llm", &["doctor"]).map(|found| {
        let checks = found["checks"].as_array().into_iter().flatten();
        let mut faults = checks.filter(|check| check["check"] == "backend");
        faults.find(|check| check["status"] != "pass").cloned().map(|fault| {
            let word = |name: &str| fault[name].as_str().unwrap_or_default().to_owned();
            (word("message"), word("fix"))
        })
    });
    match found {
        Ok(None) => Check::pass("backend", "a model can be asked"),
        Ok(Some((message, fix))) => Check::not_fine("backend", Status::Warn, message, fix),
        Err(e) => Check::not_fine("backend", Status::Warn, e.message(), "run cp-llm doctor"),
    }
}
