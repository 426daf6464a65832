//! `cp-log tee`: pass every line on, byte for byte, and append it to a ledger. The closing line waits until the ledger has everything.

use std::path::PathBuf;

use cp_common::context::options::{AppendOptions, StreamOptions};
use cp_common::program::{Class, Input, VerbDoc, recording};
use cp_common::stream::Recorder;
use cp_common::stream::filter::Body;
use cp_common::{Context, Result};
use cp_ledger::{Ledger, Sync};

use crate::append::Members;
use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tee",
    class: Class::Append,
    output: "passed",
    also: &["summary"],
    examples: &["seq 3 | {} tee copy.jsonl"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["log", "error"],
    ..VerbDoc::EMPTY
};

/// Pass lines on and append each to a ledger
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    stream: StreamOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = args.ledger.writable_path(context)?;
    let request = ("tee", &path, format!("{:?}", args.members), context.session(), context.options.run.clone());
    let mut recorder = Tee { members: &args.members, path: path.clone(), ledger: None };
    recording::tee(&mut recorder, &args.append, &request, args.stream, context)
}

struct Tee<'a> {
    members: &'a Members,
    path: PathBuf,
    /// Opened with the first line: a dry run makes no file.
    ledger: Option<Ledger>,
}

impl Tee<'_> {
    fn ledger(&mut self) -> Result<&mut Ledger> {
        Ledger::once(&mut self.ledger, &self.path, Sync::Batch)
    }
}

impl Recorder for Tee<'_> {
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let entry = self.members.entry_of(&body, context)?;
        self.ledger()?.stage(&entry)
    }

    fn idle(&mut self, _context: &mut Context) -> Result<()> {
        self.ledger.as_mut().map_or(Ok(()), |ledger| ledger.commit().map(drop))
    }

    fn acknowledge(&mut self, context: &mut Context) -> Result<()> {
        self.idle(context)?;
        self.ledger.as_mut().map_or(Ok(()), Ledger::sync)
    }
}
