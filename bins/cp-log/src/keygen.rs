//! `cp-log keygen`: make a key that signs checkpoints.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::note::{Signer, is_key_name};
use serde::{Deserialize, Serialize};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc =
    VerbDoc { path: "keygen", class: Class::Append, output: "made", examples: &["{} keygen K"], ..VerbDoc::EMPTY };

/// Make a key that signs checkpoints, and its public half
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name in the signatures (default: the file's name)
    #[arg(long, value_name = "NAME")]
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
    /// What is in the public file; a dry run draws no key.
    verifier: Option<String>,
    /// Whether it was only tried.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    dry_run: bool,
}

impl Reply for Made {
    fn text(&self) -> String {
        self.verifier.clone().unwrap_or_else(|| format!("would make {} and {}", self.key, self.public))
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
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
