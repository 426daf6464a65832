//! `cp-log`: the verbs over the ledger.

mod append;
mod audit;
mod bundle;
mod checkpoint;
mod events;
mod follow;
mod ledger;
mod lifecycle;
mod page;
mod prove;
mod query;
mod reading;
#[cfg(test)]
mod schemas;
mod stats;
mod verify;

use cp_common::program::Program;
use cp_common::{Context, Result};

/// The description of this program.
pub static PROGRAM: Program = Program {
    name: "cp-log",
    about: "keep, query and prove a tamper-evident ledger",
    risk_tier: "T1",
    compliance: None,
    verbs: &[
        append::DOC,
        lifecycle::CREATE_DOC,
        append::TEE_DOC,
        query::DOC,
        follow::DOC,
        stats::DOC,
        ledger::BLOB_DOC,
        ledger::TIP_DOC,
        verify::DOC,
        audit::DOC,
        bundle::DOC,
        page::DOC,
        lifecycle::REPAIR_DOC,
        lifecycle::ROTATE_DOC,
        checkpoint::KEYGEN_DOC,
        checkpoint::DOC,
        prove::DOC,
        prove::CHECK_DOC,
    ],
    groups: &[
        ("Write", &["append", "tee", "create", "rotate", "repair"]),
        ("Read", &["query", "follow", "stats", "blob", "tip"]),
        ("Prove", &["verify", "audit", "keygen", "checkpoint", "prove", "check-proof", "bundle", "page"]),
    ],
    environment: &[
        ("CP_LEDGER", "The ledger, where none is named"),
        ("TMPDIR", "The directory of temporary files, which bundles need"),
        ("CP_SESSION", "The session, where none is named"),
        ("TZ", "The zone of today and yesterday"),
    ],
    schemas: cp_common::schemas!(
        begun blob bundled checked claim planned entry made proof repaired rotated signed stats tip verified
    ),
    checks: ledger::checks,
    credentials: None,
    audit: cp_ledger::audit,
};

/// Keep, query and prove a tamper-evident ledger
#[derive(Debug, clap::Parser)]
#[command(name = "cp-log", version)]
pub struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, clap::Subcommand)]
enum Verb {
    Append(append::Args),
    Create(lifecycle::CreateArgs),
    Tee(append::TeeArgs),
    Query(query::Args),
    Follow(follow::Args),
    Stats(stats::Args),
    Blob(ledger::BlobArgs),
    Tip(ledger::TipArgs),
    Verify(verify::Args),
    Audit(audit::Args),
    Bundle(bundle::Args),
    Page(page::Args),
    Repair(lifecycle::RepairArgs),
    Rotate(lifecycle::RotateArgs),
    Keygen(checkpoint::KeygenArgs),
    Checkpoint(checkpoint::Args),
    Prove(prove::Args),
    CheckProof(prove::CheckArgs),
}

/// Runs the verb of the command line.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Append(args) => append::run(&args, context),
        Verb::Create(args) => lifecycle::create(&args, context),
        Verb::Tee(args) => append::tee(&args, context),
        Verb::Query(args) => query::run(&args, context),
        Verb::Follow(args) => follow::run(&args, context),
        Verb::Stats(args) => stats::run(&args, context),
        Verb::Blob(args) => ledger::blob(&args, context),
        Verb::Tip(args) => ledger::tip(&args, context),
        Verb::Verify(args) => verify::run(&args, context),
        Verb::Audit(args) => audit::run(&args, context),
        Verb::Bundle(args) => bundle::run(&args, context),
        Verb::Page(args) => page::run(&args, context),
        Verb::Repair(args) => lifecycle::repair(&args, context),
        Verb::Rotate(args) => lifecycle::rotate(&args, context),
        Verb::Keygen(args) => checkpoint::keygen(&args, context),
        Verb::Checkpoint(args) => checkpoint::run(&args, context),
        Verb::Prove(args) => prove::run(&args, context),
        Verb::CheckProof(args) => prove::check_proof(&args, context),
    }
}
