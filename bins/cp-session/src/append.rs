//! `cp-session append`: add a turn. A text is one turn, whole; rows and messages are a turn each. And `tee`, which
//! passes records on and stores each message with the question that it answers: both sides of a round, or neither.

use cp_common::context::options::{AppendOptions, StreamOptions};
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::stream::{self, Recorder};
use cp_common::wire::record::{self, Kind};
use cp_common::wire::{Block, Receipt, Turn};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::sessions::Session;
use cp_ledger::{Entry, Ledger, Sync};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::round::{Added, Message, check_role, redactions, text_given, turn_entry};
use crate::session::{self, SessionOperand};
use crate::transcript::must_be_open;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["S=$(cp-session start --format text); cp-session append --session \"$S\" -- hello"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["message"],
    ..VerbDoc::new("append", Class::Append, "session_added")
};

/// Add a turn to a session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The role of the turn
    #[arg(long, value_parser = ["user", "assistant"], default_value = "user")]
    role: String,
    /// When an append is acknowledged
    #[arg(long, value_enum, default_value = "line", value_name = "WHEN")]
    sync: Sync,
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    stream: StreamOptions,
    /// The text of the turn; - adds standard input
    text: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = session::find(None, context)?;
    if args.append.dry_run {
        must_be_open(&session.file())?;
    }
    let source = Source::from_operands(&args.text)?;
    let ledger = Ledger::open_existing(&session.file(), args.sync)?;
    let mut appender = Appender { args, session, ledger };
    filter::run(&mut appender, source, args.stream, context)
}

struct Appender<'a> {
    args: &'a Args,
    session: Session,
    ledger: Ledger,
}

#[derive(Deserialize)]
struct Given {
    role: Option<String>,
    content: cp_common::wire::Content,
    #[serde(default)]
    blocks: Vec<Block>,
}

impl Appender<'_> {
    fn turn(&self, body: &Body<'_>) -> Result<Turn> {
        let data = match body {
            Body::Text(bytes) => return Ok(Turn::text(&self.args.role, text_given(bytes)?)),
            Body::Record(record) => record.data.ok_or_else(|| Error::validation("the record has no `data`"))?,
            Body::Row(row) => row,
        };
        let given: Given = record::read(data)?;
        let role = given.role.unwrap_or_else(|| self.args.role.clone());
        check_role(&role)?;
        if given.content.is_empty() {
            return Err(Error::validation("the content is empty"));
        }
        Ok(Turn { role, content: given.content, blocks: given.blocks })
    }

    fn store(&mut self, turn: &Turn) -> Result<Receipt> {
        let file = self.session.file();
        // Checked under the lock: the session may have ended meanwhile.
        let receipts = self.ledger.append_placed(|_| {
            must_be_open(&file)?;
            Ok(vec![turn_entry(&self.session.id, turn)])
        })?;
        receipts.into_iter().next().ok_or_else(|| Error::new(Code::Unknown, "the turn was not recorded"))
    }

    fn append(&mut self, turn: &Turn) -> Result<Added> {
        let redactions = redactions(turn)?;
        let receipt = if self.args.append.dry_run { None } else { Some(self.store(turn)?) };
        let (session_id, role) = (Some(self.session.id.clone()), Some(turn.role.clone()));
        Ok(Added { session_id, role, kind: None, redactions, receipt })
    }
}

impl Filter for Appender<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Message]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let turn = self.turn(&body)?;
        let is_text = matches!(body, Body::Text(_));
        let Some(id) = &self.args.append.request_id else {
            let appended = self.append(&turn)?;
            return if is_text { context.out.answer(&appended) } else { context.out.record(Kind::Item, &appended) };
        };
        if !is_text {
            return Err(Error::usage("--request-id applies to one text, not to a stream")
                .hint("give one text as an argument")
                .fatal());
        }
        let asked = ("append", session::place(&self.session), turn.clone());
        let appended = idempotency::once(Some(id.as_str()), &asked, context, |_| self.append(&turn))?;
        context.out.answer(&appended)
    }

    fn finish(&mut self, _context: &mut Context) -> Result<()> {
        self.ledger.sync()
    }
}

/// The entry of this verb in `reference`.
pub(crate) const TEE_DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["S=$(cp-session start --format text); cp-llm --backend stub -- hello | cp-session tee \"$S\""],
    input: &[Input::Records, Input::Rows],
    events: &["message", "session_turn", "error"],
    ..VerbDoc::new("tee", Class::Append, "passed")
};

/// Pass records on, and store messages with their questions
#[derive(clap::Args)]
pub(crate) struct TeeArgs {
    #[command(flatten)]
    session: SessionOperand,
    /// Pass the records on and store nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stream: StreamOptions,
}

pub(crate) fn tee(args: &TeeArgs, context: &mut Context) -> Result<()> {
    context.out.filtering();
    let session = args.session.find(context)?;
    must_be_open(&session.file())?;
    let ledger = Ledger::open_existing(&session.file(), Sync::Batch)?;
    let mut tee = Tee { session, ledger, seen: 0, stored: 0, failed: 0 };
    stream::tee(&mut tee, args.dry_run, args.stream, context)?;
    if tee.seen > 0 && tee.stored == 0 && tee.failed == 0 {
        context.warn("nothing was stored: the input had no message");
    }
    Ok(())
}

struct Tee {
    session: Session,
    ledger: Ledger,
    /// How many lines came: none in a dry run.
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
            let entry = Entry::new("error").session(&self.session.id).error(&record.error);
            return self.ledger.append(entry).map(|_| ());
        }
        match (record.kind, record.data) {
            (Some(Kind::Message), Some(data)) => self.message(data, context),
            _ => Ok(()),
        }
    }

    fn write(&mut self, _is_end: bool) -> Result<()> {
        self.ledger.sync()
    }
}
