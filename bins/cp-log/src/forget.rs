//! `cp-log forget`: delete a sealed value for good. The line that sealed it stays, and so does the chain.

use std::path::Path;

use cp_common::context::options::WriteOptions;
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Hash;
use cp_ledger::store::vault;
use cp_ledger::{Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ledger::{HashOperand, LedgerOption};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "forget",
    class: Class::Write,
    output: "forgotten",
    examples: &[
        "{} append --seal message secret && {} forget --dangerous --dry-run $({} query --event log --jq '.message[]' --format raw)",
        "{} append --seal message secret && H=$({} query --event log --jq '.message[]' --format raw) && T=$({} forget --dangerous --dry-run $H | jq -r .data.confirm_token) && {} forget --dangerous --confirm $T $H",
    ],
    dangerous: true,
    events: &["ledger.forget", "ledger.forgotten"],
    ..VerbDoc::EMPTY
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
#[derive(Debug, Serialize, Deserialize)]
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
    let ledger = resolved(&std::path::absolute(args.ledger.path(context))?);
    context.home.check_writable(&ledger)?;
    let asked = Write { verb: "forget", arguments: &(&ledger, hash.to_string()), dangerous: true };
    confirm::write(&asked, &args.write, context, |gate, context| forget(gate, &ledger, &hash, context))
}

fn forget<A: Serialize>(
    gate: Gate<'_, A>,
    ledger: &Path,
    hash: &Hash,
    context: &mut Context,
) -> Result<Option<Forgotten>> {
    gate.found(held(ledger, hash))?;
    let sealed = hash.to_string();
    let change = Change {
        action: "forget".to_owned(),
        resource: "sealed value".to_owned(),
        id: sealed.clone(),
        before: json!({"ledger": ledger.display().to_string()}),
        after: json!(null),
    };
    if !gate.pass(vec![change], context)? {
        return Ok(None);
    }
    let receipt = Ledger::open_existing(ledger, Sync::Line)?.forget(hash)?.ok_or_else(|| absent(hash))?;
    Ok(Some(Forgotten { sealed, receipt }))
}

/// Fails unless there is such a value. One that is damaged can be forgotten too.
fn held(ledger: &Path, hash: &Hash) -> Result<()> {
    match vault::reveal(ledger, hash) {
        Ok(Some(_)) => Ok(()),
        Ok(None) => Err(absent(hash)),
        Err(error) if error.code() == Code::Integrity => Ok(()),
        Err(error) => Err(error),
    }
}

fn absent(hash: &Hash) -> Error {
    Error::not_found(format!("no value for {hash}"))
}
