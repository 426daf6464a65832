//! `cp-session resume`: open a session again that has ended.

use cp_common::context::options::AppendOptions;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::operand::{self, SessionOperand};
use crate::transcript::{self, RESUMED};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "resume",
    class: Class::Append,
    output: "session_resumed",
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\"; cp-session resume \"$S\""],
    events: &["session_resumed"],
    ..VerbDoc::EMPTY
};

/// Open a session again that has ended
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session that is open again.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Resumed {
    /// The session.
    session_id: String,
    /// How many turns it has.
    turns: u64,
    /// Whether it was open before.
    already: bool,
    /// Where that is recorded; one that was open and a dry run have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Resumed {
    fn text(&self) -> String {
        self.session_id.clone()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let asked = ("resume", operand::place(&session));
    idempotency::answer(&args.append, &asked, context, || preview(&session), |_| resume(&session))
}

fn preview(session: &Session) -> Result<Resumed> {
    let file = session.file();
    let already = transcript::ended(&file)?.is_none();
    Ok(Resumed { turns: transcript::count(&file)?, session_id: session.id.clone(), already, receipt: None })
}

fn resume(session: &Session) -> Result<Resumed> {
    let file = session.file();
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let mut turns = 0;
    // Checked under the lock: of two calls at once, the second finds the session open.
    let receipts = ledger.append_placed(|_| {
        turns = transcript::count(&file)?;
        let entry = || Entry::new(RESUMED).session(&session.id).with("turns", &turns);
        Ok(transcript::ended(&file)?.map(|_| entry()).into_iter().collect())
    })?;
    let receipt = receipts.into_iter().next();
    Ok(Resumed { session_id: session.id.clone(), turns, already: receipt.is_none(), receipt })
}
