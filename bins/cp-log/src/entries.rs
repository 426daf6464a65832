//! What items of a stream become on a ledger: an entry each, with the members that flags set.

use cp_common::stream::filter::Body;
use cp_common::wire::record::Kind;
use cp_common::{Context, Error, Result, json};
use cp_ledger::format::Entry;
use cp_ledger::format::line::inside;
use serde_json::value::RawValue;

/// How many bytes are staged before they are written.
pub(crate) const BATCH: usize = 256 << 10;

/// The members that flags set on every entry. They override those of a record or a row.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Members {
    /// What happened, one word (default: log, or a record's type)
    #[arg(long, value_name = "E")]
    pub(crate) event: Option<String>,
    /// The agent it is about
    #[arg(long, value_name = "A")]
    pub(crate) agent: Option<String>,
    /// The role, such as user or assistant
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
    /// Its turn in the session or run
    #[arg(long, value_name = "N")]
    turn: Option<u64>,
}

impl Members {
    /// Sets the members that the flags and the shared options give.
    pub(crate) fn apply(&self, mut entry: Entry, context: &Context) -> Entry {
        if let Some(event) = &self.event {
            entry = entry.event(event);
        }
        if let Some(agent) = &self.agent {
            entry = entry.agent(agent);
        }
        if let Some(session) = &context.options.session {
            entry = entry.session(session);
        }
        if let Some(run) = &context.options.run {
            entry = entry.run(run);
        }
        if let Some(turn) = self.turn {
            entry = entry.turn(turn);
        }
        match &self.role {
            Some(role) => entry.role(role),
            None => entry,
        }
    }

    /// The entry that an item of a stream becomes.
    pub(crate) fn entry_of(&self, body: &Body<'_>, context: &Context) -> Result<Entry> {
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

/// Moves the members of an object into an entry. Of a record only `role` and `content` are lifted: its other names mean other things.
fn lift(entry: &mut Entry, object: &[u8], all: bool) -> Result<()> {
    let mut text = Vec::with_capacity(object.len());
    let normal = json::normalize(object, &mut text)
        .map_err(|fault| Error::validation(format!("not valid JSON: {fault}")).with("offset", fault.offset))?;
    entry.count_replaced(normal.replaced);
    match inside(&text) {
        Some(members) if all => entry.lift(members),
        Some(members) => entry.lift_named(members, &["role", "content"]),
        None => entry.set_content(text),
    }
    Ok(())
}
