//! `cp-log rotate`: close a ledger's file as a segment and go on in a new one, on the same chain.

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use cp_ledger::{Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "rotate",
    class: Class::Append,
    output: "rotated",
    examples: &["{} append hello && {} rotate"],
    events: &["segment.seal", "segment.open"],
    ..VerbDoc::EMPTY
};

/// Close the file as a segment and go on in a new one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// What was closed.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rotated {
    /// The file that goes on.
    ledger: String,
    /// The file that was closed.
    segment: String,
    /// Whether it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Rotated {
    fn text(&self) -> String {
        self.segment.clone()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = std::path::absolute(args.ledger.path(context))?;
    context.home.check_writable(&path)?;
    let there = || {
        if path.exists() { Ok(()) } else { Err(Error::not_found("no such ledger").in_file(&path)) }
    };
    let ledger = path.display().to_string();
    let preview = || {
        there()?;
        let segment = Ledger::open(&path, Sync::Line)?.segment_path()?.display().to_string();
        Ok(Rotated { ledger: ledger.clone(), segment, dry_run: true })
    };
    idempotency::answer(&args.append, &("rotate", &path), context, preview, |_| {
        there()?;
        let segment = Ledger::open(&path, Sync::Line)?.rotate()?.display().to_string();
        Ok(Rotated { ledger: ledger.clone(), segment, dry_run: false })
    })
}
