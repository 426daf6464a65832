//! `cp-session tee`: pass records on, and store each message with the question it answers. Both sides of a round, or neither.

use cp_common::context::options::{AppendOptions, StreamOptions};
use cp_common::home::Session;
use cp_common::program::{Class, Input, VerbDoc, recording};
use cp_common::stream::Recorder;
use cp_common::stream::filter::Body;
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, Ledger, Sync};
use serde_json::value::RawValue;

use crate::operand::{self, SessionOperand};
use crate::round::Message;
use crate::transcript::must_be_open;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "tee",
    class: Class::Append,
    output: "passed",
    also: &["summary"],
    examples: &["S=$(cp-session start --format text); cp-llm --backend stub -- hello | cp-session tee \"$S\""],
    input: &[Input::Records, Input::Rows],
    events: &["message", "session_turn", "error"],
    ..VerbDoc::EMPTY
};

/// Pass records on and store the messages among them, each with its question
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    stream: StreamOptions,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    context.out.filtering();
    let session = args.session.find(context)?;
    must_be_open(&session.file())?;
    let ledger = Ledger::open_existing(&session.file(), Sync::Batch)?;
    let asked = ("tee", operand::place(&session));
    let mut tee = Tee { session, ledger, seen: 0, stored: 0, failed: 0 };
    recording::tee(&mut tee, &args.append, &asked, args.stream, context)?;
    if tee.seen > 0 && tee.stored == 0 && tee.failed == 0 {
        context.warn("nothing was stored: the input had no message");
    }
    Ok(())
}

struct Tee {
    session: Session,
    ledger: Ledger,
    /// How many lines came: none where the request was done before.
    seen: u64,
    stored: u64,
    failed: u64,
}

impl Tee {
    fn message(&mut self, data: &RawValue, context: &Context) -> Result<()> {
        let message = Message::read(data)?;
        if let Some(other) = message.session_id.as_deref().filter(|id| *id != self.session.id) {
            context.warn(&format!("the message answers a prompt of {other} and is stored in {}", self.session.id));
        }
        message.store(&self.session.id, &mut self.ledger)?;
        self.stored += 1;
        Ok(())
    }
}

impl Recorder for Tee {
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        if self.seen == 0 {
            must_be_open(&self.session.file()).map_err(Error::fatal)?;
        }
        self.seen += 1;
        let record = match body {
            Body::Text(_) => {
                return Err(Error::validation("the input is text, not records")
                    .hint("cp-session append stores a text; cp-llm writes messages")
                    .fatal());
            }
            Body::Row(row) => return self.message(row, context),
            Body::Record(record) => record,
        };
        if !record.ok {
            self.failed += 1;
            let error = record.error.map_or("{}", RawValue::get);
            let entry = Entry::new("error").session(&self.session.id).data_json(error.as_bytes())?;
            return self.ledger.append(entry).map(|_| ());
        }
        match (record.kind, record.data) {
            (Some(Kind::Message), Some(data)) => self.message(data, context),
            _ => Ok(()),
        }
    }

    fn idle(&mut self, _context: &mut Context) -> Result<()> {
        self.ledger.sync()
    }

    fn acknowledge(&mut self, _context: &mut Context) -> Result<()> {
        self.ledger.sync()
    }
}
