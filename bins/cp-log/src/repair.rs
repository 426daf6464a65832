//! `cp-log repair`: what append will not do by itself. Nothing is deleted, and the repair is recorded on the ledger.

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::{Ledger, Sync};
use serde::Serialize;
use serde_json::json;

use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "repair",
    class: Class::Write,
    output: "repaired",
    examples: &["{} append hello && {} repair --dry-run"],
    dangerous: false,
};

/// Move damaged last lines aside, or accept that a ledger was rolled back
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Move everything after the last intact line to a file beside the ledger (the default)
    #[arg(long)]
    tail: bool,
    /// Accept that there are fewer lines than the checkpoint says: move the checkpoint aside
    #[arg(long, conflicts_with = "tail")]
    rollback: bool,
    #[command(flatten)]
    write: WriteOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// What was repaired.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Repaired {
    /// The file.
    ledger: String,
    /// Whether anything was wrong.
    changed: bool,
    /// The entry that says so.
    receipt: Option<Receipt>,
}

impl Reply for Repaired {
    fn text(&self) -> String {
        if self.changed { format!("{}: repaired", self.ledger) } else { format!("{}: nothing to repair", self.ledger) }
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = args.ledger.path(context);
    context.home.check_writable(&path)?;
    if !path.exists() {
        return Err(Error::not_found("no such ledger").in_file(&path));
    }
    let shown = path.display().to_string();
    let change = |action: &str, resource: &str, before| {
        vec![Change {
            action: action.to_owned(),
            resource: resource.to_owned(),
            id: shown.clone(),
            before,
            after: json!(null),
        }]
    };
    let receipt = if args.rollback {
        let Some((size, lines)) = rolled_back(&path)? else { return nothing(shown, context) };
        let before = json!({"signed": size, "lines": lines});
        if !confirm::gate(
            "repair",
            change("accept_rollback", "checkpoint", before.clone()),
            false,
            &args.write,
            context,
        )? {
            return Ok(());
        }
        match Ledger::open_existing(&path, Sync::Line)?.accept_rollback()? {
            Some(receipt) => receipt,
            None => return nothing(shown, context),
        }
    } else {
        let mut ledger = Ledger::open_existing(&path, Sync::Line)?;
        let Some((offset, len, hash)) = ledger.damaged_tail()? else { return nothing(shown, context) };
        let before = json!({"offset": offset, "len": len, "sha256": hash.hex()});
        if !confirm::gate("repair", change("move_aside", "bytes", before), false, &args.write, context)? {
            return Ok(());
        }
        ledger.repair_tail()?
    };
    context.out.answer(&Repaired { ledger: path.display().to_string(), changed: true, receipt: Some(receipt) })
}

fn nothing(ledger: String, context: &mut Context) -> Result<()> {
    context.out.answer(&Repaired { ledger, changed: false, receipt: None })
}

/// The lines that the checkpoint was signed for, and the lines there are, if those are fewer.
fn rolled_back(path: &std::path::Path) -> Result<Option<(u64, u64)>> {
    let file = checkpoint_path(path);
    let Some((_, checkpoint)) = read_checkpoint(&file)? else { return Ok(None) };
    let mut reader = cp_ledger::read::backward(path)?;
    let mut lines = 0;
    while let Some(raw) = reader.next()? {
        if let Some(line) = raw.stored() {
            lines = line.seq() + 1;
            break;
        }
    }
    Ok((lines < checkpoint.size).then_some((checkpoint.size, lines)))
}
