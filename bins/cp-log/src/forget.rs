//! `cp-log forget`: take a sealed value away for good. The line that sealed it stays, and so does the chain.

use std::path::PathBuf;

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::vault;
use cp_ledger::{Entry, Ledger, Sync};
use serde::Serialize;
use serde_json::json;

use crate::target::own_ledger;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "forget",
    class: Class::Write,
    output: "forgotten",
    examples: &[
        "{} append --seal message secret && {} forget --dangerous --dry-run $({} query --event log --jq '.message[]' --format raw)",
    ],
    dangerous: true,
};

/// Take a sealed value away for good; the chain stands
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    write: WriteOptions,
    /// The hash, as the line has it
    #[arg(value_name = "HASH")]
    hash: String,
}

/// What was forgotten.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Forgotten {
    /// The hash in the line.
    sealed: String,
    /// The entry that says so.
    receipt: Receipt,
}

impl Reply for Forgotten {
    fn text(&self) -> String {
        format!("forgot {}", self.sealed)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let hash = Hash::parse(&args.hash).ok_or_else(|| Error::usage(format!("`{}` is not a hash", args.hash)))?;
    let ledger = own_ledger(args.file.as_deref(), context);
    let change = Change {
        action: "forget".to_owned(),
        resource: "sealed value".to_owned(),
        id: hash.to_string(),
        before: json!({"ledger": ledger.display().to_string()}),
        after: json!(null),
    };
    if !confirm::gate("forget", vec![change], true, &args.write, context)? {
        return Ok(());
    }
    if !vault::forget(&ledger, &hash)? {
        return Err(Error::not_found(format!("no value for {hash}")));
    }
    let receipt =
        Ledger::open(&ledger, Sync::Line)?.append(Entry::new("ledger.forgotten").with("sealed", &hash.to_string()))?;
    context.out.answer(&Forgotten { sealed: hash.to_string(), receipt })
}
