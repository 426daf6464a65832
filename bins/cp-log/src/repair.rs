//! `cp-log repair`: what append will not do by itself. Nothing is deleted, and the repair is recorded on the ledger.

use std::path::Path;

use cp_common::context::options::WriteOptions;
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Gate, Write};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::proof::checkpoint::{checkpoint_path, read_checkpoint};
use cp_ledger::{Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "repair",
    class: Class::Write,
    output: "repaired",
    examples: &[
        "{} append hello && {} repair --dry-run",
        "{} append -f L one && {} append -f L two && sed -i '$s/two/six/' L && T=$({} repair --tail --dry-run L | jq -r .data.confirm_token) && {} repair --tail --confirm $T L",
    ],
    events: &["ledger.recovered", "ledger.rollback", "ledger.rolled_back"],
    ..VerbDoc::EMPTY
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
#[derive(Debug, Serialize, Deserialize)]
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
    let path = resolved(&std::path::absolute(args.ledger.path(context))?);
    context.home.check_writable(&path)?;
    let what = if args.rollback { "rollback" } else { "tail" };
    let asked = Write { verb: "repair", arguments: &(what, &path), dangerous: false };
    confirm::write(&asked, &args.write, context, |gate, context| {
        if !path.exists() {
            gate.found(Err(Error::not_found("no such ledger").in_file(&path)))?;
        }
        if args.rollback { rollback(gate, &path, context) } else { tail(gate, &path, context) }
    })
}

/// Moves everything after the last intact line aside.
fn tail<A: Serialize>(gate: Gate<'_, A>, path: &Path, context: &mut Context) -> Result<Option<Repaired>> {
    let mut ledger = Ledger::open_existing(path, Sync::Line)?;
    let Some((offset, len, hash)) = ledger.damaged_tail()? else { return nothing(&gate, path) };
    let before = json!({"offset": offset, "len": len, "sha256": hash.hex()});
    if !gate.pass(vec![change("move_aside", "bytes", path, before)], context)? {
        return Ok(None);
    }
    Ok(Some(repaired(path, ledger.repair_tail()?)))
}

/// Moves the checkpoint aside that says that there were more lines.
fn rollback<A: Serialize>(gate: Gate<'_, A>, path: &Path, context: &mut Context) -> Result<Option<Repaired>> {
    let Some((size, lines)) = rolled_back(path)? else { return nothing(&gate, path) };
    let before = json!({"signed": size, "lines": lines});
    if !gate.pass(vec![change("accept_rollback", "checkpoint", path, before)], context)? {
        return Ok(None);
    }
    let receipt = Ledger::open_existing(path, Sync::Line)?.accept_rollback()?;
    Ok(Some(Repaired { ledger: path.display().to_string(), changed: receipt.is_some(), receipt }))
}

fn change(action: &str, resource: &str, path: &Path, before: serde_json::Value) -> Change {
    let (action, resource, id) = (action.to_owned(), resource.to_owned(), path.display().to_string());
    Change { action, resource, id, before, after: json!(null) }
}

fn nothing<A: Serialize>(gate: &Gate<'_, A>, path: &Path) -> Result<Option<Repaired>> {
    gate.nothing_to_do()?;
    Ok(Some(Repaired { ledger: path.display().to_string(), changed: false, receipt: None }))
}

fn repaired(path: &Path, receipt: Receipt) -> Repaired {
    Repaired { ledger: path.display().to_string(), changed: true, receipt: Some(receipt) }
}

/// The lines that the checkpoint was signed for, and the lines there are, if those are fewer.
fn rolled_back(path: &Path) -> Result<Option<(u64, u64)>> {
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
