//! `cp-log create`: create a ledger with a name, and with the key that signs it on its first line.

use std::path::{Path, PathBuf};

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::Ledger;
use cp_ledger::append::Birth;
use cp_ledger::proof::note::{Verifier, is_key_name};
use serde::{Deserialize, Serialize};

use crate::ledger::LedgerOperand;

/// The longest name of a ledger, in bytes.
const LONGEST: usize = 255;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "create",
    class: Class::Append,
    output: "begun",
    examples: &["{} create --name example.com/audit audit.jsonl"],
    ..VerbDoc::EMPTY
};

/// Begin a ledger under a name of its own
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// What checkpoints call it, a host and a path by custom: example.com/audit (default: random)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The public key that its checkpoints are to be signed with: kept on the first line
    #[arg(long, value_name = "FILE")]
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
    /// The file.
    ledger: String,
    /// What checkpoints call it; null when a dry run has not drawn one.
    origin: Option<String>,
    /// The public key on its first line.
    verifier: Option<String>,
    /// Whether it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Begun {
    fn text(&self) -> String {
        self.origin.clone().unwrap_or_default()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = std::path::absolute(args.ledger.path(context))?;
    context.home.check_writable(&path)?;
    if let Some(name) = args.name.as_deref().filter(|name| !is_key_name(name) || name.len() > LONGEST) {
        return Err(Error::usage(format!("`{name}` is not a valid ledger name"))
            .hint(format!("use at most {LONGEST} bytes, no spaces and no plus sign")));
    }
    let verifier = args.key.as_deref().map(Verifier::load).transpose()?;
    let birth = Birth { origin: args.name.clone(), verifier: verifier.map(|verifier| verifier.to_text()) };
    let arguments = ("create", &path, &birth.origin, &birth.verifier);
    idempotency::answer(&args.append, &arguments, context, || preview(&path, &birth), |_| create(&path, &birth))
}

fn preview(path: &Path, birth: &Birth) -> Result<Begun> {
    if Ledger::is_there(path)? { Err(taken(path)) } else { Ok(begun(path, birth.origin.clone(), birth, true)) }
}

fn create(path: &Path, birth: &Birth) -> Result<Begun> {
    let origin = Ledger::create(path, birth)?.ok_or_else(|| taken(path))?;
    Ok(begun(path, Some(origin), birth, false))
}

fn begun(path: &Path, origin: Option<String>, birth: &Birth, dry_run: bool) -> Begun {
    Begun { ledger: path.display().to_string(), origin, verifier: birth.verifier.clone(), dry_run }
}

fn taken(path: &Path) -> Error {
    Error::new(Code::Conflict, "the file exists").in_file(path).hint("choose another name, or append to the file")
}
