//! `cp-log append`: append entries to a ledger, from arguments or one for each line of standard input. And `tee`, which
//! also passes every line on, byte for byte, and holds the closing line until the ledger has everything.

use std::path::{Path, PathBuf};

use cp_common::context::given::{has_unread_input, note_unread_input, refuse_unread_file};
use cp_common::context::options::{AppendOptions, StreamOptions};
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::stream::{self, Recorder};
use cp_common::wire::record::Kind;
use cp_common::wire::{Receipt, Reply, bytes_of};
use cp_common::{Code, Context, Error, Result};
use cp_ledger::format::Entry;
use cp_ledger::format::line::{Hash, inside};
use cp_ledger::{Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::ledger::{self, LedgerOperand, LedgerOption};

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["planned", "summary"],
    examples: &["{} append --event deploy 'version 7 is live'", "seq 3 | {} append --event tick --sync batch"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["log"],
    ..VerbDoc::new("append", Class::Append, "receipt")
};

/// Append entries to a ledger
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    ledger: LedgerOption,
    #[command(flatten)]
    members: Members,
    /// The entry's data, a JSON object
    #[arg(long, value_name = "JSON")]
    data: Option<String>,
    /// When to acknowledge (default: line for one entry, batch for a stream)
    #[arg(long, value_enum, value_name = "WHEN")]
    sync: Option<Sync>,
    #[command(flatten)]
    append: AppendOptions,
    #[command(flatten)]
    stream: StreamOptions,
    /// The text of one entry; - reads it from standard input
    #[arg(value_name = "MESSAGE")]
    message: Vec<String>,
}

/// The answer to `--dry-run`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Planned {
    /// The ledger that it would be appended to.
    ledger: String,
    /// Its bytes in base64 where they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ledger_bytes: Option<String>,
    /// The members that the entry would have, without its place and its hash.
    entry: Box<RawValue>,
}

impl Reply for Planned {
    fn text(&self) -> String {
        format!("would append {} to {}", self.entry.get(), self.ledger)
    }
}

/// The way to append standard input.
const READ_INPUT: &str = "leave the message and --data out to append it";

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let path = ledger::append_path(args.ledger.file.as_deref(), context)?;
    let source = Source::from_operands(&args.message)?;
    match source {
        Source::Argument(text) => one(args, &path, Some(&text), context),
        Source::Input if args.data.is_some() => one(args, &path, None, context),
        source => {
            if args.append.request_id.is_some() {
                return Err(
                    Error::usage("--request-id needs one entry from arguments").hint("send one request for each entry")
                );
            }
            let sync = args.sync.unwrap_or(Sync::Batch);
            let mut recording = Recording::new(&args.members, path, sync, args.append.dry_run);
            if !recording.dry_run {
                Ledger::once(&mut recording.ledger, &recording.path, sync)?;
            }
            filter::run(&mut recording, source, args.stream, context)
        }
    }
}

fn one(args: &Args, path: &Path, message: Option<&str>, context: &mut Context) -> Result<()> {
    refuse_unread_file(READ_INPUT)?;
    let make = |context: &Context| -> Result<Entry> {
        let mut entry = args.members.apply(Entry::new("log"), context);
        if let Some(message) = message {
            entry = entry.message(message);
        }
        match &args.data {
            Some(data) => entry.data_json(data.as_bytes()),
            None => Ok(entry),
        }
    };
    if args.append.dry_run {
        let entry = planned(&make(context)?)?;
        note_unread_input(READ_INPUT, context);
        return context.out.answer(&Planned {
            ledger: path.display().to_string(),
            ledger_bytes: bytes_of(path),
            entry,
        });
    }
    let told = (&args.data, format!("{:?}", args.members));
    let arguments = ("append", path, message, told, context.session(), context.options.run.clone());
    let id = args.append.request_id.as_deref();
    let receipt: Receipt = idempotency::once(id, &arguments, context, |context| {
        let mut ledger = Ledger::open(path, args.sync.unwrap_or(Sync::Line))?;
        ledger.append(make(context)?)
    })?;
    note_unread_input(READ_INPUT, context);
    context.out.answer(&receipt)
}

/// The members that the line would have, as an object.
fn planned(entry: &Entry) -> Result<Box<RawValue>> {
    entry.check()?;
    let mut object = vec![b'{'];
    entry.compose(&mut object);
    Redactor::from_environment().redact(&mut object, 1);
    if object.len() > 1 {
        // The comma before the first member.
        object.remove(1);
    }
    object.push(b'}');
    serde_json::from_slice(&object)
        .map_err(|e| Error::new(Code::Unknown, format!("a composed entry is not valid JSON: {e}")))
}

/// Appends one entry for each item.
struct Recording<'a> {
    members: &'a Members,
    path: PathBuf,
    sync: Sync,
    dry_run: bool,
    ledger: Option<Ledger>,
    /// The entry of a text line, which is reused because only its message changes.
    text: Option<Entry>,
    first: Option<(u64, Hash)>,
    last: Option<(u64, Hash)>,
}

impl<'a> Recording<'a> {
    fn new(members: &'a Members, path: PathBuf, sync: Sync, dry_run: bool) -> Self {
        Self { members, path, sync, dry_run, ledger: None, text: None, first: None, last: None }
    }

    /// Stages the entry of an item; a dry run only checks it.
    fn stage(&mut self, body: &Body<'_>, context: &Context) -> Result<()> {
        let fresh;
        let entry = match (body, &mut self.text) {
            (Body::Text(text), Some(entry)) => {
                entry.set_message_bytes(text);
                entry
            }
            (Body::Text(_), none) => none.insert(self.members.entry_of(body, context)?),
            _ => {
                fresh = self.members.entry_of(body, context)?;
                &fresh
            }
        };
        if self.dry_run {
            return entry.check();
        }
        Ledger::once(&mut self.ledger, &self.path, self.sync)?.stage(entry)
    }

    /// Writes what is staged, counts it, and reports what is on the ledger so far, also before a failure.
    fn commit(&mut self, context: &mut Context) -> Result<()> {
        let committed = self.ledger.as_mut().map_or(Ok(Vec::new()), Ledger::commit);
        if let Ok(places @ [first, ..]) = committed.as_deref() {
            self.first.get_or_insert(*first);
            self.last = places.last().copied();
            context.out.items_succeeded(places.len() as u64);
        }
        context.out.extra("ledger", self.path.display().to_string());
        if let Some(bytes) = bytes_of(&self.path) {
            context.out.extra("ledger_bytes", bytes);
        }
        for (name, place) in [("first", &self.first), ("last", &self.last)] {
            if let Some((seq, hash)) = place {
                context.out.extra(name, serde_json::json!({"seq": seq, "hash": hash.to_string()}));
            }
        }
        let rest = "remove the cause, then append only the lines after the entry that `last` names";
        let is_part = self.last.is_some();
        committed.map(drop).map_err(|e| if is_part && e.code() == Code::Io { e.hint(rest) } else { e })
    }
}

impl Filter for Recording<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[]
    }

    fn takes_lines(&self) -> bool {
        true
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        self.stage(&body, context)?;
        if !self.dry_run {
            // It succeeds when it is on the ledger.
            context.out.defer_item();
        }
        let staged = self.ledger.as_ref().map_or(0, Ledger::staged);
        if staged >= BATCH || self.sync == Sync::Line { self.commit(context) } else { Ok(()) }
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        self.commit(context)
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        // If the next read will not block, writing can wait for a fuller batch.
        if has_unread_input() {
            return Ok(());
        }
        self.finish(context)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        self.commit(context)?;
        self.ledger.as_mut().map_or(Ok(()), Ledger::sync)
    }
}

/// How many bytes are staged before they are written.
const BATCH: usize = 256 << 10;

/// The members that flags set on every entry. They override those of a record or a row.
#[derive(Clone, Debug, clap::Args)]
struct Members {
    /// The event, one word (default: log, or a record's type)
    #[arg(long, value_name = "E")]
    event: Option<String>,
    /// The agent that the entry is about
    #[arg(long, value_name = "A")]
    agent: Option<String>,
    /// The role, such as user or assistant
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// The turn in the session or run
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

impl Members {
    /// Sets the members that the flags and the shared options give.
    fn apply(&self, entry: Entry, context: &Context) -> Entry {
        let entry = self.event.iter().fold(entry, Entry::event);
        let entry = self.agent.iter().fold(entry, Entry::agent);
        let entry = context.options.session.iter().fold(entry, Entry::session);
        let entry = context.options.run.iter().fold(entry, Entry::run);
        let entry = self.turn.into_iter().fold(entry, Entry::turn);
        self.role.iter().fold(entry, Entry::role)
    }

    /// The entry that an item of a stream becomes.
    fn entry_of(&self, body: &Body<'_>, context: &Context) -> Result<Entry> {
        let mut entry = Entry::new("log");
        match body {
            Body::Text(text) => entry.set_message_bytes(text),
            Body::Row(row) => lift(&mut entry, row.get().as_bytes(), true)?,
            Body::Record(record) if !record.ok => {
                entry = Entry::new("error");
                let error = record.error.map_or("{}", RawValue::get);
                lift(&mut entry, error.as_bytes(), true)?;
            }
            Body::Record(record) => {
                entry = Entry::new(record.kind_name.as_deref().unwrap_or("answer"));
                let stored = record.kind == Some(Kind::Entry);
                lift(&mut entry, record.data.map_or("{}", RawValue::get).as_bytes(), stored)?;
            }
        }
        Ok(self.apply(entry, context))
    }
}

/// Moves the members of an object into an entry. Of a record only `role` and `content` are lifted: its other names mean
/// other things.
fn lift(entry: &mut Entry, object: &[u8], all: bool) -> Result<()> {
    let text = entry.normalized(object)?;
    match inside(&text) {
        Some(members) if all => entry.lift(members),
        Some(members) => entry.lift_named(members, &["role", "content"]),
        None => entry.set_content(text),
    }
    Ok(())
}

/// The entry of this verb in `reference`.
pub(crate) const TEE_DOC: VerbDoc = VerbDoc {
    also: &["summary"],
    examples: &["seq 3 | {} tee copy.jsonl"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["log", "error"],
    ..VerbDoc::new("tee", Class::Append, "passed")
};

/// Pass lines on and append each to a ledger
#[derive(Debug, clap::Args)]
pub(crate) struct TeeArgs {
    #[command(flatten)]
    members: Members,
    /// Pass the lines on and record nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stream: StreamOptions,
    #[command(flatten)]
    ledger: LedgerOperand,
}

pub(crate) fn tee(args: &TeeArgs, context: &mut Context) -> Result<()> {
    let path = ledger::append_path(args.ledger.file.as_deref(), context)?;
    let mut recording = Recording::new(&args.members, path, Sync::Batch, args.dry_run);
    stream::tee(&mut recording, args.dry_run, args.stream, context)
}

/// The ledger is opened with the first line: a dry run makes no file.
impl Recorder for Recording<'_> {
    fn record(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        self.stage(&body, context)
    }

    fn write(&mut self, is_end: bool) -> Result<()> {
        let Some(ledger) = &mut self.ledger else { return Ok(()) };
        ledger.commit()?;
        if is_end { ledger.sync() } else { Ok(()) }
    }
}
