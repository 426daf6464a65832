//! `cp-log keygen` and `checkpoint`: make a key, and sign the size and the root of a ledger, so that no line can be
//! taken back.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{CheckpointName, KeyName, PublicName, Receipt, Reply};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::leaves::{files_of, grow};
use cp_ledger::proof::note::{self, Checkpoint, Note, Signer, Verifier, checkpoint_path, is_key_name, read_checkpoint};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::ledger::{self, LedgerOption};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["{} append hello && {} keygen C && {} checkpoint --sign-with C"],
    events: &["ledger.checkpoint"],
    ..VerbDoc::new("checkpoint", Class::Append, "signed")
};

/// Sign the tree of all lines
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The key that signs (repeatable: with the old and the new key the key is changed)
    #[arg(long = "sign-with", value_name = "KEY", required = true)]
    keys: Vec<PathBuf>,
    #[command(flatten)]
    append: AppendOptions,
}

/// A checkpoint.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Signed {
    #[serde(flatten)]
    checkpoint: CheckpointName,
    /// The origin of the ledger.
    origin: String,
    /// How many lines it covers.
    size: u64,
    /// The root of their tree, in base 64.
    root: String,
    /// The signed note itself; empty where a dry run signs nothing.
    note: String,
    /// The entry that says so, where one was made.
    receipt: Option<Receipt>,
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
    let keys = args.keys.iter().map(std::path::absolute).collect::<std::io::Result<Vec<_>>>()?;
    let ledger = ledger::writable_path(args.ledger.file.as_deref(), context)?;
    let signers = || keys.iter().map(|key| Signer::load(key)).collect::<Result<Vec<_>>>();
    // A dry run must not make a signature that no file records.
    let preview = || Ok(answer_of(&ledger, &checkpoint_of(&ledger, &signers()?)?.0));
    let request = ("checkpoint", &ledger, &keys);
    idempotency::answer(&args.append, &request, context, preview, |_| sign(&ledger, &signers()?))
}

fn sign(ledger: &Path, signers: &[Signer]) -> Result<Signed> {
    let (note, receipt, checkpoint) = Ledger::open_existing(ledger, Sync::Line)?.append_checkpoint(|| {
        let (checkpoint, verifier) = checkpoint_of(ledger, signers)?;
        let (size, root) = (checkpoint.size, BASE64.encode(checkpoint.root));
        let entry = Entry::new("ledger.checkpoint").data(&note::Signed { size, root, verifier });
        let notes = signers.iter().map(|signer| signer.sign(&checkpoint.to_text()));
        let note = notes.reduce(Note::with_signatures_of);
        Ok((entry, note.ok_or_else(|| Error::usage("--sign-with names no key"))?, checkpoint))
    })?;
    Ok(Signed { note: note.to_string(), receipt: Some(receipt), ..answer_of(ledger, &checkpoint) })
}

/// The answer of a dry run.
fn answer_of(ledger: &Path, checkpoint: &Checkpoint) -> Signed {
    Signed {
        checkpoint: checkpoint_path(ledger).as_path().into(),
        origin: checkpoint.origin.clone(),
        size: checkpoint.size,
        root: BASE64.encode(checkpoint.root),
        note: String::new(),
        receipt: None,
    }
}

/// The checkpoint to sign of a ledger as it is now. Refused unless it continues the newest checkpoint, which one of the
/// keys signed, and unless the key that line 0 names is one of them. Also returns the key to record: that
/// one, or the first.
fn checkpoint_of(ledger: &Path, signers: &[Signer]) -> Result<(Checkpoint, String)> {
    let own: Vec<Verifier> = signers.iter().map(Signer::verifier).collect();
    let newest = read_checkpoint(&checkpoint_path(ledger))?;
    let mut root_of_newest = None;
    let (origin, signer_in_line_0, tree) = grow(&files_of(ledger)?, |tree| {
        if newest.as_ref().is_some_and(|(_, newest)| newest.size == tree.size()) {
            root_of_newest = Some(tree.root());
        }
    })?;
    let checkpoint = Checkpoint { origin, size: tree.size(), root: tree.root() };
    if let Some((_, newest)) = &newest
        && (newest.origin != checkpoint.origin || root_of_newest != Some(newest.root))
    {
        let message =
            format!("the ledger does not go on from its checkpoint of {} lines: nothing is signed", newest.size);
        return Err(Error::new(Code::Integrity, message)
            .in_file(ledger)
            .hint("cp-log verify shows whether it was rolled back or forked"));
    }
    // A program that verifies the ledger knows only the key that line 0 names.
    let texts: Vec<String> = own.iter().map(Verifier::to_text).collect();
    let named = signer_in_line_0.map(|named| named.to_text());
    if let Some(named) = named.as_ref().filter(|named| !texts.contains(named)) {
        let message = format!("the signer of the ledger is {named}, not {}", texts.join(" or "));
        return Err(Error::new(Code::Forbidden, message)
            .in_file(ledger)
            .hint("sign with that key; a new key begins a new ledger"));
    }
    if newest.is_some_and(|(note, _)| !own.iter().any(|own| note.is_signed_by(own) == Some(true))) {
        return Err(Error::new(Code::Integrity, "the newest checkpoint is not signed by this key")
            .in_file(&checkpoint_path(ledger))
            .hint("sign with its key; to change it, sign once with both: --sign-with OLD --sign-with NEW"));
    }
    Ok((checkpoint, named.unwrap_or_else(|| texts[0].clone())))
}

/// The entry of this verb in `reference`.
pub(crate) const KEYGEN_DOC: VerbDoc =
    VerbDoc { examples: &["{} keygen K"], ..VerbDoc::new("keygen", Class::Append, "made") };

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
    #[serde(flatten)]
    key: KeyName,
    #[serde(flatten)]
    public: PublicName,
    /// The text of the public file; a dry run draws no key.
    verifier: Option<String>,
}

impl Reply for Made {
    fn text(&self) -> String {
        self.verifier.clone().unwrap_or_else(|| format!("would make {} and {}", self.key.key, self.public.public))
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
    cp_policy::check_writable(&context.home, &file)?;
    let mut public = file.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    let made = |verifier| Made { key: file.as_path().into(), public: public.as_path().into(), verifier };
    let preview = || {
        for path in [&file, &public] {
            if path.symlink_metadata().is_ok() {
                return Err(taken(path));
            }
        }
        Ok(made(None))
    };
    idempotency::answer(&args.append, &("keygen", &file, &name), context, preview, |_| {
        let mut seed = [0; 32];
        rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
        let signer = Signer::new(&name, &seed);
        let verifier = signer.verifier().to_text();
        write_new(&file, &signer.to_text(), 0o600)?;
        write_new(&public, &format!("{verifier}\n"), 0o644)?;
        Ok(made(Some(verifier)))
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
