//! `cp-log witness`: sign the checkpoint of another party, if it continues the one signed before (c2sp.org/tlog-witness, without HTTP).

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::lines::Lines;
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result, clock};
use cp_ledger::proof::checkpoint::{HeldCheckpoint, read_checkpoint};
use cp_ledger::proof::note::{Checkpoint, Note, Signer, Verifier};
use cp_ledger::proof::tree::{Node, is_consistent};
use serde::{Deserialize, Serialize};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "witness",
    class: Class::Append,
    output: "witnessed",
    examples: &[
        "{} append hello && {} keygen R && {} keygen W && {} checkpoint --key R && {} checkpoint --witness-request --format raw | {} witness --key W --signer R.pub --state seen",
    ],
    input: &[Input::Bytes],
    ..VerbDoc::EMPTY
};

/// Sign a checkpoint request, if it goes on from the one signed before
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The witness's key
    #[arg(long, value_name = "KEY")]
    key: PathBuf,
    /// The public key of the ledger's signer
    #[arg(long, value_name = "KEY")]
    signer: PathBuf,
    /// Where the newest checkpoint that was signed is kept
    #[arg(long, value_name = "FILE")]
    state: PathBuf,
    #[command(flatten)]
    append: AppendOptions,
}

/// A signature of a witness.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Witnessed {
    /// Which ledger it is about.
    origin: String,
    /// How many lines the checkpoint covers.
    size: u64,
    /// The signature line, for `checkpoint --add-signature`; a dry run gives none.
    signature: Option<String>,
    /// Whether it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Witnessed {
    fn text(&self) -> String {
        self.signature.clone().unwrap_or_else(|| format!("would sign {} {}", self.origin, self.size))
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let (key, signer) = (Signer::load(&args.key)?, Verifier::load(&args.signer)?);
    let body = Lines::new(rustix::stdio::stdin()).rest(&mut || Ok(()))?;
    let body = String::from_utf8(body).map_err(|_| Error::validation("the request is not UTF-8"))?;
    let request = Request::parse(&body).ok_or_else(|| {
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
    let asked = ("witness", key.verifier().to_text(), signer.to_text(), &state, &body);
    idempotency::answer(&args.append, &asked, context, preview, |_| {
        // Held from the look to the store, so that of two requests at once the second sees the first; and stored before the answer: a
        // witness that forgets would sign a fork.
        let held = HeldCheckpoint::take(&state)?;
        request.refuse(&signer, held.newest().map(|(_, checkpoint)| checkpoint), &state)?;
        held.replace(&request.note)?;
        Ok(witnessed(Some(key.cosign(&request.note.text, clock::unix_seconds()))))
    })
}

struct Request {
    old: u64,
    proof: Vec<Node>,
    note: Note,
    checkpoint: Checkpoint,
}

impl Request {
    fn parse(body: &str) -> Option<Self> {
        let (head, note) = body.split_once("\n\n")?;
        let mut lines = head.split('\n');
        let number = lines.next()?.strip_prefix("old ")?;
        let old: u64 = number.parse().ok().filter(|old: &u64| old.to_string() == number)?;
        let proof: Option<Vec<Node>> = lines.map(|line| BASE64.decode(line).ok()?.try_into().ok()).collect();
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
