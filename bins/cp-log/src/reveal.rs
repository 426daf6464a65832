//! `cp-log reveal`: the value behind a seal, as long as it is kept.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::store::vault;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::ledger::{HashOperand, LedgerOption};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "reveal",
    class: Class::Query,
    output: "revealed",
    examples: &["{} append --seal message secret && {} reveal $({} query --event log --jq '.message[]' --format raw)"],
    ..VerbDoc::EMPTY
};

/// Print the value that a line has sealed
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    #[command(flatten)]
    hash: HashOperand,
}

/// A sealed value.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["value"])))]
pub(crate) struct Revealed {
    /// The hash in the line.
    sealed: String,
    /// The value.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    value: Box<RawValue>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
}

impl Reply for Revealed {
    fn text(&self) -> String {
        cp_common::json::unquote(self.value.get().as_bytes()).unwrap_or_else(|| self.value.get().to_owned())
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let hash = args.hash.parse()?;
    let ledger = args.ledger.path(context);
    let value = vault::reveal(&ledger, &hash)?;
    let value = value
        .ok_or_else(|| Error::not_found(format!("no value for {hash}: it was forgotten, or never sealed here")))?;
    context.out.answer(&Revealed { sealed: hash.to_string(), value, untrusted: ["/value"] })
}
