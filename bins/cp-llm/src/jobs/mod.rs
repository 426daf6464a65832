//! Batches: prompts that a provider answers within a day, for half the price.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and
//! wherever it was killed: a batch is on disk before the provider is asked to create it. Its requests are only in
//! memory, because the same input has them again.
//!
//! The [`state`] of each is a file below `state/batches` of the home. [`provider`] implements the two batch APIs.

mod provider;
mod result;
pub(crate) mod state;

use std::time::Duration;

use cp_common::keys::hex;
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter};
use cp_common::wire::Prompt;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};
use sha2::{Digest as _, Sha256};

use self::provider::Client;
use self::state::{Batch, BatchJob, Row, State, line_of};
use crate::backend::endpoint::Target;
use crate::pause;
use crate::send::{Direct, RequestArgs, RequestBuilder};
use crate::wire_api::Request;

/// The entries of these verbs in `reference`.
pub(crate) const DOCS: [VerbDoc; 4] = [
    VerbDoc {
        path: "batch submit",
        class: Class::Governed,
        output: "batch_job",
        also: &["summary"],
        examples: &[
            "cp-llm batch submit --backend stub -- hello",
            "jq -nc '{messages:[{role:\"user\",content:\"hi\"}]}' | cp-llm batch submit --backend stub --rows",
        ],
        input: &[Input::Text, Input::Records, Input::Rows],
        events: &["llm.request", "llm.batch"],
        ..VerbDoc::EMPTY
    },
    VerbDoc {
        path: "batch status",
        class: Class::Query,
        output: "batch_job",
        also: &["summary"],
        exits: &[7, 8],
        examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch status --wait"],
        sort: Some("created_at, descending"),
        ..VerbDoc::EMPTY
    },
    VerbDoc {
        path: "batch result",
        class: Class::Governed,
        output: "message",
        also: &["summary"],
        examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch result BAT-"],
        events: &["llm.response", "llm.batch"],
        ..VerbDoc::EMPTY
    },
    VerbDoc {
        path: "batch cancel",
        class: Class::Governed,
        output: "batch_job",
        examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch cancel BAT-"],
        ..VerbDoc::EMPTY
    },
];

/// Let a provider answer prompts later, for less
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Submit prompts as a batch that their provider answers later
    Submit(Box<RequestArgs>),
    /// Print the state of batches
    Status {
        /// Wait until all batches have ended, and print each when it ends
        #[arg(long)]
        wait: bool,
        /// The batches, by id or a prefix of it (default: all)
        #[arg(value_name = "ID")]
        ids: Vec<String>,
    },
    /// Print the answers of batches that have ended
    Result {
        /// The batches, by id or a prefix of it
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Cancel a batch; answers from before can be printed
    Cancel {
        /// The batch, by id or a prefix of it
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Submit(args) => submit(args, context),
        Verb::Status { wait, ids } => status(*wait, ids, context),
        Verb::Result { ids } => result::run(ids, context),
        Verb::Cancel { id } => cancel(id, context),
    }
}

fn submit(args: &RequestArgs, context: &mut Context) -> Result<()> {
    let direct = Direct::default();
    let source = args.source(&direct)?;
    let (engine, mut requests) = args.prepared(&direct, context)?;
    requests.table = args.table()?;
    let client = Client::of(engine, requests.endpoint()?)?;
    let mut submit = Submit { args, client: &client, requests, encoded: Vec::new(), rows: Vec::new() };
    filter::run(&mut submit, source, args.stream_options(), context)
}

/// The rows of a batch.
struct Submit<'a> {
    args: &'a RequestArgs,
    client: &'a Client,
    requests: RequestBuilder,
    /// The requests as the provider takes them.
    encoded: Vec<Vec<u8>>,
    rows: Vec<Row>,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let place = context.out.place;
        let work = self.requests.work(&body, place)?;
        let (client, Target { endpoint, model }) = (self.client, &work.target);
        let first = self.rows.first().map_or(Some(model), |first| first.prompt.model.as_ref());
        if endpoint.name != client.endpoint.name || first != Some(model) {
            let (name, other) = (&client.endpoint.name, work.target.name());
            let message = format!("all prompts of a batch must use one model of {name}: not {other}");
            return Err(Error::usage(message).hint("submit the prompts of each model separately").fatal());
        }
        client.engine.note_lowered(&work)?;
        let body = client.engine.body(&work)?;
        client.engine.check_batch_budget(&work, body.len())?;
        self.encoded.push(client.line(self.encoded.len(), &body));
        let (request_hash, bytes) = (work.request_hash(&body), body.len() as u64);
        let Request { system, messages, tools, model, .. } = work.request;
        let system = Some(system).filter(|system| !system.is_empty());
        let prompt = Prompt { system, messages, tools, model: Some(model), ..work.prompt };
        let Place { index, line, .. } = place;
        self.rows.push(Row { index, line, request_hash, bytes, prompt, outcome: None });
        context.out.defer_item();
        Ok(())
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // An incomplete input is not submitted.
        signals::check()?;
        self.client.engine.report_lowered(context);
        if self.encoded.is_empty() {
            return Ok(());
        }
        let mut batch = self.store(context)?;
        if batch.job.provider_id.is_none() {
            self.submit(&mut batch)?;
        }
        context.out.record(Kind::Item, &self.client.progress(&batch)?)?;
        self.encoded.iter().for_each(|_| context.out.item_succeeded());
        Ok(())
    }
}

impl Submit<'_> {
    /// Stores the batch, or finds the batch of the same rows. It is locked.
    fn store(&mut self, context: &Context) -> Result<Batch> {
        let Client { engine, endpoint, ready, .. } = self.client;
        let base = self.client.base();
        let seed = format!("{}\n{}\n", endpoint.name, base.unwrap_or_default());
        let hash = Sha256::new_with_prefix(seed).chain_update(self.encoded.concat());
        let input_hash = format!("sha256:{}", hex(&hash.chain_update(line_of(&self.rows)?).finalize()));
        let given = self.args.request_id.as_deref();
        let named = given.map(|id| keys::hash(format!("request {id}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let id = format!("BAT-{}", &digits[..16]);
        let new = Batch {
            job: BatchJob {
                backend: ready.backend.name().to_owned(),
                endpoint: base.map(str::to_owned),
                count: self.rows.len() as u64,
                created_at: clock::now(),
                input_hash: input_hash.clone(),
                job_id: id.clone(),
                ..BatchJob::default()
            },
            endpoint: endpoint.name.clone(),
            fail_on: engine.fail_on.clone(),
            stub_script: self.args.stub_script.as_ref().map(std::path::absolute).transpose()?,
            schema: engine.schema.as_ref().map(|schema| schema.text.clone()),
            rows: std::mem::take(&mut self.rows),
            ..Batch::default()
        };
        let batch = new.stored(&context.home)?;
        if batch.job.input_hash == input_hash {
            return Ok(batch);
        }
        let message = format!("the request id `{}` was used for another input", given.unwrap_or(&id));
        let error = Error::new(Code::Conflict, message).with("reason", "other_arguments");
        Err(error.hint("use a new id for a new request").fatal())
    }

    /// Creates the batch at the provider, unless it may exist there.
    fn submit(&self, batch: &mut Batch) -> Result<()> {
        let Client { engine, endpoint, .. } = self.client;
        if batch.was_asked {
            return Err(self.client.interrupted(batch));
        }
        for (number, row) in batch.rows.iter().enumerate() {
            let work = row.work(number, endpoint);
            engine.record_enqueued(&work, &batch.name_of(number), &row.request_hash, row.bytes)?;
        }
        // A signal waits until a batch that is paid for is recorded.
        let _effect = signals::effect();
        let made = self.client.create(batch, &self.encoded);
        engine.record_submitted(&batch.job, made.as_ref().err())?;
        made
    }
}

/// The first and the longest interval between two requests for the state.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

fn status(waits: bool, ids: &[String], context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let mut shown = context.out.progress();
    let mut open = if ids.is_empty() { Batch::all(&context.home, "")? } else { Vec::new() };
    for id in ids {
        match Batch::find(&context.home, id) {
            Ok(batch) => open.push(batch),
            Err(error) => context.out.item_failed(error)?,
        }
    }
    let mut wait = WAITS.0;
    loop {
        let mut running = Vec::new();
        for batch in open {
            match Client::of_batch(&batch, context).and_then(|client| client.progress(&batch)) {
                Ok(job) if waits && !job.is_ended() => {
                    shown.report(|| format!("{}: {} of {} done", job.job_id, job.done, job.count));
                    running.push(batch);
                }
                Ok(job) => {
                    context.out.record(Kind::Item, &job)?;
                    context.out.item_succeeded();
                }
                Err(error) if error.code() == Code::Interrupted => return Err(error),
                Err(error) if waits && error.code().row().retryable => {
                    context.warn(&format!("{}: {}; asking again", batch.job.job_id, error.message()));
                    running.push(batch);
                }
                Err(error) => context.out.item_failed(error)?,
            }
        }
        if running.is_empty() {
            return Ok(());
        }
        context.out.flush()?;
        pause(wait)?;
        wait = (wait * 3 / 2).min(WAITS.1);
        open = running;
    }
}

fn cancel(id: &str, context: &mut Context) -> Result<()> {
    let batch = Batch::find(&context.home, id)?.locked()?;
    if batch.job.provider_id.is_none() {
        // The user confirms that the provider does not have the batch, so the same input can be submitted again.
        batch.remove()?;
        return context.out.answer(&BatchJob { status: State::Cancelled, ..batch.job });
    }
    let client = Client::of_batch(&batch, context)?;
    let _effect = signals::effect();
    client.cancel(&batch)?;
    context.out.answer(&client.progress(&batch)?)
}
