//! `cp-session clear`: archive the turns and begin again. The archive is a closed segment of the same ledger.

use cp_common::context::options::AppendOptions;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::read::segments::name_of;
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::operand::{self, SessionOperand};
use crate::transcript::{self, CLEAR};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "clear",
    class: Class::Append,
    output: "session_cleared",
    examples: &["S=$(cp-session start --format text); cp-session clear \"$S\""],
    events: &["session_clear"],
    ..VerbDoc::EMPTY
};

/// Archive the turns and begin again
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session that begins again.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Cleared {
    /// The session.
    session_id: String,
    /// How many turns were archived.
    turns: u64,
    /// The file that holds them now.
    archive: String,
    /// Where it is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Cleared {
    fn text(&self) -> String {
        format!("{} turns archived in {}", self.turns, self.archive)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    idempotency::answer(
        &args.append,
        &("clear", operand::place(&session)),
        context,
        || preview(&session),
        |_| clear(&session),
    )
}

fn preview(session: &Session) -> Result<Cleared> {
    let file = session.file();
    transcript::must_be_open(&file)?;
    let archive = Ledger::open_existing(&file, Sync::Line)?.segment_path()?.display().to_string();
    Ok(Cleared { turns: transcript::count(&file)?, session_id: session.id.clone(), archive, receipt: None })
}

fn clear(session: &Session) -> Result<Cleared> {
    let file = session.file();
    transcript::must_be_open(&file)?;
    let (start, _) = transcript::start_of(&file)?;
    let mut ledger = Ledger::open_existing(&file, Sync::Line)?;
    let mut turns = 0;
    let (archive, receipt) = ledger.rotate_with(|closing| {
        // What came in until the last moment is archived too, so it is counted here, under the lock.
        turns = transcript::count(closing)?;
        let archived = name_of(closing)?.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let entry = Entry::new(CLEAR).agent(&start.agent).session(&session.id).data(&start);
        Ok(entry.with("archive", &archived).with("turns", &turns))
    })?;
    Ok(Cleared {
        session_id: session.id.clone(),
        turns,
        archive: archive.display().to_string(),
        receipt: Some(receipt),
    })
}
