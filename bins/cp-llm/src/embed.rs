//! `cp-llm embed`: texts in, vectors out. Many texts go in one request.

use std::time::Duration;

use cp_common::context::options::{StreamOptions, seconds};
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source, text_of};
use cp_common::wire::record::{self, Kind};
use cp_common::wire::{Block, Content, Message, Prompt, Receipt, Reply, Turn, Usage};
use cp_common::{Code, Context, Error, Result, keys, signals};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::backend::Backends;
use crate::backend::choice::Endpoints;
use crate::backend::endpoint::{BackendOptions, Target};
use crate::engine::budget::{Budget, BudgetOptions};
use crate::engine::retry::RetryPolicy;
use crate::engine::{Engine, Listener, Work};
use crate::policy::Policy;
use crate::wire_api::Request;

/// The longest delay.
const WAIT: Duration = Duration::from_mins(1);

/// Print the vector of each text
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The model (default: the setting `embedding_model`)
    #[arg(short, long, value_name = "MODEL")]
    model: Option<String>,
    /// The backend: openai, gemini or stub
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// The length of vectors (default: the model's)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub dimensions: Option<u32>,
    /// The most texts in one request
    #[arg(long = "batch-size", value_name = "N", default_value_t = 96, value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub batch: u16,
    /// The time limit of one attempt
    #[arg(long, value_name = "DURATION", value_parser = seconds, default_value = "120s")]
    timeout: f64,
    /// The number of retries of transient failures
    #[arg(long, value_name = "N", default_value_t = 2)]
    retries: u32,
    #[command(flatten)]
    budget: BudgetOptions,
    #[command(flatten)]
    pub stream_options: StreamOptions,
    /// The text; - adds standard input
    #[arg(value_name = "TEXT")]
    pub text: Vec<String>,
}

impl Args {
    /// Makes the engine, and resolves the model.
    pub(super) fn prepared(&self, context: &Context) -> Result<(Engine, Target)> {
        let policy = Policy::load(context)?;
        let permission = policy.permission();
        let endpoints = Endpoints::load(context, self.backend.as_deref())?.probing(permission().is_ok());
        let target = match context.config.text("embedding_model", self.model.as_deref()) {
            Some(model) => endpoints.target(&model)?,
            None => endpoints.embedding_target()?,
        };
        let options = BackendOptions::new(Duration::from_secs_f64(self.timeout.max(0.001)), permission);
        let backends = Backends::new(BackendOptions { embeds: true, ..options });
        backends.of(&target.endpoint)?;
        if let Some(file) = &self.budget.file {
            context.home.check_writable(file)?;
        }
        let budget = Budget::open(&self.budget, policy.table.budget_usd, (None, None))?;
        let retries = RetryPolicy { retries: self.retries, max_wait: WAIT };
        let engine = Engine::new(context, backends, retries, policy.fetch(), policy.table.log_content)?;
        Ok((Engine { counts_what_is_free: self.budget.usd.is_some(), budget, ..engine }, target))
    }
}

/// The entry of this verb in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "embed",
    class: Class::Governed,
    output: "embedding",
    also: &["summary"],
    examples: &["cp-llm embed --backend stub --dimensions 4 -- hello"],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["llm.request", "llm.response"],
    ..VerbDoc::EMPTY
};

/// The most bytes of text in one request.
const MOST: usize = 256 << 10;

/// The time to wait for another text before a request is sent.
const SOON: Duration = Duration::from_millis(20);

/// The vector of a text.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(extend("x-untrusted" = ["row"])))]
pub(crate) struct Embedded {
    /// The hash of the text.
    text_hash: String,
    /// The length of the vector.
    dimensions: usize,
    /// The model.
    model: String,
    /// The name of the wire API.
    backend: String,
    /// The name of the endpoint.
    endpoint: String,
    /// The row of the text.
    #[serde(skip_serializing_if = "Option::is_none")]
    row: Option<Box<RawValue>>,
    /// The usage of the request, only at the first of its texts, so that sums are right.
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Usage>,
    /// The ledger entry of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Receipt>,
    /// The vector, with numbers as the server printed them.
    #[cfg_attr(test, schemars(with = "Vec<f32>"))]
    embedding: Box<RawValue>,
    /// JSON Pointers to untrusted members.
    #[serde(rename = "_untrusted", default, skip_serializing_if = "Vec::is_empty")]
    untrusted: Vec<String>,
}

impl Reply for Embedded {
    fn text(&self) -> String {
        self.embedding.get().trim_matches(['[', ']']).replace(',', " ")
    }
}

/// A text in a row or a record.
#[derive(Default, Deserialize)]
struct Given {
    text: Option<String>,
    content: Option<Content>,
    #[serde(default)]
    messages: Vec<Turn>,
    row: Option<Box<RawValue>>,
}

/// A text that waits for its request.
struct Waiting {
    place: Place,
    text: String,
    row: Option<Box<RawValue>>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let source = Source::from_operands(&args.text)?;
    let (engine, target) = args.prepared(context)?;
    let mut embed = Embed { args, engine, target, waiting: Vec::new() };
    let outcome = filter::run(&mut embed, source, args.stream_options, context);
    outcome.and(embed.engine.budget.as_ref().map_or(Ok(()), Budget::close))
}

struct Embed<'a> {
    args: &'a Args,
    engine: Engine,
    target: Target,
    waiting: Vec<Waiting>,
}

impl Filter for Embed<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt, Kind::Message]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let Given { text, content, messages, row } = match body {
            Body::Text(text) => Given { text: Some(text_of(text)?.to_owned()), ..Given::default() },
            Body::Row(data) => record::read(data)?,
            Body::Record(found) => {
                record::read(found.data.ok_or_else(|| Error::validation("the record has no `data`"))?)?
            }
        };
        let turns = || messages.iter().map(|turn| turn.content.text()).collect::<Vec<_>>().join("\n\n");
        let text = text.or_else(|| content.map(|content| content.text())).unwrap_or_else(turns);
        if text.trim().is_empty() {
            let error = Error::validation("the text is empty").hint("a row is {\"text\":\"…\"}, or as a prompt has it");
            return Err(error.with_row(row.as_deref()));
        }
        let bytes: usize = self.waiting.iter().map(|waiting| waiting.text.len()).sum();
        if self.waiting.len() >= self.args.batch.into() || bytes + text.len() > MOST {
            let here = context.out.place();
            self.flush(context)?;
            context.out.set_place(here);
        }
        context.out.defer_item();
        self.waiting.push(Waiting { place: context.out.place(), text, row });
        Ok(())
    }

    fn catch_up(&mut self, context: &mut Context) -> Result<()> {
        self.flush(context)
    }

    fn idle(&mut self, context: &mut Context) -> Result<()> {
        // A slow writer may send more texts soon, which then share a request.
        let limit = Some(SOON).filter(|_| !self.waiting.is_empty()).unwrap_or_default();
        if signals::wait_readable(rustix::stdio::stdin(), Some(limit))? { Ok(()) } else { self.flush(context) }
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        self.flush(context)
    }
}

impl Embed<'_> {
    /// Requests the vectors of the waiting texts and prints them.
    fn flush(&mut self, context: &mut Context) -> Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        if waiting.is_empty() {
            return Ok(());
        }
        signals::check()?;
        let options = self.args.stream_options;
        let places: Vec<_> = waiting.iter().map(|waiting| (waiting.place, waiting.row.clone())).collect();
        match self.request_vectors(waiting, context) {
            Ok(list) => list.iter().zip(places).try_for_each(|(embedded, (place, _))| {
                filter::settle(place, options, context, |context| context.out.record(Kind::Item, embedded))
            })?,
            Err(error) if error.is_fatal() || error.code() == Code::Interrupted => return Err(error),
            Err(error) => places.into_iter().try_for_each(|(place, row)| {
                let error = Error::from_value(&error.to_value()).with_row(row.as_deref());
                filter::settle(place, options, context, |_| Err(error))
            })?,
        }
        // Flushes paid results, so that a later failure cannot lose them.
        context.out.flush()
    }

    /// Sends a request with these texts.
    fn request_vectors(&self, waiting: Vec<Waiting>, context: &mut Context) -> Result<Vec<Embedded>> {
        let messages: Vec<Turn> = waiting.iter().map(|waiting| Turn::text("user", &waiting.text)).collect();
        let params = self.args.dimensions.iter().map(|count| ("dimensions".to_owned(), Value::from(*count)));
        let request = Request { messages: messages.clone(), params: params.collect(), ..Request::default() };
        let mut work = Work::new(Prompt { messages, ..Prompt::default() }, request, self.target.clone(), Vec::new());
        let Message { blocks, usage, model, backend, endpoint, receipt, .. } =
            self.engine.message(&mut work, &mut Warnings(context))?;
        if blocks.len() != waiting.len() {
            let message = format!("{backend}: {} vectors came for {} texts", blocks.len(), waiting.len());
            return Err(Error::new(Code::Server, message).with("origin", "upstream"));
        }
        let mut usage = Some(usage);
        let of = |(waiting, block): (Waiting, Block)| {
            let embedding =
                block.view()?.raw.ok_or_else(|| Error::new(Code::Unknown, "a block has no vector"))?.to_owned();
            Ok(Embedded {
                text_hash: keys::hash(waiting.text.as_bytes()),
                dimensions: embedding.get().split(',').count(),
                model: model.clone(),
                backend: backend.clone(),
                endpoint: endpoint.clone(),
                untrusted: waiting.row.iter().map(|_| "/row".to_owned()).collect(),
                row: waiting.row,
                usage: usage.take(),
                receipt: receipt.clone(),
                embedding,
            })
        };
        waiting.into_iter().zip(blocks).map(of).collect()
    }
}

/// Prints warnings.
struct Warnings<'a>(&'a mut Context);

impl Listener for Warnings<'_> {
    fn warn(&mut self, message: &str) {
        self.0.warn(message);
    }
}
