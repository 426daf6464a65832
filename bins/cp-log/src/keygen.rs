//! `cp-log keygen`: make a key that signs checkpoints.

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::proof::note::{Signer, is_key_name};
use serde::Serialize;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc =
    VerbDoc { path: "keygen", class: Class::Append, output: "made", examples: &["{} keygen K"], ..VerbDoc::EMPTY };

/// Make a key that signs checkpoints, and its public half
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The name in the signatures (default: the file's name)
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The file for the key; its public half goes to FILE.pub
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// A key that was made.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Made {
    /// The file that signs. Keep it where the one whose ledger it signs cannot read it.
    key: String,
    /// The file that proves.
    public: String,
    /// What is in the public file.
    verifier: String,
}

impl Reply for Made {
    fn text(&self) -> String {
        self.verifier.clone()
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
    context.home.check_writable(&args.file)?;
    let mut seed = [0; 32];
    rustix::rand::getrandom(&mut seed, rustix::rand::GetRandomFlags::empty())?;
    let signer = Signer::new(&name, &seed);
    let mut public = args.file.as_os_str().to_owned();
    public.push(".pub");
    let public = PathBuf::from(public);
    let verifier = signer.verifier().to_text();
    write_new(&args.file, &signer.to_text(), 0o600)?;
    write_new(&public, &format!("{verifier}\n"), 0o644)?;
    context.out.answer(&Made { key: args.file.display().to_string(), public: public.display().to_string(), verifier })
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<()> {
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(mode).open(path).map_err(|e| match e.kind() {
            ErrorKind::AlreadyExists => {
                Error::new(Code::Conflict, "the file exists").in_file(path).hint("choose another name")
            }
            _ => Error::io("cannot create", e).in_file(path),
        })?;
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .map_err(|e| Error::io("cannot write", e).in_file(path))
}
