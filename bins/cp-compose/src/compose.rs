//! `cp-compose`: assembles a prompt. This is the default verb.

use std::path::{Path, PathBuf};

use cp_common::context::given::{self, text_of};
use cp_common::context::options::{StreamOptions, TextOrFile};
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::{self, Kind};
use cp_common::wire::{Content, Prompt};
use cp_common::{Context, Error, Result};
use cp_table::{TableOptions, Template};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::account::{Account, Explained};
use crate::assembly::{Assembly, Identity, Past};
use crate::history::fit;
use crate::sources;

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    also: &["explained", "summary"],
    examples: &[
        "cp-compose -s 'be brief' -- hello",
        "echo hello | cp-compose --agent default",
        "printf 'city\\nOslo\\n' | cp-compose --csv 'Where is {{city}}?'",
    ],
    input: &[Input::Text, Input::Records, Input::Rows],
    ..VerbDoc::new("", Class::Query, "prompt")
};

/// Assemble a prompt
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    identity: Identity,
    #[command(flatten)]
    past: Past,
    /// Leave out the oldest rounds until the prompt is about this many tokens
    #[arg(long, value_name = "N", help_heading = "Session")]
    fit_tokens: Option<usize>,
    /// A file to send as context (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Context")]
    context: Vec<PathBuf>,
    /// A text, image or PDF to attach, - for standard input (repeatable)
    #[arg(long, value_name = "FILE", help_heading = "Context")]
    attach: Vec<PathBuf>,
    /// Recall memories of this kind that relate to the text
    #[arg(long, value_name = "KIND", help_heading = "Context")]
    memory: Option<String>,
    /// A template that produces the text
    #[arg(long, value_name = "FILE", help_heading = "Context")]
    template: Option<PathBuf>,
    /// Print the source, size and hash of every part instead of the prompt
    #[arg(long, help_heading = "Output")]
    explain: bool,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    stream: StreamOptions,
    /// The text for the model, or a template for each row of a table; - adds standard input
    text: Vec<String>,
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = source(args)?;
    let template = match &args.template {
        Some(file) => Some(Template::new(sources::given(file)?, Some(file.clone()))?),
        None => args.table.template(args.text.first())?,
    };
    let mut assembly = Assembly::new(&args.identity, &args.past, context)?;
    assembly.add_context(&args.context)?;
    assembly.attach(&args.attach)?;
    assembly.check_variables(template.as_ref())?;
    let is_own_text = matches!(source, Source::Argument(_));
    args.table.open()?;
    let mut composer = Composer { args, assembly, template, is_own_text };
    filter::run(&mut composer, source, args.table.stream(args.stream), context)
}

/// Selects the source of the text. Variables and a template need no other text.
fn source(args: &Args) -> Result<Source> {
    let source = args.table.source(&args.text)?;
    if !args.identity.var.is_empty() && args.template.is_none() && args.identity.prompt.is_none() {
        return Err(
            Error::usage("--var needs a template or a governed prompt").hint("add --template FILE or --prompt PRM-ID")
        );
    }
    if args.table.format().is_some() && args.template.is_some() && !args.text.is_empty() {
        return Err(Error::usage("--template and a text are two templates for the table").hint("leave one out"));
    }
    let reads_rows = args.table.stream(args.stream).kind().is_some();
    let whole = args.template.is_some() && !args.identity.var.is_empty() && !reads_rows;
    let source = if whole && source == Source::Input { Source::Argument(String::new()) } else { source };
    let system = args.identity.system.iter().filter_map(TextOrFile::file);
    let files = [&args.context, &args.attach].into_iter().flatten().chain(&args.template);
    let named = files.map(PathBuf::as_path).chain(system).map(Path::as_os_str);
    given::check_input(named, !matches!(source, Source::Argument(_)))?;
    Ok(source)
}

struct Composer<'a> {
    args: &'a Args,
    assembly: Assembly,
    template: Option<Template>,
    /// True if the text is on the command line, and so was written by the caller.
    is_own_text: bool,
}

#[derive(Deserialize)]
struct Message {
    content: Content,
    #[serde(default)]
    row: Option<Box<RawValue>>,
}

impl Composer<'_> {
    /// The prompt for a text.
    fn prompt_of(&mut self, text: &str, account: &mut Account, context: &Context) -> Result<Prompt> {
        let memory = match &self.args.memory {
            Some(kind) => self.assembly.recall(kind, text, account, context)?,
            None => String::new(),
        };
        let template = self.args.template.as_ref().map(|file| file.display().to_string());
        account.part("user", template, text.as_bytes(), 0);
        Ok(self.assembly.prompt_of(text, &memory))
    }

    fn prompt(&mut self, body: &Body<'_>, account: &mut Account, context: &Context) -> Result<Prompt> {
        match body {
            Body::Text(bytes) => {
                let text = text_of(bytes)?;
                let Some(template) = &self.template else {
                    let empty = || Err(Error::validation("the text is empty").hint("add a text"));
                    return if text.trim().is_empty() { empty() } else { self.prompt_of(text, account, context) };
                };
                let given = Some(text).filter(|text| !text.is_empty());
                let filled = template.render(&self.assembly.variables, None, given)?;
                let names = template.names();
                let unused = given.filter(|_| !names.contains("text"));
                if unused.is_some() && !names.is_empty() {
                    let file = self.args.template.as_deref().unwrap_or(Path::new("-")).display();
                    let error = Error::usage(format!("{file}: the template does not use the text"));
                    return Err(error.hint("add {{ text }} to the template").fatal());
                }
                // What a template without variables says comes first.
                let text = unused.map_or(filled.clone(), |text| format!("{}\n\n{text}", filled.trim_end()));
                self.prompt_of(&text, account, context)
            }
            Body::Row(row) => {
                if self.args.table.format().is_some() {
                    cp_table::check(row)?;
                }
                let missing =
                    || Error::usage("a row needs a template").hint("name one with --template, or as the text");
                let template = self.template.as_ref().ok_or_else(|| missing().fatal())?;
                let text = template.render(&self.assembly.variables, Some(row), None);
                let prompt = text.and_then(|text| self.prompt_of(&text, account, context));
                Ok(Prompt { row: Some((*row).to_owned()), ..prompt.map_err(|error| error.with_row(Some(row)))? })
            }
            Body::Record(record) if record.kind == Some(Kind::Prompt) => {
                Err(Error::validation("a prompt is not extended").hint("give all its parts to one cp-compose"))
            }
            Body::Record(record) => {
                let data = record.data.ok_or_else(|| Error::validation("the record has no `data`"))?;
                let message: Message = record::read(data)?;
                let mut text = message.content.text();
                if let Some(template) = &self.template {
                    text = template.render(&self.assembly.variables, message.row.as_deref(), Some(&text))?;
                }
                Ok(Prompt { row: message.row, ..self.prompt_of(&text, account, context)? })
            }
        }
    }
}

impl Filter for Composer<'_> {
    fn accepts(&self) -> &'static [Kind] {
        // A prompt is refused, because the next program would send one that is passed on.
        &[Kind::Message, Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let mut account = self.assembly.account.clone();
        let mut prompt = self.prompt(&body, &mut account, context)?;
        if let Some(limit) = self.args.fit_tokens {
            fit(&mut prompt, limit, &mut account)?;
        }
        if prompt.history > 0 {
            let turns = cp_common::wire::raw(&prompt.messages[..prompt.history].to_vec())?;
            account.part("history", prompt.session_id.clone(), turns.get().as_bytes(), 0);
        }
        if self.args.explain {
            return context.out.record(Kind::Item, &Explained::of(&prompt, account));
        }
        if !self.is_own_text || self.assembly.holds_untrusted() || self.args.memory.is_some() {
            prompt.untrusted.push("/messages".to_owned());
        }
        if prompt.row.is_some() {
            prompt.untrusted.push("/row".to_owned());
        }
        prompt.report = account.report()?;
        context.out.record(Kind::Prompt, &prompt)
    }
}
