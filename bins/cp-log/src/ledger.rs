//! How a command line names one ledger, what `doctor` reports of it, and the verbs that print a part of one: `cp-log tip`,
//! its last line, and `blob`, a value beside it that a line names by its hash.

use std::path::{Path, PathBuf};

use base64::prelude::{BASE64_STANDARD as BASE64, Engine as _};
use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::wire::{LedgerName, Reply, quoted};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::blob;
use cp_ledger::format::line::{Hash, Line};
use cp_ledger::read::segments::followed;
use cp_ledger::read::{End, backward};
use cp_ledger::sessions::Session;
use serde::Serialize;

use crate::reading::{ledger_of_run, subject};

/// The option that names the ledger.
#[derive(Debug, clap::Args)]
pub(crate) struct LedgerOption {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// The operand that names the ledger.
#[derive(Debug, clap::Args)]
pub(crate) struct LedgerOperand {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
}

/// The path of the ledger that a verb names. Without a named file it is that of the run that `--run` names.
pub(crate) fn path(file: Option<&Path>, context: &Context) -> Result<PathBuf> {
    match &context.options.run {
        Some(run) if file.is_none() && context.options.ledger.is_none() => ledger_of_run(run, context),
        _ => Ok(path_of(file, context)),
    }
}

/// The path of the ledger that a verb reads, which may be named by its run or its session.
pub(crate) fn path_to_read(file: Option<&Path>, context: &Context) -> Result<PathBuf> {
    file.map_or_else(|| path(None, context), |file| Ok(followed(&subject(file, Session::file, context)?)))
}

/// The absolute path of the ledger that a verb names, if it may be written.
pub(crate) fn writable_path(file: Option<&Path>, context: &Context) -> Result<PathBuf> {
    writable(&path(file, context)?, context)
}

/// The absolute path of the ledger to append to, where `--run` is a member of the entry. Directories are created only
/// inside the home, because elsewhere a missing one is a mistyped name.
pub(crate) fn append_path(file: Option<&Path>, context: &Context) -> Result<PathBuf> {
    let path = writable(&path_of(file, context), context)?;
    match path.parent().filter(|directory| !directory.exists() && !context.home.contains(directory)) {
        Some(directory) => Err(Error::not_found("no such directory")
            .in_file(directory)
            .hint(format!("mkdir -p {}", quoted(&directory.display().to_string())))
            .fatal()),
        None => Ok(path),
    }
}

/// The file that the verb names, else that of `--ledger`, else that of the setting, else home's.
pub(crate) fn path_of(file: Option<&Path>, context: &Context) -> PathBuf {
    let option = file.or(context.options.ledger.as_deref()).map(Path::to_owned);
    let setting = || context.config.text("ledger", None).map(PathBuf::from);
    followed(&option.or_else(setting).unwrap_or_else(|| context.home.ledger("cp-log.jsonl")))
}

fn writable(path: &Path, context: &Context) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    cp_policy::check_writable(&context.home, &path)?;
    Ok(path)
}

/// The checks of `doctor`.
pub(crate) fn checks(context: &mut Context) -> Vec<Check> {
    let path = path_of(None, context);
    let shown = path.display().to_string();
    if !path.exists() {
        return vec![Check::pass("ledger", format!("{shown} will be created by the first append"))];
    }
    vec![match tip_of(&path) {
        Ok(tip) => Check::pass("ledger", format!("{shown} ends with line {}", tip.seq)),
        Err(e) => {
            let hint = "cp-log verify shows what is wrong, cp-log repair --tail moves damaged last lines aside";
            Check::not_fine("ledger", Status::Fail, format!("{shown}: {}", e.message()), hint)
        }
    }]
}

/// The entry of this verb in `reference`.
pub(crate) const TIP_DOC: VerbDoc =
    VerbDoc { examples: &["{} append hello && {} tip"], ..VerbDoc::new("tip", Class::Query, "tip") };

/// Print the place and the hash of the last line
#[derive(Debug, clap::Args)]
pub(crate) struct TipArgs {
    #[command(flatten)]
    ledger: LedgerOperand,
}

/// The end of a ledger.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Tip {
    #[serde(flatten)]
    ledger: LedgerName,
    /// The place of the last line.
    seq: u64,
    /// The hash of the last line.
    hash: String,
    /// The writer's clock in the last line.
    ts: String,
    /// The bytes up to the end of the last line.
    size: u64,
    /// True if bytes of a line that is not whole follow: complete or `in_flight`.
    tail: &'static str,
}

impl Reply for Tip {
    fn text(&self) -> String {
        format!("{} {} {}", self.seq, self.hash, self.ts)
    }
}

pub(crate) fn tip(args: &TipArgs, context: &mut Context) -> Result<()> {
    let tip = tip_of(&path_to_read(args.ledger.file.as_deref(), context)?)?;
    context.out.answer(&tip)
}

fn tip_of(path: &Path) -> Result<Tip> {
    let mut reader = backward(path)?;
    let mut tail = "complete";
    while let Some(raw) = reader.next()? {
        if raw.end == End::File {
            tail = "in_flight";
            continue;
        }
        let Some(line) = raw.stored().filter(Line::is_intact) else {
            return Err(Error::new(Code::Integrity, format!("the last line is damaged, at byte {}", raw.offset))
                .with("offset", raw.offset)
                .in_file(path)
                .hint("run cp-log verify for details"));
        };
        let size = raw.offset + line.bytes().len() as u64 + 1;
        let (seq, hash, ts) = (line.seq(), line.hash().to_string(), line.ts().to_owned());
        return Ok(Tip { ledger: path.into(), seq, hash, ts, size, tail });
    }
    Err(Error::not_found("the ledger has no complete line").in_file(path))
}

/// The entry of this verb in `reference`.
pub(crate) const BLOB_DOC: VerbDoc = VerbDoc {
    examples: &[
        "head -c 2000000 /dev/zero | tr '\\0' x | {} append && {} blob $({} query --event log --format raw | jq -r .message.blob)",
    ],
    ..VerbDoc::new("blob", Class::Query, "blob")
};

/// Print the bytes that a line names by their hash
#[derive(Debug, clap::Args)]
pub(crate) struct BlobArgs {
    #[command(flatten)]
    ledger: LedgerOption,
    /// The hash, as the line has it
    #[arg(value_name = "HASH")]
    hash: String,
}

/// A blob. One of `text` and `base64` is there.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["text", "base64"])))]
pub(crate) struct Found {
    /// The hash of the bytes.
    blob: String,
    /// How many there are.
    len: usize,
    /// The bytes, if they are UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
    /// The bytes, if they are not.
    #[serde(skip_serializing_if = "Option::is_none")]
    base64: Option<String>,
    /// JSON Pointers to what is not ours.
    #[serde(rename = "_untrusted")]
    untrusted: [&'static str; 1],
    #[serde(skip)]
    bytes: Vec<u8>,
}

impl Reply for Found {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    fn raw(&self) -> Vec<u8> {
        self.bytes.clone()
    }
}

pub(crate) fn blob(args: &BlobArgs, context: &mut Context) -> Result<()> {
    let hash = Hash::parse(&args.hash).ok_or_else(|| Error::usage(format!("`{}` is not a hash", args.hash)))?;
    let bytes = blob::load(&path_to_read(args.ledger.file.as_deref(), context)?, &hash)?;
    let text = String::from_utf8(bytes.clone()).ok();
    let base64 = text.is_none().then(|| BASE64.encode(&bytes));
    let untrusted = [if text.is_some() { "/text" } else { "/base64" }];
    context.out.answer(&Found { blob: hash.to_string(), len: bytes.len(), text, base64, untrusted, bytes })
}
