//! The options of the command line, and what they make: the engine that answers prompts, and the builder of its requests.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use cp_common::context::options::{StreamOptions, text_or_file};
use cp_common::output::Format;
use cp_common::wire::ToolSpec;
use cp_common::{Context, Error, Result};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::request::{Defaults, RequestBuilder};
use crate::backend::choice::{self, Setup};
use crate::engine::Engine;
use crate::engine::budget::Budget;
use crate::engine::cassette::{Cassette, Use};
use crate::engine::journal::Journal;
use crate::engine::prices::Prices;
use crate::engine::rate::RateLimiter;
use crate::engine::retry::RetryPolicy;
use crate::engine::schema::AnswerSchema;
use crate::files::unreadable;
use crate::http::client::Timeouts;
use crate::policy::Policy;

/// Send each prompt to a model and print its message
#[derive(clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of the command line")]
pub(crate) struct Args {
    /// The system text, or with @FILE the text of a file, its last newline taken off; @@ stands for an @
    #[arg(short, long, value_name = "TEXT|@FILE", help_heading = "What to ask")]
    system: Option<String>,
    /// The model; more of them, separated by commas, are fallbacks in order
    #[arg(short, long, value_name = "MODEL,…", value_delimiter = ',', help_heading = "Who answers")]
    model: Vec<String>,
    /// What answers: anthropic, openai, openai-responses, gemini, llm, stub, or the path of an executable
    #[arg(long, value_name = "NAME", help_heading = "Who answers")]
    backend: Option<String>,
    /// Print the text as it comes
    #[arg(long, help_heading = "What is printed")]
    pub stream: bool,
    /// The most tokens to answer with
    #[arg(long, value_name = "N", help_heading = "What to ask", hide_short_help = true)]
    max_tokens: Option<u64>,
    /// The sampling temperature
    #[arg(long, value_name = "T", help_heading = "What to ask", hide_short_help = true)]
    temperature: Option<f64>,
    /// The longest time for one try, in seconds
    #[arg(long, value_name = "S", default_value_t = 600.0, help_heading = "Limits")]
    timeout: f64,
    /// The longest silence of a server that streams, in seconds
    #[arg(long, value_name = "S", default_value_t = 120.0, help_heading = "Limits", hide_short_help = true)]
    idle_timeout: f64,
    /// How often to try again what may succeed later
    #[arg(long, value_name = "N", default_value_t = 2, help_heading = "Limits")]
    retries: u32,
    /// The longest wait before a try, in seconds
    #[arg(long, value_name = "S", default_value_t = 60.0, help_heading = "Limits", hide_short_help = true)]
    retry_max_wait: f64,
    /// Stop reasons that are failures, such as `max_tokens,refusal`
    #[arg(
        long,
        value_name = "REASON,…",
        value_delimiter = ',',
        help_heading = "What is printed",
        hide_short_help = true
    )]
    fail_on: Vec<String>,
    /// The tools that the model may call: a JSON list of name, description and `input_schema`
    #[arg(long, value_name = "FILE", help_heading = "What to ask")]
    tools: Option<PathBuf>,
    /// The answers of the stub, one JSON object a line
    #[arg(long, value_name = "FILE", help_heading = "Who answers", hide_short_help = true)]
    stub_script: Option<PathBuf>,
    /// The JSON Schema that the answer must match: it is parsed into `parsed`
    #[arg(long, value_name = "FILE", conflicts_with = "stream", help_heading = "What to ask")]
    schema: Option<PathBuf>,
    /// Add each answer to a recording
    #[arg(long, value_name = "FILE", conflicts_with_all = ["replay", "cache"], help_heading = "Answers that are kept", hide_short_help = true)]
    record: Option<PathBuf>,
    /// Answer from a recording, and send nothing
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "cache",
        help_heading = "Answers that are kept",
        hide_short_help = true
    )]
    replay: Option<PathBuf>,
    /// Answer again what was answered before, and keep new answers
    #[arg(long, help_heading = "Answers that are kept", hide_short_help = true)]
    cache: bool,
    /// The most dollars to spend
    #[arg(long, value_name = "X", help_heading = "Limits")]
    budget_usd: Option<f64>,
    /// The most tokens to spend
    #[arg(long, value_name = "N", help_heading = "Limits", hide_short_help = true)]
    budget_tokens: Option<u64>,
    /// The file with the sums of a budget that processes share
    #[arg(long, value_name = "FILE", help_heading = "Limits", hide_short_help = true)]
    budget_file: Option<PathBuf>,
    /// The most requests in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits", hide_short_help = true)]
    rpm: Option<u32>,
    /// The most tokens in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Limits", hide_short_help = true)]
    tpm: Option<u32>,
    /// The output of an earlier run: what it answers is not sent again
    #[arg(long, value_name = "OUT", help_heading = "Many at once", hide_short_help = true)]
    pub resume: Option<PathBuf>,
    /// How many requests to have under way at the same time
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1024), help_heading = "Many at once")]
    pub jobs: u16,
    /// Print each message as soon as it is complete, not in the order of the prompts
    #[arg(long, help_heading = "Many at once", hide_short_help = true)]
    pub unordered: bool,
    /// A name for this request: the same one again is not sent, and gets the first answer
    #[arg(long, value_name = "ID", conflicts_with_all = ["jobs", "resume"], help_heading = "Answers that are kept", hide_short_help = true)]
    pub request_id: Option<String>,
    /// Print the request instead of sending it
    #[arg(long, help_heading = "What is printed")]
    pub dry_run: bool,
    #[command(flatten)]
    pub stream_options: StreamOptions,
    /// The text to send; - adds standard input
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
}

impl Args {
    /// What answers the prompts, and what makes requests of them.
    pub(crate) fn prepared(&self, context: &Context) -> Result<(Engine, RequestBuilder)> {
        if self.stream && self.unordered && self.jobs > 1 && context.out.format() != Format::Json {
            let mixed = "--unordered --stream mixes the text of several answers, which only json keeps apart";
            return Err(Error::usage(mixed).hint("remove --unordered, --stream or --format"));
        }
        let setting = context.config.text("model", None);
        let models: Vec<String> = self.model.iter().filter(|model| !model.is_empty()).cloned().collect();
        let cassette = self.cassette(context)?;
        let is_replayed = cassette.as_ref().is_some_and(Cassette::is_replayed);
        let name = self.backend_name(models.first().or(setting.as_ref()), cassette.as_ref(), context)?;
        // Neither a recording nor a look at the request needs a key.
        let sends = !is_replayed && !self.dry_run;
        let script = self.stub_script.clone().or_else(|| context.config.text("stub_script", None).map(PathBuf::from));
        let schema = self.schema.as_deref().map(AnswerSchema::load).transpose()?;
        let schema_text = schema.as_ref().map(|schema| schema.text.clone());
        let policy = Policy::load(&context.home)?;
        let backend = choice::by_name(
            &name,
            &Setup {
                timeouts: self.timeouts()?,
                connections: self.jobs.into(),
                needs_key: sends,
                stub_script: script.as_deref(),
            },
        )?;
        let network = (sends && backend.is_metered()).then(|| policy.network()).transpose()?;
        let defaults = Defaults {
            system: self.system.as_deref().map(text_or_file).transpose()?,
            models,
            fallback: setting.or_else(|| backend.default_model().map(str::to_owned)),
            tools: self.tools.as_deref().map(tools).transpose()?,
            max_tokens: self.max_tokens,
            temperature: self.temperature,
            schema: schema_text,
            stream: self.stream,
        };
        let dollars = policy.budget(self.budget_usd, backend.as_ref());
        let engine = Engine {
            backend,
            retries: RetryPolicy { retries: self.retries, max_wait: seconds("--retry-max-wait", self.retry_max_wait)? },
            prices: Prices::load(&context.home.path("config/prices.toml"))?,
            fail_on: self.fail_on.clone(),
            schema,
            cassette,
            budget: Budget::new(dollars, self.budget_tokens, self.budget_file.as_deref())?,
            rate: RateLimiter::new(self.rpm, self.tpm),
            journal: Journal::new(context, network, policy.logs_content())?,
            lowered: Mutex::default(),
        };
        Ok((engine, RequestBuilder::new(defaults, policy)))
    }

    /// The name of the backend: a replay takes the recording's where nothing else names one.
    fn backend_name(&self, model: Option<&String>, cassette: Option<&Cassette>, context: &Context) -> Result<String> {
        let named = choice::name_of(self.backend.as_deref(), model.map(String::as_str), context);
        match cassette.filter(|cassette| cassette.is_replayed() && self.backend.is_none()) {
            Some(cassette) => named.or_else(|_| cassette.backend()),
            None => named,
        }
    }

    fn timeouts(&self) -> Result<Timeouts> {
        let idle = self.stream.then(|| seconds("--idle-timeout", self.idle_timeout)).transpose()?;
        Ok(Timeouts { total: seconds("--timeout", self.timeout)?, idle })
    }

    /// The recording that is used, if one is.
    fn cassette(&self, context: &Context) -> Result<Option<Cassette>> {
        if self.dry_run {
            return Ok(None);
        }
        // What goes on with a run writes to its output, and what counts a budget to its file.
        for file in [&self.record, &self.resume, &self.budget_file].into_iter().flatten() {
            context.home.check_writable(file)?;
        }
        let cache = self.cache.then(|| context.home.state("llm-cache.jsonl"));
        let named = [(&self.record, Use::Record), (&self.replay, Use::Replay), (&cache, Use::Cache)];
        named.into_iter().find_map(|(file, mode)| file.as_deref().map(|file| Cassette::open(file, mode))).transpose()
    }
}

/// The options that do not apply to a batch.
const DIRECT: &str = "--stream --dry-run --jobs --unordered --resume --record --replay --cache --budget-file --rpm --tpm \
    --retries --retry-max-wait --idle-timeout";

fn is_named(option: &str) -> bool {
    DIRECT.split_whitespace().any(|direct| direct == option)
}

/// Whether an option does not apply to a batch.
pub(crate) fn is_direct(option: &clap::Arg) -> bool {
    option.get_long().is_some_and(|name| is_named(&format!("--{name}")))
}

/// Refuses the options that do not apply to a batch.
pub(crate) fn refuse_direct() -> Result<()> {
    let options = std::env::args_os().take_while(|word| word != "--");
    let mut names = options.map(|word| word.to_string_lossy().split('=').next().unwrap_or_default().to_owned());
    match names.find(|name| is_named(name)) {
        Some(name) => Err(Error::usage(format!("{name} does not apply to a batch")).hint("leave it out")),
        None => Ok(()),
    }
}

/// What a batch takes of the options.
impl Args {
    /// The options that these words are.
    pub(crate) fn of_words(words: &[String]) -> Result<Self> {
        let wrong = |e: clap::Error| Error::config(e.to_string()).fatal();
        let command = <Self as clap::Args>::augment_args(clap::Command::new("cp-llm").no_binary_name(true));
        let matches = command.try_get_matches_from(words).map_err(wrong)?;
        <Self as clap::FromArgMatches>::from_arg_matches(&matches).map_err(wrong)
    }

    /// The words with which the answers of a batch are read as these options say.
    pub(crate) fn words_for_answers(&self, backend: &str) -> Vec<String> {
        let mut words = vec![format!("--backend={backend}")];
        words.extend(self.fail_on.iter().map(|reason| format!("--fail-on={reason}")));
        let script = self.stub_script.as_ref().and_then(|script| std::path::absolute(script).ok());
        words.extend(script.map(|script| format!("--stub-script={}", script.display())));
        words
    }
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
