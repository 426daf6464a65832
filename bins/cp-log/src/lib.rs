//! `cp-log`: the verbs over the ledger.

mod append;
mod blobs;
mod check_proof;
mod checkpoint;
mod create;
mod export;
mod follow;
mod forget;
mod jq;
mod keygen;
mod prove;
mod query;
mod repair;
mod reveal;
mod rotate;
#[cfg(test)]
mod schemas;
mod select;
mod stats;
mod target;
mod tee;
mod tip;
mod verify;
mod witness;

use cp_common::program::{Class, Credentials, Program, VerbDoc};
use cp_common::{Context, Result};

const fn verb(path: &'static str, class: Class, output: &'static str, examples: &'static [&'static str]) -> VerbDoc {
    VerbDoc { path, class, output, examples, dangerous: false }
}

/// What `cp-log` is.
pub static PROGRAM: Program = Program {
    name: "cp-log",
    about: "keep, query and prove a tamper-evident ledger",
    risk_tier: "T1",
    verbs: &[
        verb(
            "append",
            Class::Append,
            "receipt",
            &["{} append --event deploy 'version 7 is live'", "seq 3 | {} append --event tick --sync batch"],
        ),
        verb("create", Class::Append, "begun", &["{} create --name example.com/audit audit.jsonl"]),
        verb("tee", Class::Append, "entry", &["seq 3 | {} tee copy.jsonl"]),
        verb("query", Class::Query, "entry", &["{} query --event deploy --limit 1", "{} query --fields seq,event"]),
        verb("follow", Class::Query, "entry", &["{} append hello && {} follow --last 1 --limit 1"]),
        verb("stats", Class::Query, "stats", &["{} append hello && {} stats"]),
        verb("export", Class::Query, "otlp", &["{} append hello && {} export --to otlp"]),
        verb(
            "reveal",
            Class::Query,
            "revealed",
            &["{} append --seal message secret && {} reveal $({} query --event log --jq '.message[]' --format raw)"],
        ),
        VerbDoc {
            path: "forget",
            class: Class::Write,
            output: "forgotten",
            examples: &[
                "{} append --seal message secret && {} forget --dangerous --dry-run $({} query --event log --jq '.message[]' --format raw)",
            ],
            dangerous: true,
        },
        verb(
            "blob",
            Class::Query,
            "blob",
            &[
                "head -c 2000000 /dev/zero | tr '\\0' x | {} append && {} blob $({} query --event log --jq .message.blob --format raw)",
            ],
        ),
        verb("tip", Class::Query, "tip", &["{} append hello && {} tip"]),
        verb("verify", Class::Query, "verified", &["{} append hello && {} verify"]),
        verb("repair", Class::Write, "repaired", &["{} append hello && {} repair --dry-run"]),
        verb("rotate", Class::Append, "rotated", &["{} append hello && {} rotate"]),
        verb("keygen", Class::Append, "made", &["{} keygen K"]),
        verb("checkpoint", Class::Append, "signed", &["{} append hello && {} keygen C && {} checkpoint --key C"]),
        verb(
            "prove",
            Class::Query,
            "proof",
            &["{} append hello && {} keygen P && {} checkpoint --key P && {} prove 1"],
        ),
        verb(
            "check-proof",
            Class::Query,
            "checked",
            &[
                "{} append -f l.jsonl hello && {} keygen Q && {} checkpoint -f l.jsonl --key Q && {} prove 1 -f l.jsonl --format raw > p && sed -n 2p l.jsonl | {} check-proof --key Q.pub p",
            ],
        ),
        verb(
            "witness",
            Class::Append,
            "witnessed",
            &[
                "{} append hello && {} keygen R && {} keygen W && {} checkpoint --key R && {} checkpoint --witness-request --format raw | {} witness --key W --signer R.pub --state seen",
            ],
        ),
    ],
    implicit: None,
    schemas: &[
        ("begun", include_str!("../schemas/begun.json")),
        ("blob", include_str!("../schemas/blob.json")),
        ("checked", include_str!("../schemas/checked.json")),
        cp_common::wire::schemas::RECEIPT,
        ("entry", include_str!("../schemas/entry.json")),
        ("forgotten", include_str!("../schemas/forgotten.json")),
        ("made", include_str!("../schemas/made.json")),
        ("otlp", include_str!("../schemas/otlp.json")),
        ("proof", include_str!("../schemas/proof.json")),
        ("repaired", include_str!("../schemas/repaired.json")),
        ("revealed", include_str!("../schemas/revealed.json")),
        ("rotated", include_str!("../schemas/rotated.json")),
        ("signed", include_str!("../schemas/signed.json")),
        ("stats", include_str!("../schemas/stats.json")),
        ("tip", include_str!("../schemas/tip.json")),
        ("verified", include_str!("../schemas/verified.json")),
        ("witnessed", include_str!("../schemas/witnessed.json")),
    ],
    checks: target::checks,
    credentials: |_| Credentials { configured: true, sources: Vec::new() },
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
    Create(create::Args),
    Tee(tee::Args),
    Query(query::Args),
    Follow(follow::Args),
    Stats(stats::Args),
    Blob(blobs::Args),
    Export(export::Args),
    Reveal(reveal::Args),
    Forget(forget::Args),
    Tip(tip::Args),
    Verify(verify::Args),
    Repair(repair::Args),
    Rotate(rotate::Args),
    Keygen(keygen::Args),
    Checkpoint(checkpoint::Args),
    Prove(prove::Args),
    CheckProof(check_proof::Args),
    Witness(witness::Args),
}

/// Runs the verb that was asked for.
pub fn run(cli: Cli, context: &mut Context) -> Result<()> {
    match cli.verb {
        Verb::Append(args) => append::run(&args, context),
        Verb::Create(args) => create::run(&args, context),
        Verb::Tee(args) => tee::run(&args, context),
        Verb::Query(args) => query::run(&args, context),
        Verb::Follow(args) => follow::run(&args, context),
        Verb::Stats(args) => stats::run(&args, context),
        Verb::Blob(args) => blobs::run(&args, context),
        Verb::Export(args) => export::run(&args, context),
        Verb::Reveal(args) => reveal::run(&args, context),
        Verb::Forget(args) => forget::run(&args, context),
        Verb::Tip(args) => tip::run(&args, context),
        Verb::Verify(args) => verify::run(&args, context),
        Verb::Repair(args) => repair::run(&args, context),
        Verb::Rotate(args) => rotate::run(&args, context),
        Verb::Keygen(args) => keygen::run(&args, context),
        Verb::Checkpoint(args) => checkpoint::run(&args, context),
        Verb::Prove(args) => prove::run(&args, context),
        Verb::CheckProof(args) => check_proof::run(&args, context),
        Verb::Witness(args) => witness::run(&args, context),
    }
}
