//! How a command line names one ledger, what `doctor` reports of it, and `cp-log tip`, which prints its last line.

use std::path::{Path, PathBuf};

use cp_common::program::{Check, Class, Status, VerbDoc};
use cp_common::wire::{Reply, quoted};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::read::tail::{Last, Tail};
use cp_ledger::read::{End, backward, open};
use serde::Serialize;

use crate::reading::ledger_of_run;

/// The option that names the ledger.
#[derive(Debug, clap::Args)]
pub(crate) struct LedgerOption {
    /// The ledger (default: --ledger, the setting, else ledger/cp-log.jsonl of home)
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl LedgerOption {
    /// The path of the ledger.
    pub(crate) fn path(&self, context: &Context) -> Result<PathBuf> {
        path_or_run(self.file.as_deref(), context)
    }

    /// The absolute path of the ledger, if it may be written.
    pub(crate) fn writable_path(&self, context: &Context) -> Result<PathBuf> {
        writable(&self.path(context)?, context)
    }

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

impl LedgerOperand {
    /// True if the command line says which file.
    pub(crate) fn is_named(&self) -> bool {
        self.file.is_some()
    }

    /// The path of the ledger.
    pub(crate) fn path(&self, context: &Context) -> Result<PathBuf> {
        path_or_run(self.file.as_deref(), context)
    }

    /// The absolute path of the ledger, if it may be written.
    pub(crate) fn writable_path(&self, context: &Context) -> Result<PathBuf> {
        writable(&self.path(context)?, context)
    }

    /// The absolute path of the ledger to append to, where `--run` is a member of the entry.
    pub(crate) fn append_path(&self, context: &Context) -> Result<PathBuf> {
        writable(&path_of(self.file.as_deref(), context), context)
    }
}

/// The same as [`path_of`], but without a named file it is the ledger of the run that `--run` names.
fn path_or_run(file: Option<&Path>, context: &Context) -> Result<PathBuf> {
    match &context.options.run {
        Some(run) if file.is_none() && context.options.ledger.is_none() => ledger_of_run(run, context),
        _ => Ok(path_of(file, context)),
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
    let state = open(&path).and_then(|file| {
        let size = file.metadata().map_err(|e| Error::io("cannot read the size", e))?.len();
        Ok(Tail::read(&file, size)?)
    });
    vec![match state {
        Ok(Tail { last: Last::Intact { seq, .. }, .. }) => {
            Check::pass("ledger", format!("{shown} ends with line {seq}"))
        }
        Ok(Tail { last: Last::Damaged, .. }) => {
            let hint = "cp-log verify shows where, cp-log repair --tail moves it aside";
            Check::not_fine("ledger", Status::Fail, format!("the last line of {shown} is damaged"), hint)
        }
        Ok(Tail { last: Last::None, .. }) => {
            let hint = "name another file with --ledger or CP_LEDGER";
            Check::not_fine("ledger", Status::Warn, format!("{shown} has no complete line"), hint)
        }
        Err(e) => Check::not_fine("ledger", Status::Fail, e.message(), "make the file readable"),
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
    let path = args.ledger.path(context)?;
    let mut reader = backward(&path)?;
    let mut tail = "complete";
    while let Some(raw) = reader.next()? {
        if raw.end == End::File {
            tail = "in_flight";
            continue;
        }
        let Some(line) = raw.stored().filter(Line::is_intact) else {
            return Err(Error::new(Code::Integrity, format!("the last line is damaged, at byte {}", raw.offset))
                .with("offset", raw.offset)
                .in_file(&path)
                .hint("run cp-log verify for details"));
        };
        let size = raw.offset + line.bytes().len() as u64 + 1;
        let (seq, hash, ts) = (line.seq(), line.hash().to_string(), line.ts().to_owned());
        return context.out.answer(&Tip { ledger: path.display().to_string(), seq, hash, ts, size, tail });
    }
    Err(Error::not_found("the ledger has no complete line").in_file(&path))
}
