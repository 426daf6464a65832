//! `cp-log tip`: the last line of a ledger, which stands for all lines before it.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::line::Line;
use cp_ledger::read::{End, backward};
use serde::Serialize;

use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tip",
    class: Class::Query,
    output: "tip",
    examples: &["{} append hello && {} tip"],
    ..VerbDoc::EMPTY
};

/// Print the place and the hash of the last line
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
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
    /// Whether bytes of a line that is not whole follow: complete or `in_flight`.
    tail: &'static str,
}

impl Reply for Tip {
    fn text(&self) -> String {
        format!("{} {} {}", self.seq, self.hash, self.ts)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = args.ledger.path(context);
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
