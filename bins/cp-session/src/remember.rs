//! `cp-session remember`: keep a text beyond its session.

use cp_common::context::options::{AppendOptions, InputKind, StreamOptions};
use cp_common::program::{Class, Input, VerbDoc, idempotency};
use cp_common::stream::filter::{self, Body, Filter, Source, text_of};
use cp_common::wire::record::Kind;
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result};
use cp_ledger::{Entry, Ledger, Sync};
use cp_redact::Redactor;
use serde::{Deserialize, Serialize};

use crate::memory;
use crate::operand;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "remember",
    class: Class::Append,
    output: "session_remembered",
    examples: &["cp-session remember --kind note -- 'the build takes four minutes'"],
    input: &[Input::Text],
    events: &["memory"],
    ..VerbDoc::EMPTY
};

/// Keep a text beyond its session
#[derive(clap::Args)]
pub(crate) struct Args {
    /// What it is about: a lower-case name, such as note
    #[arg(long, value_name = "KIND")]
    kind: String,
    #[command(flatten)]
    append: AppendOptions,
    /// What to keep; - adds standard input
    text: Vec<String>,
}

/// Something that was remembered.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Remembered {
    /// What it is about.
    kind: String,
    /// The session it came from.
    session_id: Option<String>,
    /// How many secrets were taken out.
    #[serde(default)]
    redactions: u32,
    /// Where it is recorded; a dry run records nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
}

impl Reply for Remembered {
    fn text(&self) -> String {
        match &self.receipt {
            Some(receipt) => format!("{} {}", receipt.seq, receipt.hash),
            None => format!("would remember it as {}", self.kind),
        }
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    memory::file_of(&args.kind, context)?;
    let source = Source::from_operands(&args.text)?;
    let input = if source == Source::Input { Some(InputKind::Text) } else { None };
    let options = StreamOptions { input, continue_on_error: true, ..StreamOptions::default() };
    filter::run(&mut Remember { args }, source, options, context)
}

struct Remember<'a> {
    args: &'a Args,
}

impl Filter for Remember<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Item]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let Body::Text(bytes) = body else { return Err(Error::validation("only text can be remembered")) };
        let text = text_of(bytes)?;
        if text.trim().is_empty() {
            return Err(Error::validation("the text is empty").hint("give some text"));
        }
        let kind = &self.args.kind;
        let session = context.session().map(|_| operand::find(None, context)).transpose()?.map(|session| session.id);
        let (_, redactions) = Redactor::from_environment().redact_text(text);
        let remembered = |receipt| Remembered { kind: kind.clone(), session_id: session.clone(), redactions, receipt };
        let asked = ("remember", kind, text, session.clone());
        idempotency::answer(
            &self.args.append,
            &asked,
            context,
            || Ok(remembered(None)),
            |context| {
                let mut entry = Entry::new("memory").message(text).with("kind", kind);
                if let Some(session) = &session {
                    entry = entry.session(session);
                }
                let file = memory::file_of(kind, context)?;
                Ok(remembered(Some(Ledger::open(&file, Sync::Line)?.append(entry)?)))
            },
        )
    }
}
