//! `cp-shell`: an interactive shell, and JSON requests on standard input. Each verb is a file; the other modules are
//!
//! - [`interactive`]: the interactive session
//! - [`pipe`]: pipe mode, which answers JSON requests
//! - [`agent`]: the agents that answer turns
//! - [`journal`]: the ledgers of a session
//! - [`signals`]: the signals of a session, such as health and trust
//! - [`plane`]: reads the control plane tree
//! - [`update`]: installs signed releases of all programs

mod agent;
mod config;
mod init;
mod interactive;
mod journal;
mod pipe;
mod plane;
mod register;
mod signals;
mod update;

use std::io::IsTerminal as _;

use clap::{Parser, Subcommand};
use cp_common::coprocess;
use cp_common::program::{Check, Class, Input, Program, Status, VerbDoc};
use cp_common::{Context, Error, Result};
use serde_json::Value;

use crate::interactive::state::Request;

/// Interactive shell, and JSON requests on standard input
#[derive(Parser)]
pub struct Cli {
    /// Hold an interactive session even without a terminal
    #[arg(long, help_heading = "Session")]
    interactive: bool,
    #[command(flatten)]
    request: Request,
    #[command(subcommand)]
    verb: Option<Verb>,
}

#[derive(Subcommand)]
enum Verb {
    Init(init::Args),
    Config(config::Args),
    Register(register::Args),
    Update(update::Args),
}

/// The default verb: an interactive session at a terminal, or pipe mode.
const SESSION: VerbDoc = VerbDoc {
    examples: &["echo '{\"operation\":\"governed_roots\"}' | cp-shell | jq -c .result"],
    input: &[Input::Rows, Input::Person],
    events: &["agent_turn", "turn_evidence", "session_start", "session_question", "message", "session_turn"],
    ..VerbDoc::new("", Class::Governed, "response")
};

/// The program, for `reference` and `doctor`.
pub static PROGRAM: Program = Program {
    name: "cp-shell",
    about: "interactive shell, and JSON requests on standard input",
    risk_tier: "T2",
    compliance: Some(("SPEC-SHELL-001", &["FMWK-SHELL-001", "FMWK-100"])),
    verbs: &[SESSION, init::DOC, config::DOC, config::DOC_GET, config::DOC_AGENT, register::DOC, update::DOC],
    groups: &[],
    environment: &[
        ("CP_AGENT", "The agent: an id in config/agents.json, or default"),
        ("CP_BACKEND", "The backend of cp-llm"),
        ("CP_MODEL", "The model of cp-llm"),
        ("CP_SESSION", "The session, if no option names one"),
        ("HISTFILE", "The history of the person's shell"),
        ("HTTPS_PROXY", "The proxy of requests over TLS, for releases"),
        ("http_proxy", "The proxy of requests without TLS, for releases"),
        ("ALL_PROXY", "The proxy of requests of either kind, for releases"),
        ("NO_PROXY", "The hosts that are reached without a proxy"),
        ("SSL_CERT_FILE", "Certificate authorities to trust instead of the built-in ones"),
        ("CARGO_HOME", "The directory in which cargo installed the programs"),
        ("NO_COLOR", "Disable colour"),
        ("COLUMNS", "The width, if the terminal does not report it"),
    ],
    schemas: cp_common::schemas!(init config setting agent_setting registered update response),
    checks,
    credentials: None,
    audit: cp_ledger::audit,
};

/// Runs a verb.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        None => session(cli.interactive, cli.request, context),
        Some(Verb::Init(args)) => init::run(&args, context),
        Some(Verb::Config(args)) => config::run(&args, context),
        Some(Verb::Register(args)) => register::run(&args, context),
        Some(Verb::Update(args)) => update::run(&args, context),
    }
}

fn session(is_interactive: bool, mut request: Request, context: &mut Context) -> Result<()> {
    if is_interactive || std::io::stdin().is_terminal() {
        if request.offline {
            // An option wins over the backend that the name of a model selects.
            request.model.backend = context.config.text("backend", request.model.backend.as_deref());
        }
        interactive::run(&request, context)
    } else if request.continues {
        Err(Error::usage("--continue requires a terminal or --interactive").hint("or name the session with --session"))
    } else {
        pipe::run(request.agent.as_deref(), context)
    }
}

/// Runs one of our programs and returns the data of its answer.
pub(crate) fn ask(context: &Context, program: &str, words: &[&str]) -> Result<Value> {
    coprocess::ask(program, words, b"", context)
}

/// Checks that the programs that it runs are installed, and that the agents can be read.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let names = ["cp-log", "cp-session", "cp-compose", "cp-llm", "cp-exec", "cp-toolloop"];
    let mut checks: Vec<Check> = names
        .into_iter()
        .map(|name| match coprocess::find(name) {
            Ok(path) => Check::pass(name, path.display().to_string()),
            Err(e) => Check::not_fine(name, Status::Fail, e.message(), e.hint_text().unwrap_or("install it")),
        })
        .collect();
    checks.push(match context.home.agents::<serde_json::Map<String, Value>>() {
        Ok(agents) => Check::pass("agents", format!("{} configured", agents.len())),
        Err(e) => Check::not_fine("agents", Status::Fail, e.message(), e.hint_text().unwrap_or("correct the file")),
    });
    // A missing cp-llm is reported above.
    if coprocess::find("cp-llm").is_ok() {
        checks.push(backend_check(context));
    }
    checks
}

/// Checks with `cp-llm doctor` that a model can be reached.
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

#[cfg(test)]
mod tests {
    use cp_testkit::same_or_update;
    use schemars::schema_for;

    /// The checked-in schemas are those of the types. `UPDATE=1` rewrites them.
    #[test]
    fn schemas_match_types() {
        for (name, schema) in [
            ("init", schema_for!(crate::init::Made)),
            ("config", schema_for!(crate::config::All)),
            ("setting", schema_for!(crate::config::One)),
            ("agent_setting", schema_for!(crate::config::AgentSetting)),
            ("registered", schema_for!(crate::register::Registered)),
            ("update", schema_for!(crate::update::Updated)),
            ("response", schema_for!(crate::pipe::responder::Response)),
        ] {
            same_or_update(env!("CARGO_MANIFEST_DIR"), name, &schema);
        }
    }
}
