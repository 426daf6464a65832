//! `cp-log forget`: delete a sealed value for good. The line that sealed it stays, and so does the chain.

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::{Ledger, Sync};
use serde::Serialize;
use serde_json::json;

use crate::ledger::{HashOperand, LedgerOption};

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

/// Delete a sealed value for good; the chain stays intact
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    #[command(flatten)]
    write: WriteOptions,
    #[command(flatten)]
    hash: HashOperand,
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
    let hash = args.hash.parse()?;
    let ledger = args.ledger.path(context);
    context.home.check_writable(&ledger)?;
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
    let none = || Error::not_found(format!("no value for {hash}"));
    if !Ledger::is_there(&ledger)? {
        return Err(none());
    }
    let receipt = Ledger::open_existing(&ledger, Sync::Line)?.forget(&hash)?.ok_or_else(none)?;
    context.out.answer(&Forgotten { sealed: hash.to_string(), receipt })
}
