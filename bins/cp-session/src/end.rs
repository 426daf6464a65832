//! `cp-session end`: end a session, once.

use cp_common::context::options::AppendOptions;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::operand::{self, SessionOperand};
use crate::transcript::{self, END};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "end",
    class: Class::Append,
    output: "session_ended",
    examples: &["S=$(cp-session start --format text); cp-session end \"$S\""],
    events: &["session_end"],
    ..VerbDoc::EMPTY
};

/// End a session: nothing more is added to it
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session that has ended.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Ended {
    /// The session.
    session_id: String,
    /// How many turns it has.
    turns: u64,
    /// Whether it had ended before.
    already: bool,
    /// Where its end is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Ended {
    fn text(&self) -> String {
        format!("{} ended after {} turns", self.session_id, self.turns)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    idempotency::answer(
        &args.append,
        &("end", operand::place(&session)),
        context,
        || preview(&session),
        |_| end(&session),
    )
}

fn preview(session: &Session) -> Result<Ended> {
    let file = session.file();
    let already = transcript::ended(&file)?.is_some();
    Ok(Ended { turns: transcript::count(&file)?, session_id: session.id.clone(), already, receipt: None })
}

fn end(session: &Session) -> Result<Ended> {
    let file = session.file();
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let mut before = None;
    let mut turns = 0;
    // Checked under the lock: of two calls at once, one comes second and finds the end that the first wrote.
    let receipts = ledger.append_placed(|_| {
        turns = transcript::count(&file)?;
        before = transcript::ended(&file)?;
        Ok(match before {
            Some(_) => Vec::new(),
            None => vec![Entry::new(END).session(&session.id).with("turns", &turns)],
        })
    })?;
    let earlier = before.map(|(seq, hash)| ledger.receipt(seq, &hash));
    Ok(Ended {
        session_id: session.id.clone(),
        turns,
        already: earlier.is_some(),
        receipt: receipts.into_iter().next().or(earlier),
    })
}
