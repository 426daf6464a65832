//! `cp-compose system`: the system text alone.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use serde::Serialize;

use crate::assembly::Assembly;
use crate::options::Identity;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "system",
    class: Class::Query,
    output: "system_text",
    examples: &["cp-compose system -s 'be brief'"],
    ..VerbDoc::EMPTY
};

/// Print the system text alone: the agent's soul, its context, and what -s adds
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: Identity,
}

/// A system text.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SystemText {
    /// Who speaks.
    agent: String,
    /// The text; empty where nothing says anything.
    system: String,
    /// How many secrets were taken out of it.
    redactions: u32,
}

impl Reply for SystemText {
    fn text(&self) -> String {
        self.system.clone()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let assembly = Assembly::new(&args.identity, None, context)?;
    let answer = SystemText {
        agent: assembly.agent_id().to_owned(),
        system: assembly.system().unwrap_or_default().to_owned(),
        redactions: assembly.account.parts.iter().map(|part| part.redactions).sum(),
    };
    context.out.answer(&answer)
}
