//! The verb that is meant when none is named: a text or a prompt in, a run for each.

use std::path::{Path, PathBuf};

use cp_common::filter::{self, Body, Filter, Source, text_of};
use cp_common::options::StreamOptions;
use cp_common::record::{self, Kind};
use cp_common::wire::{Prompt, ToolSpec};
use cp_common::{Context, Error, Result, clock};

use crate::book::Book;
use crate::catalogue::{Catalogue, Sources};
use crate::conversation::Conversation;
use crate::engine::Engine;
use crate::event::Event;
use crate::journal::{self, Journal};
use crate::model::Choice;
use crate::plan::{self, Limits, ModelCommand, Plan};

/// Where tools come from.
#[derive(clap::Args, Debug)]
pub(crate) struct ToolOptions {
    /// A directory of tools, one tool, or a JSON catalogue; give it once for each
    #[arg(long, value_name = "DIR|FILE")]
    tools: Vec<PathBuf>,
    /// A tool that may be called; give it once for each (default: all)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    allow: Vec<String>,
}

impl ToolOptions {
    /// Where tools come from, with the configured directory where no place is named.
    pub(crate) fn sources(&self, context: &Context) -> Sources {
        let configured = || context.config.text("tools_dir", None).map(PathBuf::from).into_iter().collect();
        let places = if self.tools.is_empty() { configured() } else { self.tools.clone() };
        Sources { places, allow: self.allow.clone() }
    }
}

/// Let a model use tools until it is done
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    tools: ToolOptions,
    /// The program that answers prompts, with its arguments (default: cp-llm)
    #[arg(long, value_name = "COMMAND")]
    llm: Option<String>,
    /// How cp-llm asks the model
    #[arg(long, value_name = "B")]
    backend: Option<String>,
    /// The model
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// What the stub backend plays
    #[arg(long, value_name = "FILE")]
    stub_script: Option<PathBuf>,
    /// Show the words as they come
    #[arg(long)]
    stream: bool,
    /// The system text, or @FILE
    #[arg(short, long, value_name = "TEXT|@FILE")]
    system: Option<String>,
    /// The most turns of the model
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    max_iterations: u64,
    /// Stop when a tool fails
    #[arg(long)]
    fail_on_tool_error: bool,
    #[command(flatten)]
    stream_options: StreamOptions,
    /// What to do; - adds standard input
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    let choice = Choice {
        command: args.llm.clone(),
        backend: args.backend.clone(),
        model: args.model.clone(),
        stub_script: args.stub_script.as_deref().map(absolute).transpose()?,
        stream: args.stream,
    };
    let system = args.system.as_deref().map(system_text).transpose()?;
    let mut runs = Runs { args, choice, system, ready: None };
    filter::run(&mut runs, source, args.stream_options, context)
}

fn absolute(path: &Path) -> Result<String> {
    Ok(std::path::absolute(path)?.display().to_string())
}

fn system_text(given: &str) -> Result<String> {
    let Some(file) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let path = Path::new(file);
    std::fs::read_to_string(path).map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => Error::not_found("no such file").in_file(path),
        _ => Error::io("reading the system text", e).in_file(path),
    })
}

/// Turns each prompt into a run.
struct Runs<'a> {
    args: &'a Args,
    choice: Choice,
    system: Option<String>,
    /// Made when the first prompt is there: an empty input starts nothing.
    ready: Option<Ready>,
}

struct Ready {
    catalogue: Catalogue,
    model: ModelCommand,
}

impl Filter for Runs<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let mut prompt = match body {
            Body::Text(text) => Prompt::of_text(text_of(text)?),
            Body::Record(record) => record.read::<Prompt>()?.checked()?,
            Body::Row(row) => record::read::<Prompt>(row)?.checked()?,
        };
        if let Some(system) = &self.system {
            prompt.system = Some(system.clone());
        }
        context.out.streaming()?;
        let ready = match &mut self.ready {
            Some(ready) => ready,
            none => {
                let catalogue = self.args.tools.sources(context).resolve(context).map_err(Error::fatal)?;
                catalogue.report(context);
                let model = self.choice.command().map_err(Error::fatal)?;
                none.insert(Ready { catalogue, model })
            }
        };
        start(self.args, ready, prompt, context)
    }
}

fn start(args: &Args, ready: &Ready, mut prompt: Prompt, context: &mut Context) -> Result<()> {
    let catalogue = &ready.catalogue;
    prompt.tools = catalogue.tools.iter().map(crate::tool::Tool::spec).collect::<Vec<ToolSpec>>();
    let plan = Plan {
        run: plan::new_id()?,
        started: clock::now(),
        base: context.base()?,
        tools: catalogue.tools.clone(),
        directories: catalogue.directories.clone(),
        model: ready.model.clone(),
        limits: Limits { max_iterations: args.max_iterations },
        fail_on_tool_error: args.fail_on_tool_error,
        prompt,
    };
    let ledger = plan::ledger_of(&plan.run, context);
    let agent = context.agent(plan.prompt.agent.as_deref());
    let mut book = Book::open(&ledger, &plan.run, &agent, plan.prompt.session_id.as_deref())?;
    book.start(&plan)?;
    let journal = Journal::create(&journal::path_of(&ledger), &context.home, &plan)?;
    let names = plan.tools.iter().map(|tool| tool.name.clone()).collect();
    Event::start("run_start", &plan.run, ledger.display().to_string(), names).show(context)?;
    let conversation = Conversation::new(&plan);
    within(&ledger, &plan.run.clone(), context, |context| Engine::new(plan, conversation, journal, book).drive(context))
}

/// Does something with the run's own ledger as the one that every effect goes to.
pub(crate) fn within(
    ledger: &Path,
    run: &str,
    context: &mut Context,
    what: impl FnOnce(&mut Context) -> Result<()>,
) -> Result<()> {
    let outside = (context.options.ledger.replace(ledger.to_owned()), context.options.run.replace(run.to_owned()));
    let outcome = what(context);
    (context.options.ledger, context.options.run) = outside;
    outcome
}
