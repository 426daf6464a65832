//! `cp-log tee`: pass every line on, byte for byte, and append it to a ledger. The closing line waits until the ledger has everything.

use cp_common::context::options::StreamOptions;
use cp_common::program::{Class, VerbDoc};
use cp_common::stream::filter::Body;
use cp_common::stream::{Recorder, tee};
use cp_common::{Context, Result};
use cp_ledger::{Ledger, Sync};

use crate::entries::Members;
use crate::ledger::LedgerOperand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tee",
    class: Class::Append,
    output: "entry",
    examples: &["seq 3 | {} tee copy.jsonl"],
    dangerous: false,
};

/// Pass lines on and append each to a ledger
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    stream: StreamOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = args.ledger.path(context);
    context.home.check_writable(&path)?;
    let mut recorder = Tee { members: &args.members, ledger: Ledger::open(&path, Sync::Batch)? };
    tee(&mut recorder, args.stream, context)
}

struct Tee<'a> {
    members: &'a Members,
    ledger: Ledger,
}

impl Recorder for Tee<'_> {
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let entry = self.members.entry_of(&body, context)?;
        self.ledger.stage(&entry)
    }

    fn idle(&mut self, _context: &mut Context) -> Result<()> {
        self.ledger.commit().map(|_| ())
    }

    fn acknowledge(&mut self, context: &mut Context) -> Result<()> {
        self.idle(context)?;
        self.ledger.sync()
    }
}
