//! What is meant when no verb is named: assemble a prompt.

use std::path::PathBuf;

use cp_common::filter::{self, Body, Filter, Source, text_of};
use cp_common::options::StreamOptions;
use cp_common::record::{self, Kind};
use cp_common::wire::{Content, Prompt};
use cp_common::{Context, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::assembly::{Assembly, Identity, Past};

/// Assemble a prompt
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    past: Past,
    /// A file to know; give it once for each
    #[arg(long, value_name = "FILE")]
    context: Vec<PathBuf>,
    #[command(flatten)]
    stream: StreamOptions,
    /// What to say to the model; - adds standard input
    text: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    context.out.filtering();
    let source = Source::from_operands(&args.text)?;
    let mut assembly = Assembly::new(&args.identity, Some(&args.past), context)?;
    assembly.add_context(&args.context)?;
    let ours = matches!(source, Source::Argument(_));
    filter::run(&mut Composer { assembly, ours }, source, args.stream, context)
}

struct Composer {
    assembly: Assembly,
    /// Whether the text is on the command line, and so the caller's own.
    ours: bool,
}

#[derive(Deserialize)]
struct Said {
    content: Content,
    #[serde(default)]
    row: Option<Box<RawValue>>,
}

impl Composer {
    /// The prompt that came, with everything around it that this command line says.
    fn around(&self, data: &RawValue) -> Result<Prompt> {
        let given = record::read::<Prompt>(data)?.checked()?;
        let new = given.messages.get(given.history..).unwrap_or_default().to_vec();
        let ours = self.assembly.prompt_with(new);
        // Its own history stays where this command line names no session.
        let (messages, history) = match ours.session_id {
            Some(_) => (ours.messages, ours.history),
            None => (given.messages, given.history),
        };
        Ok(Prompt {
            agent: ours.agent.filter(|agent| agent != "default").or(given.agent),
            session_id: ours.session_id.or(given.session_id),
            system: ours.system.or(given.system),
            model: ours.model.or(given.model),
            messages,
            history,
            ..given
        })
    }

    fn prompt(&self, body: &Body<'_>) -> Result<Prompt> {
        match body {
            Body::Text(bytes) => {
                let text = text_of(bytes)?;
                if text.trim().is_empty() {
                    return Err(Error::validation("the text is empty").hint("say something"));
                }
                Ok(self.assembly.prompt_of(text))
            }
            Body::Row(row) => self.around(row),
            Body::Record(record) => {
                let data = record.data.ok_or_else(|| Error::validation("the record has no `data`"))?;
                if record.kind == Some(Kind::Prompt) {
                    return self.around(data);
                }
                let said: Said = record::read(data)?;
                Ok(Prompt { row: said.row, ..self.assembly.prompt_of(&said.content.text()) })
            }
        }
    }
}

impl Filter for Composer {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt, Kind::Message]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let mut prompt = self.prompt(&body)?;
        if !self.ours || self.assembly.holds_foreign_words() {
            prompt.untrusted.push("/messages".to_owned());
        }
        if prompt.row.is_some() {
            prompt.untrusted.push("/row".to_owned());
        }
        let mut account = self.assembly.account.clone();
        let turns = cp_common::wire::raw(&prompt.input())?;
        account.part("user", None, turns.get().as_bytes(), 0);
        prompt.report = account.report()?;
        context.out.record(Kind::Prompt, &prompt)
    }
}
