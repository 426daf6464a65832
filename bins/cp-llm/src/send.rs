//! Texts and prompts in, messages out: the verb that is meant when none is named.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cp_common::filter::{self, Body, Filter, Source};
use cp_common::options::StreamOptions;
use cp_common::output::{Format, Reply};
use cp_common::record::Kind;
use cp_common::wire::{Delta, ToolSpec};
use cp_common::{Code, Context, Error, Result, signals};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::ahead::{Ahead, Answered};
use crate::backend::{self, Backend};
use crate::book::Book;
use crate::budget::Budget;
use crate::call::{Engine, Listener, Work};
use crate::http::client::Waits;
use crate::pace::Pace;
use crate::prices::Prices;
use crate::resume::Done;
use crate::retry::Patience;
use crate::schema::Schema;
use crate::tape::{Tape, Use};
use crate::work::{Asker, Defaults};

/// Send each prompt to a model and print its message
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Args {
    /// The system text, or @FILE
    #[arg(short, long, value_name = "TEXT|@FILE")]
    system: Option<String>,
    /// The model; more of them, separated by commas, are fallen back to in order
    #[arg(short, long, value_name = "MODEL,…", value_delimiter = ',')]
    model: Vec<String>,
    /// Who answers: anthropic, openai, openai-responses, gemini, llm, stub, or the path of an executable
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Print the words as they come
    #[arg(long)]
    stream: bool,
    /// The most tokens to answer with
    #[arg(long, value_name = "N")]
    max_tokens: Option<u64>,
    /// How freely to choose words
    #[arg(long, value_name = "T")]
    temperature: Option<f64>,
    /// The longest time for one try, in seconds
    #[arg(long, value_name = "S", default_value_t = 600.0)]
    timeout: f64,
    /// The longest silence of a server that streams, in seconds
    #[arg(long, value_name = "S", default_value_t = 120.0)]
    idle_timeout: f64,
    /// How often to try again what may succeed later
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    /// The longest wait before a try, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0)]
    retry_max_wait: f64,
    /// Stop reasons that are failures, such as `max_tokens,refusal`
    #[arg(long, value_name = "REASON,…", value_delimiter = ',')]
    fail_on: Vec<String>,
    /// The tools that the model may call: a JSON list of name, description and `input_schema`
    #[arg(long, value_name = "FILE")]
    tools: Option<PathBuf>,
    /// What the stub plays, one JSON object a line
    #[arg(long, value_name = "FILE")]
    stub_script: Option<PathBuf>,
    /// The JSON Schema that the answer must fit: it is parsed into `parsed`
    #[arg(long, value_name = "FILE", conflicts_with = "stream")]
    schema: Option<PathBuf>,
    /// Add each answer to a recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "cache"])]
    record: Option<PathBuf>,
    /// Answer from a recording and ask nobody
    #[arg(long, value_name = "FILE", conflicts_with = "cache")]
    replay: Option<PathBuf>,
    /// Answer from what was asked before, and keep what was not
    #[arg(long)]
    cache: bool,
    /// The most dollars to spend
    #[arg(long, value_name = "X")]
    budget_usd: Option<f64>,
    /// The most tokens to spend
    #[arg(long, value_name = "N")]
    budget_tokens: Option<u64>,
    /// The sums of a budget that processes share
    #[arg(long, value_name = "FILE")]
    budget_file: Option<PathBuf>,
    /// The most requests in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rpm: Option<u32>,
    /// The most tokens in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    tpm: Option<u32>,
    /// The output of an earlier run: what it has is not asked again
    #[arg(long, value_name = "OUT", conflicts_with = "stream")]
    resume: Option<PathBuf>,
    /// How many prompts to ask at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    #[arg(conflicts_with = "stream")]
    jobs: u16,
    /// Print each message as soon as it is there, and not in the order of the prompts
    #[arg(long)]
    unordered: bool,
    /// Print the request instead of sending it
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    stream_options: StreamOptions,
    /// The text to send; - adds standard input
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    let mut send = Send::new(args, context)?;
    let reads_ahead = args.jobs > 1 || args.resume.is_some();
    if reads_ahead && source == Source::Input && !args.dry_run {
        send.ahead = Ahead::start(&send.asker, args.jobs.into(), args.unordered, args.stream_options.kind())?;
    }
    let outcome = filter::run(&mut send, source, args.stream_options, context);
    let settled = send.asker.engine.budget.as_ref().map_or(Ok(()), Budget::settle);
    outcome.and(settled)
}

/// What a dry run prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DryRun {
    /// Who would be asked.
    backend: String,
    /// Where the request would go; absent for a backend without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The headers, the key left out.
    headers: Map<String, Value>,
    /// The body, byte for byte.
    request: Box<RawValue>,
}

impl Reply for DryRun {
    fn text(&self) -> String {
        self.request.get().to_owned()
    }
}

struct Send {
    asker: Arc<Asker>,
    ahead: Option<Ahead>,
    dry_run: bool,
    /// How many items an earlier run had done.
    resumed: u64,
}

impl Send {
    fn new(args: &Args, context: &Context) -> Result<Self> {
        let setting = context.config.text("model", None);
        let models: Vec<String> = args.model.iter().filter(|model| !model.is_empty()).cloned().collect();
        let tape = tape(args, context)?;
        let replayed = tape.as_ref().filter(|tape| tape.is_all_there_is());
        let model = models.first().or(setting.as_ref()).map(String::as_str);
        let name = match (backend::name_of(args.backend.as_deref(), model, context), replayed) {
            (Err(_), Some(tape)) if args.backend.is_none() => tape.backend()?,
            (name, _) => name?,
        };
        // Neither a recording nor a look at the request needs a key.
        let needs_key = replayed.is_none() && !args.dry_run;
        let waits = Waits {
            total: seconds("--timeout", args.timeout)?,
            idle: if args.stream { Some(seconds("--idle-timeout", args.idle_timeout)?) } else { None },
        };
        let script = args.stub_script.clone().or_else(|| context.config.text("stub_script", None).map(PathBuf::from));
        let schema = args.schema.as_deref().map(Schema::load).transpose()?;
        let schema_text = schema.as_ref().map(|schema| schema.text.clone());
        let asker = Asker {
            engine: Engine {
                backend: Backend::of(&name, script.as_deref(), waits, args.jobs.into(), needs_key)?,
                patience: Patience {
                    retries: args.retries,
                    max_wait: seconds("--retry-max-wait", args.retry_max_wait)?,
                },
                prices: Prices::load(&context.home.path("config/prices.toml"))?,
                fail_on: args.fail_on.clone(),
                tape,
                budget: Budget::of(args.budget_usd, args.budget_tokens, args.budget_file.as_deref())?,
                pace: Pace::of(args.rpm, args.tpm),
                schema,
                book: Book::of(context)?,
            },
            defaults: Defaults {
                system: args.system.as_deref().map(system_text).transpose()?,
                models,
                fallback: setting,
                tools: args.tools.as_deref().map(tools).transpose()?,
                max_tokens: args.max_tokens,
                temperature: args.temperature,
                schema: schema_text,
                stream: args.stream,
            },
            done: args.resume.as_deref().map(Done::read).transpose()?,
            asked: AtomicU64::new(0),
        };
        Ok(Self { asker: Arc::new(asker), ahead: None, dry_run: args.dry_run, resumed: 0 })
    }

    /// Prints the messages that came before their turn, when their turn will not come.
    fn rescue(&self, context: &mut Context) -> Result<()> {
        for answered in self.ahead.iter().flat_map(Ahead::close) {
            if let Ok(Some(message)) = &answered.outcome {
                context.out.set_index(Some(answered.index));
                context.out.record(Kind::Message, message)?;
                context.out.item_succeeded();
            }
        }
        Ok(())
    }

    /// Whether answers cost nothing.
    fn is_free(&self) -> bool {
        matches!(self.asker.engine.backend, Backend::Stub(_))
    }

    /// The answer that was asked for ahead.
    fn answered_ahead(&self, body: &Body<'_>, context: &mut Context) -> Result<Option<Answered>> {
        let data = match body {
            Body::Text(_) => None,
            Body::Row(data) => Some(*data),
            Body::Record(record) => record.data,
        };
        let (Some(ahead), Some(data)) = (&self.ahead, data) else { return Ok(None) };
        ahead.take(data.get(), || context.out.flush())
    }

    fn request(&self, work: &mut Work) -> Result<DryRun> {
        work.ask.model.clone_from(&work.models[0]);
        let body = self.asker.engine.body(&work.ask)?;
        let text = String::from_utf8(body).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let request = RawValue::from_string(text).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let (mut url, mut headers) = (None, Map::new());
        if let Backend::Server(server) = &self.asker.engine.backend {
            let (address, all) = server.address(&work.ask);
            let secret = ["x-api-key", "authorization", "x-goog-api-key"];
            headers.extend(
                all.into_iter()
                    .filter(|(name, _)| !secret.contains(&name.as_str()))
                    .map(|(name, value)| (name, value.into())),
            );
            url = Some(address);
        }
        Ok(DryRun { backend: self.asker.engine.backend.name().to_owned(), url, headers, request })
    }
}

impl Filter for Send {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        if let Some(answered) = self.answered_ahead(&body, context)? {
            answered.warnings.iter().for_each(|warning| context.warn(warning));
            context.out.set_index(Some(answered.index));
            match answered.outcome {
                Ok(Some(message)) => {
                    context.out.record(Kind::Message, &message)?;
                    if !self.is_free() {
                        // What was paid for is in the reader's hands before the next failure can take it.
                        context.out.flush()?;
                    }
                }
                Ok(None) => self.resumed += 1,
                Err(error) => {
                    if error.is_fatal() {
                        self.rescue(context)?;
                    }
                    return Err(error);
                }
            }
            return Ok(());
        }
        let mut work = self.asker.work(&body)?;
        if self.dry_run {
            let request = self.request(&mut work)?;
            return context.out.record(Kind::Item, &request);
        }
        let mut listener = Screen { context, spoke: false };
        let outcome = self.asker.engine.message(&mut work, &mut listener);
        let spoke = listener.spoke;
        let as_words = context.out.format() != Format::Json;
        if spoke && as_words {
            context.out.raw(b"\n")?;
        }
        let message = outcome?;
        if spoke && as_words { Ok(()) } else { context.out.record(Kind::Message, &message) }
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        if signals::interrupted() {
            self.rescue(context)?;
        }
        if self.asker.done.is_some() {
            context.out.extra("resumed", self.resumed);
        }
        Ok(())
    }
}

/// Shows what happens while an answer is made.
struct Screen<'a> {
    context: &'a mut Context,
    spoke: bool,
}

impl Listener for Screen<'_> {
    fn words(&mut self, text: &str) -> Result<()> {
        self.spoke = true;
        if self.context.out.format() == Format::Json {
            self.context.out.streaming()?;
            self.context.out.record(Kind::Delta, &Delta::new(text))?;
        } else {
            self.context.out.raw(text.as_bytes())?;
        }
        self.context.out.flush()
    }

    fn warn(&mut self, message: &str) {
        self.context.warn(message);
    }
}

fn system_text(given: &str) -> Result<String> {
    let Some(file) = given.strip_prefix('@') else { return Ok(given.to_owned()) };
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(e, Path::new(file)))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The recording that is used, if one is.
fn tape(args: &Args, context: &Context) -> Result<Option<Tape>> {
    if args.dry_run {
        return Ok(None);
    }
    let cache = args.cache.then(|| context.home.state("llm-cache.jsonl"));
    let named = [(&args.record, Use::Record), (&args.replay, Use::Replay), (&cache, Use::Cache)];
    named.into_iter().find_map(|(file, mode)| file.as_deref().map(|file| Tape::open(file, mode))).transpose()
}

/// The failure to read a file that an option names.
pub(crate) fn unreadable(e: std::io::Error, file: &Path) -> Error {
    let code = if e.kind() == std::io::ErrorKind::NotFound { Code::NotFound } else { Code::Io };
    Error::new(code, Error::from(e).message()).in_file(file).fatal()
}

/// A tool as the catalogues of different programs spell it.
#[derive(Deserialize)]
struct CatalogueTool {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(alias = "parameters", alias = "inputSchema")]
    input_schema: Box<RawValue>,
}

fn tools(file: &Path) -> Result<Vec<ToolSpec>> {
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(e, file))?;
    let tools: Vec<CatalogueTool> = serde_json::from_str(&text)
        .map_err(|e| Error::validation(format!("not a list of tools: {e}")).in_file(file).fatal())?;
    let specs = tools.into_iter().map(|tool| ToolSpec {
        name: tool.name,
        description: tool.description,
        input_schema: tool.input_schema,
    });
    Ok(specs.collect())
}

fn seconds(option: &str, given: f64) -> Result<Duration> {
    Duration::try_from_secs_f64(given)
        .ok()
        .filter(|d| !d.is_zero() || option == "--retry-max-wait")
        .ok_or_else(|| Error::usage(format!("{option} must be a number of seconds above 0, not {given}")))
}
