//! The options of the command line. They configure the engine and the builder of its requests.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use cp_common::context::given::{self, text_of};
use cp_common::context::options::{StreamOptions, TextOrFile, positive_seconds, seconds};
use cp_common::output::Format;
use cp_common::stream::filter::Source;
use cp_common::wire::ToolSpec;
use cp_common::{Context, Error, Result};
use cp_http::client::Timeouts;
use cp_table::{TableOptions, Writer};
use serde_json::Value;

use super::request::{RequestBuilder, parameters};
use crate::backend::Backends;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::BackendOptions;
use crate::engine::Engine;
use crate::engine::budget::{Budget, Limit};
use crate::engine::gate::Gate;
use crate::engine::recordings::{Recordings, Use};
use crate::engine::retry::RetryPolicy;
use crate::engine::schema::AnswerSchema;
use crate::policy::Policy;
use crate::wire_api::Request;
use crate::wire_api::ends::SUCCESSES;

/// Send each prompt to a model and print its message
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub request: RequestArgs,
    #[command(flatten)]
    pub direct: Direct,
}

/// The options of requests, whether they are answered now or in a batch.
#[derive(clap::Args)]
pub(crate) struct RequestArgs {
    /// The system text, or @FILE with the text of a file; @@ stands for an @
    #[arg(short, long, value_name = "TEXT|@FILE", allow_hyphen_values = true, help_heading = "Request")]
    system: Option<TextOrFile>,
    /// MODEL, ENDPOINT/MODEL or an alias
    #[arg(short, long, value_name = "MODEL", help_heading = "Model and backend")]
    model: Option<String>,
    /// A provider, an endpoint, stub, or the path of an executable
    #[arg(long, value_name = "NAME", help_heading = "Model and backend")]
    backend: Option<String>,
    /// Show the model's reasoning: on standard error, or with json as the member `thinking` of deltas
    #[arg(long, help_heading = "Output", hide_short_help = true)]
    pub reasoning: bool,
    /// A parameter of the request: JSON if it parses as JSON, else text
    #[arg(short, long, value_name = "KEY=VALUE", help_heading = "Request")]
    option: Vec<String>,
    /// The most tokens of an answer
    #[arg(long, value_name = "N", help_heading = "Request", hide_short_help = true)]
    max_tokens: Option<u64>,
    /// The sampling temperature
    #[arg(long, value_name = "T", help_heading = "Request", hide_short_help = true)]
    temperature: Option<f64>,
    /// The time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = positive_seconds, default_value = "600s", help_heading = "Limits")]
    timeout: f64,
    /// Ends that are failures although the answer is whole, or was cut at --max-tokens
    #[arg(long, value_name = "REASON,…", value_delimiter = ',', value_parser = SUCCESSES, help_heading = "Output", hide_short_help = true)]
    fail_on: Vec<String>,
    /// The tools that the model may call, as a JSON list
    #[arg(long = "tool-schemas", value_name = "FILE", help_heading = "Request")]
    tools: Option<PathBuf>,
    /// The answers of the stub, one JSON object per line
    #[arg(long, value_name = "FILE", help_heading = "Model and backend", hide_short_help = true)]
    pub stub_script: Option<PathBuf>,
    /// The schema of the answer: a file, JSON, or fields as "name, age int"
    #[arg(long, value_name = "FILE|SCHEMA", help_heading = "Request")]
    schema: Option<PathBuf>,
    /// The most dollars to spend
    #[arg(long, value_name = "X", overrides_with = "budget_usd", help_heading = "Limits")]
    budget_usd: Option<f64>,
    /// The most tokens to spend
    #[arg(long, value_name = "N", overrides_with = "budget_tokens", help_heading = "Limits", hide_short_help = true)]
    budget_tokens: Option<u64>,
    /// Idempotency key: a repeated request returns the first answer
    #[arg(long, value_name = "ID", value_parser = NonEmptyStringValueParser::new())]
    #[arg(help_heading = STORE, hide_short_help = true)]
    pub request_id: Option<String>,
    #[command(flatten)]
    table: TableOptions,
    #[command(flatten)]
    stream_options: StreamOptions,
    /// The text to send, or a template for each row of a table; - adds standard input
    #[arg(value_name = "TEXT")]
    text: Vec<String>,
}

/// The heading of options for streams.
const MANY: &str = "Many prompts";
/// The heading of options for recordings.
const STORE: &str = "Recordings and cache";

/// The options of requests that are answered now. The requests of a batch have none of them.
#[derive(clap::Args, Default)]
#[command(next_help_heading = "Limits")]
pub(crate) struct Direct {
    /// Print the text as it comes, unless --jobs is above 1
    #[arg(long, conflicts_with = "schema", help_heading = "Output")]
    stream: bool,
    /// Print the first fenced code block of the answer, not the text around it
    #[arg(short = 'x', long, help_heading = "Output")]
    pub extract: bool,
    /// The longest pause in a stream
    #[arg(long, value_name = "DURATION", value_parser = positive_seconds, default_value = "120s", hide_short_help = true)]
    idle_timeout: f64,
    /// The number of retries of transient failures
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    /// The longest wait before a retry
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "60s", hide_short_help = true)]
    retry_max_wait: f64,
    /// Add each answer to a recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "cache"], help_heading = STORE, hide_short_help = true)]
    record: Option<PathBuf>,
    /// Answer from a recording, and send nothing
    #[arg(long, value_name = "FILE", conflicts_with = "cache", help_heading = STORE, hide_short_help = true)]
    pub replay: Option<PathBuf>,
    /// Reuse the answers to equal requests, and store new ones
    #[arg(long, value_name = "FILE", help_heading = STORE, hide_short_help = true)]
    cache: Option<PathBuf>,
    /// File of a budget shared between processes
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    budget_file: Option<PathBuf>,
    /// The output of an earlier run: prompts that it answers are skipped
    #[arg(long = "skip-done", value_name = "OUT", conflicts_with = "request_id", help_heading = MANY, hide_short_help = true)]
    pub resume: Option<PathBuf>,
    /// The number of concurrent requests
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "request_id", help_heading = MANY)]
    pub jobs: u16,
    /// The column of the answers to a table
    #[arg(
        long,
        value_name = "NAME",
        default_value = "answer",
        requires = "table",
        help_heading = "Output",
        hide_short_help = true
    )]
    pub column: String,
    /// Print the request instead of sending it
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,
}

impl RequestArgs {
    /// The source of the input, the engine, and the builder of its requests.
    pub(crate) fn prepared(&self, direct: &Direct, context: &Context) -> Result<(Source, Engine, RequestBuilder)> {
        let source = self.source(direct)?;
        let recordings = direct.recordings(context)?;
        let is_replayed = recordings.as_ref().is_some_and(Recordings::is_replayed);
        // A replay and a dry run need no key.
        let sends = !is_replayed && !direct.dry_run;
        let jobs = direct.jobs.max(1).into();
        let streams = self.streams(direct, context);
        let script = self.stub_script.clone().or_else(|| context.config.text("stub_script", None).map(PathBuf::from));
        let schema = self.schema.as_deref().map(AnswerSchema::load).transpose()?;
        let policy = Policy::load(context)?;
        let endpoints = Endpoints::load(context, self.backend.as_deref())?;
        // The default backend of a replay is the one of the recording.
        let endpoints = match &recordings {
            Some(replay) if is_replayed => endpoints.or_default_name(|| replay.backend())?,
            _ => endpoints,
        };
        let model = self.model.as_deref().filter(|model| !model.is_empty());
        let model = model.map(|model| endpoints.target(model)).transpose()?;
        let backends = Backends::new(BackendOptions {
            timeouts: Timeouts {
                total: Duration::from_secs_f64(self.timeout),
                idle: streams.then_some(Duration::from_secs_f64(direct.idle_timeout)),
            },
            connections: jobs,
            needs_key: sends,
            stub_script: script,
            network: if sends { policy.permission().map(Some) } else { Ok(None) },
        });
        let named =
            [("max_tokens", self.max_tokens.map(Value::from)), ("temperature", self.temperature.map(Value::from))];
        // All options are validated before a file is changed.
        let mut requests = RequestBuilder {
            system: self.system.as_ref().map(TextOrFile::text).transpose()?,
            model,
            endpoints,
            backends,
            tools: self.tools.as_deref().map(tools).transpose()?,
            common: Request {
                params: parameters(&self.option, named)?,
                schema: schema.as_ref().map(|schema| schema.text.clone()),
                stream: streams,
                reasoning: self.reasoning,
                id: self.request_id.clone(),
                ..Request::default()
            },
            policy,
            table: None,
            made: AtomicU64::new(0),
        };
        let policy = &requests.policy.table;
        let max_wait = Duration::from_secs_f64(direct.retry_max_wait);
        let (limit, file) = (Limit { usd: self.budget_usd, tokens: self.budget_tokens }, direct.budget_file.as_deref());
        let engine = Engine {
            fail_on: self.fail_on.clone(),
            schema,
            recordings,
            budget: if sends { Budget::open(limit, file, policy.budget_usd)? } else { None },
            gate: Gate::new(jobs),
            retries: RetryPolicy { retries: direct.retries, max_wait },
            ..Engine::new(context, policy.log_content)?
        };
        let template = self.table.template(self.text.first())?;
        requests.table = self.table.open()?.zip(template);
        Ok((source, engine, requests))
    }

    /// The source of the input. Fails if two options read standard input.
    fn source(&self, direct: &Direct) -> Result<Source> {
        let source = self.table.source(&self.text)?;
        let files = [&self.tools, &self.schema, &self.stub_script, &direct.replay, &direct.resume].into_iter();
        let system = self.system.iter().filter_map(TextOrFile::file);
        let named = files.flatten().map(PathBuf::as_path).chain(system).map(Path::as_os_str);
        given::check_input(named, !matches!(source, Source::Argument(_)))?;
        Ok(source)
    }

    /// The options of the input stream.
    pub(crate) fn stream_options(&self) -> StreamOptions {
        self.table.stream(self.stream_options)
    }

    /// The writer of the answers as a table: those to a table, in the text format. A schema has a column for each
    /// property.
    pub(super) fn writer(&self, table: &[String], engine: &Engine, column: &str) -> Result<Option<Writer>> {
        let properties = engine.schema.as_ref().and_then(|schema| schema.text.get("properties")?.as_object());
        let columns = properties.map_or_else(|| vec![column.to_owned()], |all| all.keys().cloned().collect());
        self.table.writer(table, columns)
    }

    /// True if text is printed as it arrives. A code block and a record of a table are only printed whole.
    fn streams(&self, direct: &Direct, context: &Context) -> bool {
        direct.stream && !((direct.extract || self.table.format().is_some()) && context.out.format() != Format::Json)
    }
}

impl Direct {
    /// Opens the recordings, if an option names them.
    fn recordings(&self, context: &Context) -> Result<Option<Recordings>> {
        if self.dry_run {
            return Ok(None);
        }
        let Self { record, replay, cache, .. } = self;
        // These files are written to.
        for file in [record, &self.resume, &self.budget_file, cache].into_iter().flatten() {
            cp_policy::check_writable(&context.home, file)?;
        }
        let uses = [(record, Use::Record), (replay, Use::Replay), (cache, Use::Cache)];
        let named = uses.into_iter().find_map(|(file, purpose)| Some((file.as_ref()?, purpose)));
        named.map(|(file, purpose)| Recordings::open(file, purpose, &|message| context.warn(message))).transpose()
    }
}

/// The longest list of tools, in bytes.
const LONGEST: u64 = 4 << 20;

fn tools(file: &Path) -> Result<Vec<ToolSpec>> {
    let bytes = given::bytes(file, LONGEST).map_err(Error::fatal)?;
    let text = text_of(&bytes).map_err(|e| e.in_file(file).fatal())?;
    serde_json::from_str(text).map_err(|e| Error::validation(format!("not a list of tools: {e}")).in_file(file).fatal())
}
