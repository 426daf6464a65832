//! `cp-report`: make a page that shows what happened and proves itself.
//!
//! The lines of a bundle ([`bundle`]) are folded into the summary of the page ([`model`]), and audited ([`audit`]). The page ([`page`],
//! [`svg`]) has the summary, the bundle as it is, and a script that renders and proves the lines.

mod audit;
mod bundle;
mod model;
mod page;
mod report;
#[cfg(test)]
mod schemas;
mod svg;

use cp_common::program::{Credentials, Program};
use cp_common::{Context, Result};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-report",
    about: "make a page that shows what happened and proves itself",
    risk_tier: "T0",
    verbs: &[report::DOC],
    groups: &[],
    doctor: &[],
    environment: &[],
    schemas: &[("item", include_str!("../schemas/item.json"))],
    checks: |_| Vec::new(),
    credentials: |_| Credentials::none_needed(),
    audit: |_| Ok(None),
};

/// The command line.
#[derive(clap::Parser)]
#[command(name = "cp-report")]
pub struct Cli {
    #[command(flatten)]
    args: report::Args,
}

/// Runs the program.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    report::run(&cli.args, context)
}
