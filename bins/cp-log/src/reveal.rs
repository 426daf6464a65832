//! `cp-log reveal`: the value behind a seal, as long as it is kept.

use std::path::PathBuf;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::vault;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::target::own_ledger;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "reveal",
    class: Class::Query,
    output: "revealed",
    examples: &["{} append --seal message secret && {} reveal $({} query --event log --jq '.message[]' --format raw)"],
    dangerous: false,
};

/// Print the value that a line has sealed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The hash, as the line has it
    #[arg(value_name = "HASH")]
    hash: String,
}

/// A sealed value.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Revealed {
    /// The hash in the line.
    sealed: String,
    /// The value.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    value: Box<RawValue>,
}

impl Reply for Revealed {
    fn text(&self) -> String {
        cp_common::json::unquote(self.value.get().as_bytes()).unwrap_or_else(|| self.value.get().to_owned())
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let hash = Hash::parse(&args.hash).ok_or_else(|| Error::usage(format!("`{}` is not a hash", args.hash)))?;
    let ledger = own_ledger(args.file.as_deref(), context);
    let value = vault::reveal(&ledger, &hash)?;
    let value = value
        .ok_or_else(|| Error::not_found(format!("no value for {hash}: it was forgotten, or never sealed here")))?;
    context.out.answer(&Revealed { sealed: hash.to_string(), value })
}
