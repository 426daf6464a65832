//! `cp-log keygen`, `checkpoint` and `witness`: sign the size and the root of a ledger, so that no line can be taken back, and exchange
//! checkpoints with witnesses (c2sp.org/tlog-witness, without HTTP).

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::lines::Lines;
use cp_common::wire::{Receipt, Reply};
use cp_common::{Code, Context, Error, Result, clock};
use cp_ledger::proof::checkpoint::{HeldCheckpoint, checkpoint_path, read_checkpoint};
use cp_ledger::proof::leaves::files_of;
use cp_ledger::proof::note::{Checkpoint, Note, Signer, Verifier, is_key_name};
use cp_ledger::proof::tree::{Node, is_consistent, parse_node};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::ledger::LedgerOption;
use crate::prove::{current, newest, request_text};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "checkpoint",
    class: Class::Append,
    output: "signed",
    examples: &["{} append hello && {} keygen C && {} checkpoint --sign-with C"],
    events: &["ledger.checkpoint"],
    ..VerbDoc::EMPTY
};

/// Sign the tree of all lines, or pass a checkpoint to witnesses and back
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The key that signs
    #[arg(long = "sign-with", alias = "key", value_name = "KEY", required_unless_present_any = ["witness_request", "add_signature"])]
    key: Option<PathBuf>,
    /// Print the newest checkpoint as a request to a witness
    #[arg(long, conflicts_with_all = ["key", "add_signature"])]
    witness_request: bool,
    /// The size that the witness signed last
    #[arg(long, value_name = "N", default_value_t = 0, requires = "witness_request")]
    old: u64,
    /// Add the signature lines in this file, a witness's answer, to the newest checkpoint
    #[arg(long, value_name = "FILE", requires = "witness", conflicts_with = "key")]
    add_signature: Option<PathBuf>,
    /// The witness's public key
    #[arg(long, value_name = "KEY")]
    witness: Option<PathBuf>,
    #[command(flatten)]
    append: AppendOptions,
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
    /// The signed note itself, or the request for a witness; empty where a dry run signs nothing.
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
    let ledger = args.ledger.writable_path(context)?;
    let path = checkpoint_path(&ledger);
    let sign = |write| match (&args.key, &args.add_signature) {
        (Some(key), _) => sign(&ledger, &path, &Signer::load(key)?, write),
        (None, Some(signatures)) => add(&path, signatures, args.witness.as_deref(), write),
        (None, None) => request(&ledger, &path, args.old),
    };
    let files = [&args.key, &args.add_signature, &args.witness];
    let files: Vec<_> = files
        .into_iter()
        .map(|file| file.as_ref().map(std::path::absolute).transpose())
        .collect::<std::io::Result<_>>()?;
    let request_key = ("checkpoint", &ledger, files, args.old);
    idempotency::answer(&args.append, &request_key, context, || sign(Write::No), |_| sign(Write::Yes))
}

/// True if files are written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Write {
    Yes,
    No,
}

fn signed(path: &Path, checkpoint: &Checkpoint, note: String, receipt: Option<Receipt>) -> Signed {
    let Checkpoint { origin, size, root } = checkpoint;
    let (origin, size, root) = (origin.clone(), *size, BASE64.encode(root));
    Signed { checkpoint: path.display().to_string(), origin, size, root, note, receipt, dry_run: false }
}

fn sign(ledger: &Path, path: &Path, signer: &Signer, write: Write) -> Result<Signed> {
    // Held to the end: of two that sign at once, the one with fewer lines must not come last.
    let held = HeldCheckpoint::take(path)?;
    let before = held.newest();
    if let Some((note, _)) = before
        && note.is_signed_by(&signer.verifier()) != Some(true)
    {
        return Err(Error::new(Code::Integrity, "the newest checkpoint is not signed by this key")
            .in_file(path)
            .hint("use its key; to begin with a new key, move the old checkpoint away and keep it"));
    }
    let earlier: Vec<&Checkpoint> = before.iter().map(|(_, checkpoint)| checkpoint).collect();
    let (checkpoint, named) = current(&files_of(ledger)?, &earlier)?;
    refuse_other_signer(named.as_deref(), signer, ledger)?;
    if write == Write::No {
        // A dry run must not make a signature that no file records.
        return Ok(Signed { dry_run: true, ..signed(path, &checkpoint, String::new(), None) });
    }
    let note = signer.sign(&checkpoint.to_text());
    let entry = Entry::new("ledger.checkpoint")
        .with("size", &checkpoint.size)
        .with("root", &BASE64.encode(checkpoint.root))
        .with("verifier", &signer.verifier().to_text());
    // Before the file is written, so that every signature that was handed out is on the ledger.
    let receipt = Ledger::open(ledger, Sync::Line)?.append(entry)?;
    held.replace(&note)?;
    Ok(signed(path, &checkpoint, note.to_string(), Some(receipt)))
}

/// Refuses every key but the one that line 0 names: who verifies the ledger knows only that one.
fn refuse_other_signer(named: Option<&str>, signer: &Signer, ledger: &Path) -> Result<()> {
    let Some(named) = named.filter(|named| *named != signer.verifier().to_text()) else { return Ok(()) };
    let message = format!("line 0 names {named} as its signer, not {}", signer.verifier().to_text());
    Err(Error::new(Code::Forbidden, message)
        .in_file(ledger)
        .hint("sign with that key; a ledger that another key is to sign begins with cp-log create --trust"))
}

fn request(ledger: &Path, path: &Path, old: u64) -> Result<Signed> {
    let (note, checkpoint) = newest(path)?;
    let text = request_text(ledger, &note, &checkpoint, old)?;
    Ok(signed(path, &checkpoint, text, None))
}

fn add(path: &Path, signatures: &Path, witness: Option<&Path>, write: Write) -> Result<Signed> {
    // Held, so that of two signatures that come at once none is lost.
    let held = HeldCheckpoint::take(path)?;
    let (mut note, checkpoint) = newest(path)?;
    let witness = Verifier::load(witness.ok_or_else(|| Error::usage("--add-signature needs --witness"))?)?.as_witness();
    let lines = std::fs::read_to_string(signatures)
        .map_err(|e| Error::io("cannot read the signatures", e).in_file(signatures))?;
    let mut added = false;
    for line in lines.lines().filter(|line| !line.is_empty()) {
        // Signatures by other keys are left out.
        let alone = Note::parse(&format!("{}\n{line}\n", note.text));
        match alone.and_then(|alone| alone.is_signed_by(&witness)) {
            Some(true) => {
                note.add(line);
                added = true;
            }
            Some(false) => {
                return Err(Error::new(Code::Integrity, "the witness's signature is wrong").in_file(signatures));
            }
            None => {}
        }
    }
    if !added {
        let message = format!("no signature by {} in the file", witness.name());
        return Err(Error::validation(message).in_file(signatures));
    }
    if write == Write::Yes {
        held.replace(&note)?;
    }
    Ok(Signed { dry_run: write == Write::No, ..signed(path, &checkpoint, note.to_string(), None) })
}

/// The entry of this verb in `reference`.
pub(crate) const KEYGEN_DOC: VerbDoc =
    VerbDoc { path: "keygen", class: Class::Append, output: "made", examples: &["{} keygen K"], ..VerbDoc::EMPTY };

/// Make a key that signs checkpoints, and its public half
#[derive(Debug, clap::Args)]
pub(crate) struct KeygenArgs {
    /// The name in the signatures (default: the file's name)
    #[arg(long = "signer", alias = "name", value_name = "NAME")]
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

/// The entry of this verb in `reference`.
pub(crate) const WITNESS_DOC: VerbDoc = VerbDoc {
    path: "witness",
    class: Class::Append,
    output: "witnessed",
    examples: &[
        "{} append hello && {} keygen R && {} keygen W && {} checkpoint --sign-with R && {} checkpoint --witness-request --format raw | {} witness --sign-with W --signer R.pub --state seen",
    ],
    input: &[Input::Bytes],
    ..VerbDoc::EMPTY
};

/// Sign a checkpoint request, if it continues the checkpoint that was signed before
#[derive(Debug, clap::Args)]
pub(crate) struct WitnessArgs {
    /// The witness's key
    #[arg(long = "sign-with", alias = "key", value_name = "KEY")]
    key: PathBuf,
    /// The public key of the ledger's signer
    #[arg(long, value_name = "KEY")]
    signer: PathBuf,
    /// The file of the newest checkpoint that was signed
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    #[command(flatten)]
    append: AppendOptions,
}

/// A signature of a witness.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Witnessed {
    /// The origin of the ledger.
    origin: String,
    /// How many lines the checkpoint covers.
    size: u64,
    /// The signature line, for `checkpoint --add-signature`; a dry run gives none.
    signature: Option<String>,
    /// True if it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Witnessed {
    fn text(&self) -> String {
        self.signature.clone().unwrap_or_else(|| format!("would sign {} {}", self.origin, self.size))
    }
}

pub(crate) fn witness(args: &WitnessArgs, context: &mut Context) -> Result<()> {
    let (key, signer) = (Signer::load(&args.key)?, Verifier::load(&args.signer)?);
    let body = Lines::new(rustix::stdio::stdin()).rest(&mut || Ok(()))?;
    let body = String::from_utf8(body).map_err(|_| Error::validation("the request is not UTF-8"))?;
    let request = WitnessRequest::parse(&body).ok_or_else(|| {
        Error::validation("not a request for a witness")
            .hint("cp-log checkpoint --witness-request --format raw writes one")
    })?;
    let state = std::path::absolute(&args.state)?;
    let witnessed = |signature: Option<String>| {
        let dry_run = signature.is_none();
        Witnessed { origin: request.checkpoint.origin.clone(), size: request.checkpoint.size, signature, dry_run }
    };
    let preview = || {
        let before = read_checkpoint(&state)?;
        request.refuse(&signer, before.as_ref().map(|(_, checkpoint)| checkpoint), &state).map(|()| witnessed(None))
    };
    let request_key = ("witness", key.verifier().to_text(), signer.to_text(), &state, &body);
    idempotency::answer(&args.append, &request_key, context, preview, |_| {
        // Held from the look to the store, so that of two requests at once the second sees the first; and stored before the answer: a
        // witness that forgets would sign a fork.
        let held = HeldCheckpoint::take(&state)?;
        request.refuse(&signer, held.newest().map(|(_, checkpoint)| checkpoint), &state)?;
        held.replace(&request.note)?;
        Ok(witnessed(Some(key.cosign(&request.note.text, clock::unix_seconds()))))
    })
}

struct WitnessRequest {
    old: u64,
    proof: Vec<Node>,
    note: Note,
    checkpoint: Checkpoint,
}

impl WitnessRequest {
    fn parse(body: &str) -> Option<Self> {
        let (head, note) = body.split_once("\n\n")?;
        let mut lines = head.split('\n');
        let number = lines.next()?.strip_prefix("old ")?;
        let old: u64 = number.parse().ok().filter(|old: &u64| old.to_string() == number)?;
        let proof: Option<Vec<Node>> = lines.map(parse_node).collect();
        let note = Note::parse(note)?;
        let checkpoint = Checkpoint::parse(&note.text)?;
        Some(Self { old, proof: proof?, note, checkpoint })
    }

    /// Fails unless the checkpoint is signed and goes on from the one before, which is in `state`.
    fn refuse(&self, signer: &Verifier, before: Option<&Checkpoint>, state: &Path) -> Result<()> {
        if self.note.is_signed_by(signer) != Some(true) {
            return Err(Error::new(Code::Integrity, format!("the checkpoint is not signed by {}", signer.name())));
        }
        let known = before.map_or(0, |before| before.size);
        if before.is_some_and(|before| before.origin != self.checkpoint.origin) {
            return Err(Error::validation("the state belongs to another ledger").in_file(state));
        }
        if self.old != known || self.old > self.checkpoint.size {
            return Err(Error::new(Code::Conflict, format!("the size signed before is {known}, not {}", self.old))
                .with("size", known)
                .hint(format!("ask again with --old {known}")));
        }
        let root = before.map_or(self.checkpoint.root, |before| before.root);
        if is_consistent(self.old, &root, self.checkpoint.size, &self.checkpoint.root, &self.proof) {
            Ok(())
        } else {
            Err(Error::new(
                Code::Integrity,
                "the checkpoint does not go on from the one signed before: nothing is signed",
            ))
        }
    }
}
