//! `cp-log keygen` and `checkpoint`: make a key, and sign the size and the root of a ledger, so that no line can be taken back.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::checkpoint::{HeldCheckpoint, checkpoint_path};
use cp_ledger::proof::keys::{self, Keys, announcement};
use cp_ledger::proof::leaves::{files_of, grow};
use cp_ledger::proof::note::{Checkpoint, Signer, Verifier, is_key_name};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::bundle::runs::Runs;
use crate::ledger::LedgerOption;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "checkpoint",
    class: Class::Append,
    output: "signed",
    also: &["signed-run"],
    examples: &["{} append hello && {} keygen C && {} checkpoint --sign-with C"],
    events: &["ledger.checkpoint"],
    ..VerbDoc::EMPTY
};

/// Sign the tree of all lines
///
/// With --run and no FILE, each ledger of that run and its agents is signed, or none.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The key that signs
    #[arg(long = "sign-with", value_name = "KEY")]
    key: PathBuf,
    /// Announce the public key that signs all later checkpoints instead
    #[arg(long, value_name = "K.pub")]
    next: Option<PathBuf>,
    #[command(flatten)]
    append: AppendOptions,
}

/// The checkpoints of the ledgers of a run.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct SignedRun {
    /// The run.
    run: String,
    /// A checkpoint for each of its ledgers: its own, those of its agents, and those of home that have lines of one of them.
    checkpoints: Vec<Signed>,
}

impl Reply for SignedRun {
    fn text(&self) -> String {
        self.checkpoints.iter().map(Reply::text).collect::<Vec<_>>().join("\n")
    }

    fn raw(&self) -> Vec<u8> {
        self.checkpoints.iter().flat_map(Reply::raw).collect()
    }
}

/// A checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Signed {
    /// The file of the checkpoint.
    checkpoint: String,
    /// The origin of the ledger.
    origin: String,
    /// How many lines it covers.
    size: u64,
    /// The root of their tree, in base 64.
    root: String,
    /// The public key that signs from now on, if one was announced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<String>,
    /// The signed note itself; empty where a dry run signs nothing.
    note: String,
    /// The entry that says so, where one was made.
    receipt: Option<Receipt>,
    /// True if it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Signed {
    fn text(&self) -> String {
        format!("{} {} {}", self.origin, self.size, self.root)
    }

    fn raw(&self) -> Vec<u8> {
        self.note.clone().into_bytes()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let next = args.next.as_deref().map(Verifier::load).transpose()?;
    let key = std::path::absolute(&args.key)?;
    let sign = |ledger: &Path, dry_run| sign(ledger, &Signer::load(&key)?, next.as_ref(), dry_run);
    let next = next.as_ref().map(Verifier::to_text);
    let Some(run) = context.options.run.clone().filter(|_| !args.ledger.is_named(context)) else {
        let ledger = args.ledger.writable_path(context)?;
        let request_key = ("checkpoint", &ledger, &key, next);
        return idempotency::answer(
            &args.append,
            &request_key,
            context,
            || sign(&ledger, true),
            |_| sign(&ledger, false),
        );
    };
    let ledgers = Runs::find(&run, context)?.ledgers;
    ledgers.iter().try_for_each(|ledger| context.home.check_writable(ledger))?;
    let request_key = ("checkpoint", &run, &key, next);
    let sign_all = |dry_run| {
        let checkpoints = ledgers.iter().map(|ledger| sign(ledger, dry_run)).collect::<Result<_>>()?;
        Ok(SignedRun { run: run.clone(), checkpoints })
    };
    // Each is tried before the first is signed.
    idempotency::answer(
        &args.append,
        &request_key,
        context,
        || sign_all(true),
        |_| sign_all(true).and_then(|_| sign_all(false)),
    )
}

fn sign(ledger: &Path, signer: &Signer, next: Option<&Verifier>, dry_run: bool) -> Result<Signed> {
    if next.is_some_and(|next| next.to_text() == signer.verifier().to_text()) {
        return Err(Error::usage("--next is the key that signs already"));
    }
    // Held to the end: of two that sign at once, the one with fewer lines must not come last.
    let held = HeldCheckpoint::take(&checkpoint_path(ledger))?;
    // A dry run must not make a signature that no file records.
    if dry_run {
        return Ok(answer_of(ledger, &checked(ledger, &held, signer)?, next));
    }
    let mut done = None;
    // Under the ledger's lock, so that the entry follows the lines that were signed. Before the file is written, so that every signature
    // that was handed out is on the ledger.
    let receipts = Ledger::open_existing(ledger, Sync::Line)?.append_placed(|_| {
        let checkpoint = checked(ledger, &held, signer)?;
        let note = signer.sign(&next.map_or_else(|| checkpoint.to_text(), |next| announcement(&checkpoint, next)));
        let signature = note.to_string().lines().last().map(str::to_owned);
        let entry = Entry::new("ledger.checkpoint").data(&keys::Signed {
            size: checkpoint.size,
            root: BASE64.encode(checkpoint.root),
            verifier: Some(signer.verifier().to_text()),
            next: next.map(Verifier::to_text),
            signature: signature.filter(|_| next.is_some()),
        });
        done = Some((answer_of(ledger, &checkpoint, next), note));
        Ok(vec![entry])
    })?;
    let Some((answer, note)) = done else { return Err(Error::new(Code::Unknown, "nothing was signed")) };
    held.replace(&note)?;
    Ok(Signed { note: note.to_string(), receipt: receipts.into_iter().next(), dry_run, ..answer })
}

/// The answer of a dry run.
fn answer_of(ledger: &Path, checkpoint: &Checkpoint, next: Option<&Verifier>) -> Signed {
    Signed {
        checkpoint: checkpoint_path(ledger).display().to_string(),
        origin: checkpoint.origin.clone(),
        size: checkpoint.size,
        root: BASE64.encode(checkpoint.root),
        next: next.map(Verifier::to_text),
        note: String::new(),
        receipt: None,
        dry_run: true,
    }
}

/// The checkpoint to sign, if the newest one is signed by the ledger's key.
fn checked(ledger: &Path, held: &HeldCheckpoint, signer: &Signer) -> Result<Checkpoint> {
    let newest = held.newest();
    let (checkpoint, keys) = checkpoint_of(ledger, newest.map(|(_, checkpoint)| checkpoint), signer)?;
    let own = signer.verifier();
    if let Some((note, newest)) = newest
        && note.is_signed_by(keys.own_signer_of(newest.size).unwrap_or(&own)) != Some(true)
    {
        return Err(Error::new(Code::Integrity, "the newest checkpoint is not signed by this key")
            .in_file(&checkpoint_path(ledger))
            .hint("use its key, and announce a new key with --next"));
    }
    Ok(checkpoint)
}

/// The checkpoint to sign of a ledger as it is now, and the keys of its checkpoints. Refused unless it continues the newest checkpoint, and
/// unless the signer is the one that line 0 names, or that was announced last.
fn checkpoint_of(ledger: &Path, newest: Option<&Checkpoint>, signer: &Signer) -> Result<(Checkpoint, Keys)> {
    let mut root_of_newest = None;
    let (walked, tree) = grow(&files_of(ledger)?, |tree| {
        if newest.is_some_and(|newest| newest.size == tree.size()) {
            root_of_newest = Some(tree.root());
        }
    })?;
    let checkpoint = Checkpoint { origin: walked.origin, size: tree.size(), root: tree.root() };
    if let Some(newest) = newest
        && (newest.origin != checkpoint.origin || root_of_newest != Some(newest.root))
    {
        let message =
            format!("the ledger does not go on from its checkpoint of {} lines: nothing is signed", newest.size);
        return Err(Error::new(Code::Integrity, message)
            .in_file(ledger)
            .hint("cp-log verify shows whether it was rolled back or forked"));
    }
    let verifier = signer.verifier().to_text();
    // A program that verifies the ledger knows only the key that line 0 names, and those that it has announced.
    if let Some(named) = walked.keys.current().map(Verifier::to_text).filter(|named| *named != verifier) {
        let message = format!("the signer of the ledger is {named}, not {verifier}");
        return Err(Error::new(Code::Forbidden, message)
            .in_file(ledger)
            .hint("sign with that key, which can announce another one: cp-log checkpoint --next"));
    }
    Ok((checkpoint, walked.keys))
}

/// The entry of this verb in `reference`.
pub(crate) const KEYGEN_DOC: VerbDoc =
    VerbDoc { path: "keygen", class: Class::Append, output: "made", examples: &["{} keygen K"], ..VerbDoc::EMPTY };

/// Make a key that signs checkpoints, and its public half
#[derive(Debug, clap::Args)]
pub(crate) struct KeygenArgs {
    /// The name in the signatures (default: the file's name)
    #[arg(long = "signer", value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
    /// The file for the key; its public half goes to FILE.pub
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// A key that was made.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Made {
    /// The file that signs. Keep it where the one whose ledger it signs cannot read it.
    key: String,
    /// The file that proves.
    public: String,
    /// The text of the public file; a dry run draws no key.
    verifier: Option<String>,
    /// True if it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Made {
    fn text(&self) -> String {
        self.verifier.clone().unwrap_or_else(|| format!("would make {} and {}", self.key, self.public))
    }
}

pub(crate) fn keygen(args: &KeygenArgs, context: &mut Context) -> Result<()> {
    let name = match &args.name {
        Some(name) => name.clone(),
        None => args.file.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    if !is_key_name(&name) {
        return Err(Error::usage(format!("`{name}` is not a valid key name")).hint("use no spaces and no plus sign"));
    }
    let file = std::path::absolute(&args.file)?;
    context.home.check_writable(&file)?;
    let mut public = file.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    let made = |verifier: Option<String>, dry_run| {
        let (key, public) = (file.display().to_string(), public.display().to_string());
        Made { key, public, verifier, dry_run }
    };
    let preview = || {
        for path in [&file, &public] {
            if path.symlink_metadata().is_ok() {
                return Err(taken(path));
            }
        }
        Ok(made(None, true))
    };
    idempotency::answer(&args.append, &("keygen", &file, &name), context, preview, |_| {
        let mut seed = [0; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        let signer = Signer::new(&name, &seed);
        let verifier = signer.verifier().to_text();
        write_new(&file, &signer.to_text(), 0o600)?;
        write_new(&public, &format!("{verifier}\n"), 0o644)?;
        Ok(made(Some(verifier), false))
    })
}

fn taken(path: &Path) -> Error {
    Error::new(Code::Conflict, "the file exists").in_file(path).hint("choose another name")
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => taken(path),
            _ => Error::io("cannot create", e).in_file(path),
        })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| Error::io("cannot write", e).in_file(path))
}
