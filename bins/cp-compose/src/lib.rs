//! `cp-compose`: assembles a prompt and accounts for every part of it.
//!
//! The common part of all prompts ([`assembly`]) is read once: the agent ([`agent`]), the system text and the session
//! ([`history`]). Then each text, record or row of the input becomes a prompt ([`compose`]).

mod account;
mod agent;
mod assembly;
mod compose;
mod history;
mod sources;

use cp_common::program::{Check, Program, Status};
use cp_common::{Context, Result};
use cp_policy::{Llm, table};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-compose",
    about: "assemble a prompt and account for every part of it",
    risk_tier: "T0",
    compliance: None,
    verbs: &[compose::DOC],
    groups: &[],
    environment: &[
        ("CP_AGENT", "The agent: an id in config/agents.json, or default"),
        ("CP_SESSION", "The session, if no option names one"),
    ],
    schemas: cp_common::schemas!(explained),
    checks,
    credentials: None,
    audit: |_, _| Ok(()),
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-compose")]
pub struct Cli {
    #[command(flatten)]
    args: compose::Args,
}

/// Runs the program.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    let Cli { args } = cli;
    compose::run(&args, context)
}

fn checks(context: &mut Context) -> Vec<Check> {
    let check = |name: &str, status: Status, found: Result<String>| match found {
        Ok(message) => Check::pass(name, message),
        Err(e) => Check::not_fine(name, status, e.message(), e.hint_text().unwrap_or("correct the file")),
    };
    let home = &context.home;
    let agent = agent::Agent::load(&context.agent(None), home).map(|agent| agent.id);
    let policy = table::<Llm>(home, "llm").map(|_| home.policy_file().display().to_string());
    let session = cp_common::coprocess::find("cp-session").map(|path| path.display().to_string());
    vec![
        check("agent", Status::Fail, agent),
        check("policy", Status::Fail, policy),
        check("cp-session", Status::Warn, session),
    ]
}
