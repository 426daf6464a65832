//! `cp-log create`, `rotate` and `repair`: the verbs that change the files of a ledger.
//!
//! `repair` does what `append` refuses to do by itself. It deletes nothing, and records the repair on the ledger.

use std::path::{Path, PathBuf};

use cp_common::context::options::{AppendOptions, WriteOptions};
use cp_common::home::resolved;
use cp_common::program::confirm::{self, Change, Plan};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{LedgerName, Receipt, Reply, SegmentName};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::append::Birth;
use cp_ledger::append::register::{missing, remove};
use cp_ledger::proof::note::{Verifier, is_key_name};
use cp_ledger::read::segments::name_of;
use cp_ledger::{Ledger, Sync};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ledger::{self, LedgerOperand};

/// The longest name of a ledger, in bytes.
const LONGEST: usize = 255;

/// The entry of this verb in `reference`.
pub(crate) const CREATE_DOC: VerbDoc = VerbDoc {
    examples: &["{} create --ledger-name example.com/audit audit.jsonl"],
    ..VerbDoc::new("create", Class::Append, "begun")
};

/// Begin a ledger under a name of its own
#[derive(Debug, clap::Args)]
pub(crate) struct CreateArgs {
    /// The name in checkpoints, by convention a host and a path: example.com/audit (default: random)
    #[arg(long = "ledger-name", value_name = "NAME")]
    name: Option<String>,
    /// The public key that its checkpoints are to be signed with: kept on the first line
    #[arg(long = "trust", value_name = "FILE")]
    key: Option<PathBuf>,
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// A ledger that was begun.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Begun {
    #[serde(flatten)]
    ledger: LedgerName,
    /// The name in checkpoints; null if a dry run has not drawn one.
    origin: Option<String>,
    /// The public key on its first line.
    verifier: Option<String>,
}

impl Reply for Begun {
    fn text(&self) -> String {
        self.origin.clone().unwrap_or_default()
    }
}

pub(crate) fn create(args: &CreateArgs, context: &mut Context) -> Result<()> {
    let path = ledger::writable_path(args.ledger.file.as_deref(), context)?;
    if let Some(name) = args.name.as_deref().filter(|name| !is_key_name(name) || name.len() > LONGEST) {
        return Err(Error::usage(format!("`{name}` is not a valid ledger name"))
            .hint(format!("use at most {LONGEST} bytes, no spaces and no plus sign")));
    }
    let verifier = args.key.as_deref().map(Verifier::load).transpose()?;
    let birth = Birth { origin: args.name.clone(), verifier: verifier.map(|verifier| verifier.to_text()) };
    let arguments = ("create", &path, &birth.origin, &birth.verifier);
    let taken = || {
        Error::new(Code::Conflict, "the file exists").in_file(&path).hint("choose another name, or append to the file")
    };
    let begun = |origin| Ok(Begun { ledger: path.as_path().into(), origin, verifier: birth.verifier.clone() });
    let is_there = || path.metadata().is_ok_and(|found| !found.is_file() || found.len() > 0);
    let preview = || if is_there() { Err(taken()) } else { begun(birth.origin.clone()) };
    idempotency::answer(&args.append, &arguments, context, preview, |_| {
        begun(Some(Ledger::create(&path, &birth)?.ok_or_else(taken)?))
    })
}

/// The entry of this verb in `reference`.
pub(crate) const ROTATE_DOC: VerbDoc = VerbDoc {
    examples: &["{} append hello && {} rotate"],
    events: &["segment.seal", "segment.open"],
    ..VerbDoc::new("rotate", Class::Append, "rotated")
};

/// Close the file as a segment and go on in a new one
#[derive(Debug, clap::Args)]
pub(crate) struct RotateArgs {
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// A ledger that was rotated.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Rotated {
    #[serde(flatten)]
    ledger: LedgerName,
    #[serde(flatten)]
    segment: SegmentName,
}

impl Reply for Rotated {
    fn text(&self) -> String {
        self.segment.segment.clone()
    }
}

pub(crate) fn rotate(args: &RotateArgs, context: &mut Context) -> Result<()> {
    let path = ledger::writable_path(args.ledger.file.as_deref(), context)?;
    let rotated = |segment: PathBuf| Ok(Rotated { ledger: (&*path).into(), segment: (&*segment).into() });
    idempotency::answer(
        &args.append,
        &("rotate", &path),
        context,
        || rotated(name_of(&path)?),
        |_| rotated(Ledger::open_existing(&path, Sync::Line)?.rotate()?),
    )
}

/// The entry of this verb in `reference`.
pub(crate) const REPAIR_DOC: VerbDoc = VerbDoc {
    examples: &[
        "{} append hello && {} repair --dry-run",
        "{} append -f L one && {} append -f L two && sed -i '$s/two/six/' L && T=$({} repair --tail --dry-run L | jq -r .data.confirm_token) && {} repair --tail --confirm $T L",
    ],
    events: &["ledger.recovered", "ledger.rollback", "ledger.removed"],
    ..VerbDoc::new("repair", Class::Write, "repaired")
};

/// Move damaged last lines aside, or accept a ledger rolled back
#[derive(Debug, clap::Args)]
pub(crate) struct RepairArgs {
    /// Move everything after the last intact line to a file beside the ledger (the default)
    #[arg(long)]
    tail: bool,
    /// Accept that there are fewer lines than the checkpoint says, or that the ledger was removed
    #[arg(long = "accept-shorter", conflicts_with = "tail")]
    rollback: bool,
    #[command(flatten)]
    write: WriteOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// The result of a repair.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Repaired {
    #[serde(flatten)]
    ledger: LedgerName,
    /// True if anything was wrong.
    changed: bool,
    /// The entry that says so.
    receipt: Option<Receipt>,
}

impl Reply for Repaired {
    fn text(&self) -> String {
        format!("{}: {}", self.ledger.ledger, if self.changed { "repaired" } else { "nothing to repair" })
    }
}

pub(crate) fn repair(args: &RepairArgs, context: &mut Context) -> Result<()> {
    let path = resolved(&std::path::absolute(ledger::path(args.ledger.file.as_deref(), context)?)?);
    cp_policy::check_writable(&context.home, &path)?;
    let what = if args.rollback { "rollback" } else { "tail" };
    confirm::write(&REPAIR_DOC, &(what, &path), &args.write, context, |context| match args.rollback {
        true if !path.exists() => removed(&path, &resolved(context.home.root())),
        true => rollback(&path),
        false => tail(&path),
    })
}

/// Records that a ledger, or a directory of ledgers, was removed that the home's own ledger names.
fn removed<'p>(path: &'p Path, home: &Path) -> Result<Plan<'p, Repaired>> {
    let file = path.strip_prefix(home).ok().map(Path::to_owned);
    let Some(file) =
        file.filter(|file| missing(home).is_ok_and(|missing| missing.iter().any(|one| one.starts_with(file))))
    else {
        return Err(Error::not_found("no such ledger").in_file(path));
    };
    let change = Change::new("accept_removal", "ledger", path.display().to_string(), json!({}));
    let home = home.to_owned();
    Plan::changes(vec![change], move |_| Ok(repaired(path, Some(remove(&home, &file)?))))
}

/// Moves everything after the last intact line aside.
fn tail(path: &Path) -> Result<Plan<'_, Repaired>> {
    let mut ledger = Ledger::open_existing(path, Sync::Line)?;
    let Some((offset, len, hash)) = ledger.damaged_tail()? else { return Plan::nothing(repaired(path, None)) };
    let before = json!({"offset": offset, "len": len, "sha256": hash.hex()});
    let change = Change::new("move_aside", "bytes", path.display().to_string(), before);
    Plan::changes(vec![change], move |_| Ok(repaired(path, Some(ledger.repair_tail()?))))
}

/// Moves the checkpoint aside that says that there were more lines.
fn rollback(path: &Path) -> Result<Plan<'_, Repaired>> {
    let mut ledger = Ledger::open_existing(path, Sync::Line)?;
    let Some((signed, lines)) = ledger.rolled_back()? else { return Plan::nothing(repaired(path, None)) };
    let before = json!({"signed": signed, "lines": lines});
    let change = Change::new("accept_rollback", "checkpoint", path.display().to_string(), before);
    Plan::changes(vec![change], move |_| Ok(repaired(path, ledger.accept_rollback()?)))
}

fn repaired(path: &Path, receipt: Option<Receipt>) -> Repaired {
    Repaired { ledger: path.into(), changed: receipt.is_some(), receipt }
}
