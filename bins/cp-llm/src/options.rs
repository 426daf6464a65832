//! The options of the command line, and what they make: the asker that works on the prompts.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use cp_common::context::options::StreamOptions;
use cp_common::output::Format;
use cp_common::wire::ToolSpec;
use cp_common::{Code, Context, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::backend::{self, Backend};
use crate::book::Book;
use crate::budget::Budget;
use crate::call::Engine;
use crate::http::client::Waits;
use crate::pace::Pace;
use crate::policy::Policy;
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
    pub stream: bool,
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
    #[arg(long, value_name = "OUT")]
    pub resume: Option<PathBuf>,
    /// How many prompts to ask at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: u16,
    /// Print each message as soon as it is there, and not in the order of the prompts
    #[arg(long)]
    pub unordered: bool,
    /// A name for this request: the same one again is not sent, and gets the first answer
    #[arg(long, value_name = "ID", conflicts_with_all = ["jobs", "resume"])]
    pub request_id: Option<String>,
    /// Print the request instead of sending it
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub stream_options: StreamOptions,
    /// The text to send; - adds standard input
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
}

impl Args {
    /// What works on the prompts.
    pub(crate) fn asker(&self, context: &Context) -> Result<Asker> {
        if self.stream && self.unordered && self.jobs > 1 && context.out.format() != Format::Json {
            return Err(Error::usage(
                "--unordered --stream mixes the words of several answers, which only json keeps apart",
            )
            .hint("leave out --unordered, --stream or --format"));
        }
        let setting = context.config.text("model", None);
        let models: Vec<String> = self.model.iter().filter(|model| !model.is_empty()).cloned().collect();
        let tape = tape(self, context)?;
        let replayed = tape.as_ref().filter(|tape| tape.is_all_there_is());
        let model = models.first().or(setting.as_ref()).map(String::as_str);
        let name = match (backend::name_of(self.backend.as_deref(), model, context), replayed) {
            (Err(_), Some(tape)) if self.backend.is_none() => tape.backend()?,
            (name, _) => name?,
        };
        // Neither a recording nor a look at the request needs a key.
        let needs_key = replayed.is_none() && !self.dry_run;
        let waits = Waits {
            total: seconds("--timeout", self.timeout)?,
            idle: if self.stream { Some(seconds("--idle-timeout", self.idle_timeout)?) } else { None },
        };
        let script = self.stub_script.clone().or_else(|| context.config.text("stub_script", None).map(PathBuf::from));
        let schema = self.schema.as_deref().map(Schema::load).transpose()?;
        let schema_text = schema.as_ref().map(|schema| schema.text.clone());
        let policy = Policy::load(&context.home)?;
        let backend = Backend::of(&name, script.as_deref(), waits, self.jobs.into(), needs_key)?;
        let dials = needs_key && !matches!(backend, Backend::Stub(_));
        let network = dials.then(|| policy.network()).transpose()?;
        let dollars = policy.budget(self.budget_usd, &backend);
        Ok(Asker {
            engine: Engine {
                backend,
                patience: Patience {
                    retries: self.retries,
                    max_wait: seconds("--retry-max-wait", self.retry_max_wait)?,
                },
                prices: Prices::load(&context.home.path("config/prices.toml"))?,
                fail_on: self.fail_on.clone(),
                tape,
                budget: Budget::of(dollars, self.budget_tokens, self.budget_file.as_deref())?,
                pace: Pace::of(self.rpm, self.tpm),
                schema,
                book: Book::of(context, network, policy.logs_content())?,
                policy,
            },
            defaults: Defaults {
                system: self.system.as_deref().map(system_text).transpose()?,
                models,
                fallback: setting,
                tools: self.tools.as_deref().map(tools).transpose()?,
                max_tokens: self.max_tokens,
                temperature: self.temperature,
                schema: schema_text,
                stream: self.stream,
            },
            done: self.resume.as_deref().map(Done::read).transpose()?,
            asked: AtomicU64::new(0),
        })
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
