//! How a command line names one ledger, what `doctor` reports of it, and `cp-log tip`, which prints its last line.

use std::path::{Path, PathBuf};

use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::read::{End, backward};
use serde::Serialize;

use crate::reading::ledger_of_run;

/// The option that names the ledger.
#[derive(Debug, clap::Args)]
pub(crate) struct LedgerOption {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Named for LedgerOption {
    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl LedgerOption {
    /// The absolute path of the ledger to append to, where `--run` is a member of the entry. Directories are created
    /// only inside the home, because elsewhere a missing one is a mistyped name.
    pub(crate) fn append_path(&self, context: &Context) -> Result<PathBuf> {
        let path = writable(&path_of(self.file.as_deref(), context), context)?;
        match path.parent().filter(|directory| !directory.exists() && !context.home.contains(directory)) {
            Some(directory) => Err(Error::not_found("no such directory")
                .in_file(directory)
                .hint(format!("mkdir -p {}", quoted(&directory.display().to_string())))
                .fatal()),
            None => Ok(path),
        }
    }
}

/// The operand that names the ledger.
#[derive(Debug, clap::Args)]
pub(crate) struct LedgerOperand {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

impl Named for LedgerOperand {
    fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }
}

impl LedgerOperand {
    /// The absolute path of the ledger to append to, where `--run` is a member of the entry.
    pub(crate) fn append_path(&self, context: &Context) -> Result<PathBuf> {
        writable(&path_of(self.file.as_deref(), context), context)
    }
}

/// What names a ledger.
pub(crate) trait Named {
    /// The file that the verb names.
    fn file(&self) -> Option<&Path>;

    /// The path of the ledger. Without a named file it is that of the run that `--run` names.
    fn path(&self, context: &Context) -> Result<PathBuf> {
        match &context.options.run {
            Some(run) if self.file().is_none() && context.options.ledger.is_none() => ledger_of_run(run, context),
            _ => Ok(path_of(self.file(), context)),
        }
    }

    /// The absolute path of the ledger, if it may be written.
    fn writable_path(&self, context: &Context) -> Result<PathBuf> {
        writable(&self.path(context)?, context)
    }
}

/// The file that the verb names, else that of `--ledger`, else that of the setting, else home's.
pub(crate) fn path_of(file: Option<&Path>, context: &Context) -> PathBuf {
    let option = file.or(context.options.ledger.as_deref()).map(Path::to_owned);
    let setting = || context.config.text("ledger", None).map(PathBuf::from);
    option.or_else(setting).unwrap_or_else(|| context.home.ledger("cp-log.jsonl"))
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
pub(crate) const TIP_DOC: VerbDoc = VerbDoc {
    path: "tip",
    class: Class::Query,
    output: "tip",
    examples: &["{} append hello && {} tip"],
    ..VerbDoc::EMPTY
};

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
    /// The file.
    ledger: String,
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
    let tip = tip_of(&args.ledger.path(context)?)?;
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
        return Ok(Tip { ledger: path.display().to_string(), seq, hash, ts, size, tail });
    }
    Err(Error::not_found("the ledger has no complete line").in_file(path))
}
