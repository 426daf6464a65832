//! Batches: prompts that a provider answers within a day, for half the price.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and
//! wherever it was killed: a batch is on disk before the provider is asked to create it.
//!
//! The [`state`] of each is a file below `state/batches` of the home. [`provider`] implements the two batch APIs.

mod provider;
pub(crate) mod state;

use std::mem::take;

use cp_common::context::options::StreamOptions;
use cp_common::home::{Home, lock_file};
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter};
use cp_common::wire::raw;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};

use self::provider::Client;
use self::state::{Batch, BatchJob, Row, State, path_of};
use crate::backend::endpoint::Target;
use crate::engine::{Engine, Work};
use crate::send::{Direct, RequestArgs, RequestBuilder, print_cut};
use crate::wire_api::bad_answer;
use crate::wire_api::ends::remark;

/// The entries of these verbs in `reference`.
pub(crate) const DOCS: [VerbDoc; 4] = [
    VerbDoc {
        examples: &[
            "cp-llm batch submit --backend stub -- hello",
            "jq -nc '{messages:[{role:\"user\",content:\"hi\"}]}' | cp-llm batch submit --backend stub --rows",
        ],
        also: &["summary"],
        input: &[Input::Text, Input::Records, Input::Rows],
        events: &["llm.request", "llm.response", "llm.batch"],
        ..VerbDoc::new("batch submit", Class::Governed, "batch_job")
    },
    VerbDoc {
        exits: &[7, 8, 9],
        examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch status"],
        also: &["summary"],
        sort: Some("created_at, descending"),
        ..VerbDoc::new("batch status", Class::Query, "batch_job")
    },
    VerbDoc {
        examples: &["cp-llm batch submit --backend stub -- hello | jq -r .data.job_id | xargs cp-llm batch result"],
        also: &["summary"],
        events: &["llm.response", "llm.batch"],
        ..VerbDoc::new("batch result", Class::Governed, "message")
    },
    VerbDoc {
        examples: &["cp-llm batch submit --backend stub -- hello | jq -r .data.job_id | xargs cp-llm batch cancel"],
        ..VerbDoc::new("batch cancel", Class::Governed, "batch_job")
    },
];

/// The verbs of batches.
#[derive(clap::Subcommand)]
pub(crate) enum Verb {
    /// Submit prompts as a batch that their provider answers later
    Submit(Box<RequestArgs>),
    /// Print the state of batches
    Status {
        /// The batches, by id (default: all)
        #[arg(value_name = "ID")]
        ids: Vec<String>,
    },
    /// Print the answers of batches that have ended
    Result {
        /// The batches, by id
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
    /// Cancel a batch; answers from before can be printed
    Cancel {
        /// The batch, by id
        #[arg(value_name = "ID")]
        id: String,
    },
}

/// Runs the verb.
pub(crate) fn run(verb: &Verb, context: &mut Context) -> Result<()> {
    match verb {
        Verb::Submit(args) => submit(args, context),
        Verb::Status { ids } => status(ids, context),
        Verb::Result { ids } => result(ids, context),
        Verb::Cancel { id } => cancel(id, context),
    }
}

fn submit(args: &RequestArgs, context: &mut Context) -> Result<()> {
    let (source, engine, requests) = args.prepared(&Direct::default(), context)?;
    let mut submit = Submit { args, engine, requests, works: Vec::new(), rows: Vec::new() };
    filter::run(&mut submit, source, args.stream_options(), context)
}

struct Submit<'a> {
    args: &'a RequestArgs,
    engine: Engine,
    requests: RequestBuilder,
    /// The prompts, and what is kept of each.
    works: Vec<Work>,
    rows: Vec<Row>,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body)?;
        let (first, model) = (self.works.first().unwrap_or(&work).target.name(), work.target.name());
        if first != model {
            let message = format!("all prompts of a batch must use one model: {first}, not {model}");
            return Err(Error::usage(message).hint("submit the prompts of each model separately").fatal());
        }
        self.engine.note_lowered(&work)?;
        self.engine.check_batch_budget(&work, work.body()?.len())?;
        let (params, prompt) = (work.request.params.clone(), work.prompt.clone());
        let (place, request_hash) = (context.out.place, work.request_hash()?.to_owned());
        self.rows.push(Row { place, request_hash, params, prompt, outcome: None });
        self.works.push(work);
        context.out.defer_item();
        Ok(())
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // An incomplete input is not submitted.
        signals::check()?;
        self.engine.report_lowered(context);
        let Some(first) = self.works.first() else { return Ok(()) };
        let is_paid = first.ready.backend.is_metered();
        let mut batch = self.batch(&context.home)?;
        let client = is_paid.then(|| Client::of(&batch, context)).transpose()?;
        let _lock = lock_file(&batch.path.with_extension("lock"))?;
        if batch.path.exists() {
            let known = Batch::read(batch.path)?;
            if known.job.input_hash != batch.job.input_hash {
                let message = format!("the request id of {} was used for another input", known.job.job_id);
                let error = Error::new(Code::Conflict, message).with("reason", "other_arguments");
                return Err(error.hint("use a new id for a new request").fatal());
            }
            batch = known;
        } else {
            self.create(client.as_ref(), &mut batch).map_err(Error::fatal)?;
        }
        provider::refresh(&mut batch, context).map_err(Error::fatal)?;
        context.out.record(Kind::Item, &batch.job)?;
        context.out.items_succeeded(batch.job.count);
        Ok(())
    }
}

impl Submit<'_> {
    /// The batch of the prompts. Its id is derived from the request id, or from the input.
    fn batch(&mut self, home: &Home) -> Result<Batch> {
        let (Target { endpoint, model }, rows) = (&self.works[0].target, take(&mut self.rows));
        let input_hash = keys::hash(raw(&(&endpoint.name, endpoint.base(), model, &rows))?.get().as_bytes());
        let named = self.args.request_id.as_ref().map(|id| keys::hash(format!("request {id}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let job_id = format!("BAT-{}", &digits[..16]);
        let (endpoint, count, created_at) = (endpoint.name.clone(), rows.len() as u64, clock::now());
        Ok(Batch {
            path: path_of(&job_id, home),
            job: BatchJob { job_id, endpoint, count, created_at, input_hash, ..BatchJob::default() },
            model: model.clone(),
            fail_on: self.engine.fail_on.clone(),
            schema: self.engine.schema.as_ref().map(|schema| schema.text.clone()),
            rows,
        })
    }

    /// Creates the batch at its provider. That of the stub, which has no client, has its answers at once.
    fn create(&mut self, client: Option<&Client>, batch: &mut Batch) -> Result<()> {
        for (number, work) in self.works.iter_mut().enumerate() {
            work.batch = Some(format!("{}#{number}", batch.job.job_id));
            self.engine.journal.record_request(work)?;
        }
        // A signal waits until a batch that is paid for is recorded.
        let _effect = signals::effect();
        let made = client.map_or(Ok(()), |client| client.create(batch, &self.works));
        self.engine.journal.record_batch(&batch.job, made.as_ref().err(), client.is_some())?;
        if client.is_some() {
            return made;
        }
        for (work, row) in self.works.iter_mut().zip(&mut batch.rows) {
            let exchange = work.ready.backend.exchange(&work.request, &[], &mut |_, _| Ok(()));
            row.outcome = Some(self.engine.outcome_of_row(work, exchange)?);
        }
        (batch.job.status, batch.job.done) = (State::Succeeded, batch.job.count);
        batch.save()
    }
}

fn status(ids: &[String], context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let all = if ids.is_empty() { Batch::all(&context.home)? } else { Vec::new() };
    for id in ids.iter().chain(&all) {
        signals::check()?;
        filter::settle(Place::default(), StreamOptions::default(), context, |context| {
            let (mut batch, _lock) = Batch::find(id, &context.home)?;
            provider::refresh(&mut batch, context)?;
            context.out.record(Kind::Item, &batch.job)
        })?;
    }
    Ok(())
}

/// Prints the answers of batches, each in the order of its input, as the messages that a direct run would have printed.
/// A row without a result stays open, because a result that was lost on the way may arrive the next time.
fn result(ids: &[String], context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    for id in ids {
        let (mut batch, _lock) = Batch::find(id, &context.home)?;
        if batch.rows.iter().any(|row| row.outcome.is_none()) {
            Client::of(&batch, context)?.fetch(&mut batch, context)?;
        }
        for Row { place, outcome, .. } in batch.rows {
            signals::check()?;
            filter::settle(place, StreamOptions::default(), context, |context| {
                let missing = || bad_answer("missing", "the provider sent no result for this row");
                let outcome =
                    outcome.ok_or_else(|| missing().hint("ask for the results again, or submit the row again"))?;
                let outcome = outcome.map_err(|error| Error::from_value(&error));
                let message = outcome.or_else(|error| print_cut(&error, context).and(Err(error)))?;
                if let Some(remark) = remark(&message) {
                    context.warn(remark);
                }
                context.out.record(Kind::Message, &message)
            })?;
        }
    }
    Ok(())
}

fn cancel(id: &str, context: &mut Context) -> Result<()> {
    let (mut batch, _lock) = Batch::find(id, &context.home)?;
    let _effect = signals::effect();
    if batch.job.provider_id.is_some() {
        Client::of(&batch, context)?.cancel(&mut batch.job)?;
    } else if !batch.job.is_ended() {
        // The user confirms that the provider does not have the batch, so the same input can be submitted again.
        batch.remove()?;
        batch.job.status = State::Cancelled;
    }
    context.out.answer(&batch.job)
}
