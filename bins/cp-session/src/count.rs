//! `cp-session count`: how many turns there are.

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Reply;
use cp_common::{Context, Result};
use serde::Serialize;

use crate::operand::SessionOperand;
use crate::transcript;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "count",
    class: Class::Query,
    output: "session_counted",
    examples: &["S=$(cp-session start --format text); cp-session count \"$S\""],
    ..VerbDoc::EMPTY
};

/// Count the turns
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    session: SessionOperand,
}

/// How long a conversation is.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Counted {
    /// The session.
    session_id: String,
    /// How many turns it has: a question and its answer are two.
    count: u64,
}

impl Reply for Counted {
    fn text(&self) -> String {
        self.count.to_string()
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let session = args.session.find(context)?;
    let counted = Counted { count: transcript::count(&session.file())?, session_id: session.id };
    context.out.answer(&counted)
}
