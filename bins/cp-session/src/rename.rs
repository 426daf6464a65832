//! `cp-session rename`: give a session a name that people remember.

use cp_common::context::options::AppendOptions;
use cp_common::home::Session;
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Result};
use cp_ledger::{Entry, Ledger, Sync};
use serde::{Deserialize, Serialize};

use crate::operand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "rename",
    class: Class::Append,
    output: "session_renamed",
    examples: &["S=$(cp-session start --format text); cp-session rename \"$S\" talk"],
    events: &["session_name"],
    ..VerbDoc::EMPTY
};

/// Name a session: the name stands for its id everywhere
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The session; a single operand is the name, of the session that --session means
    #[arg(value_name = "S")]
    operand: String,
    /// Its name: letters, digits, - and _
    #[arg(value_name = "NAME")]
    name: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// A session with its name.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Renamed {
    /// The session.
    session_id: String,
    /// Its name.
    name: String,
    /// Where that is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Renamed {
    fn text(&self) -> String {
        format!("{} is {}", self.session_id, self.name)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let (session, name) = match &args.name {
        Some(name) => (Some(args.operand.as_str()), name),
        None => (None, &args.operand),
    };
    let session = operand::find(session, context)?;
    let renamed = |receipt| Renamed { session_id: session.id.clone(), name: name.clone(), receipt };
    let asked = ("rename", operand::place(&session), name);
    let free = context.home.check_session_name(name, Some(&session));
    let preview = || free.map(|()| renamed(None));
    idempotency::answer(&args.append, &asked, context, preview, |context| {
        named(&session, name, context).map(|receipt| renamed(Some(receipt)))
    })
}

/// Gives a session a name that no other has.
pub(crate) fn named(session: &Session, name: &str, context: &Context) -> Result<Receipt> {
    context.home.name_session(name, session)?;
    let entry = Entry::new("session_name").session(&session.id).with("name", &name);
    Ledger::open_existing(&session.file(), Sync::Line)?.append(entry)
}
