//! `cp-llm batch submit`: prompts become a batch of their provider.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and
//! wherever it was killed: a batch is on disk before the provider is asked to create it. Its requests are only in
//! memory, because the same input has them again.

use cp_common::keys::hex;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter};
use cp_common::wire::Prompt;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};
use sha2::{Digest as _, Sha256};

use super::provider::Client;
use super::state::{Batch, BatchJob, Row, Terms, line_of};
use crate::send::{RequestArgs, RequestBuilder};
use crate::wire_api::Request;

/// The entry of this verb in `reference`.
pub(super) const DOC: VerbDoc = VerbDoc {
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
};

/// Submit prompts as a batch that their provider answers later
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct Args {
    #[command(flatten)]
    request: RequestArgs,
}

pub(super) fn run(Args { request: args }: &Args, context: &mut Context) -> Result<()> {
    let source = args.source(None)?;
    let (engine, mut requests) = args.prepared(None, context)?;
    requests.table = args.table()?;
    let client = Client::of(engine, requests.endpoint()?)?;
    let mut submit = Submit { args, client: &client, requests, model: None, encoded: Vec::new(), rows: Vec::new() };
    filter::run(&mut submit, source, args.stream_options(), context)
}

/// The rows of a batch.
struct Submit<'a> {
    args: &'a RequestArgs,
    client: &'a Client,
    requests: RequestBuilder,
    /// The model of all rows.
    model: Option<String>,
    /// The requests as the provider takes them, and the lines of the state file.
    encoded: Vec<Vec<u8>>,
    rows: Vec<u8>,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let place = context.out.place;
        let work = self.requests.work(&body, place)?;
        let (client, model) = (self.client, work.target.name());
        let is_foreign = work.target.endpoint.name != client.endpoint.name;
        let none = || if is_foreign { client.endpoint.name.clone() } else { model.clone() };
        let first = self.model.get_or_insert_with(none);
        if model != *first {
            let message = format!("all prompts of a batch must use one model: {model} is not {first}");
            return Err(Error::usage(message).hint("submit the prompts of each model separately").fatal());
        }
        client.engine.note_lowered(&work)?;
        let body = client.engine.body(&work)?;
        client.engine.check_batch_budget(&work, body.len())?;
        self.encoded.push(client.line(self.encoded.len() as u64, &body));
        let (request_hash, bytes) = (work.request_hash(&body), body.len() as u64);
        let Request { system, messages, tools, model, .. } = work.request;
        let system = Some(system).filter(|system| !system.is_empty());
        let prompt = Prompt { system, messages, tools, model: Some(model), ..work.prompt };
        self.rows.extend(line_of(&Row { index: place.index, line: place.line, request_hash, bytes, prompt })?);
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
        context.out.record(Kind::Item, &self.client.progress(&batch)?.job)?;
        self.encoded.iter().for_each(|_| context.out.item_succeeded());
        Ok(())
    }
}

impl Submit<'_> {
    /// Stores the batch, or finds the batch of the same rows. It is locked.
    fn store(&self, context: &Context) -> Result<Batch> {
        let Client { engine, endpoint, .. } = self.client;
        let base = self.client.base();
        let seed = format!("{}\n{}\n", endpoint.name, base.unwrap_or_default());
        let hash = Sha256::new_with_prefix(seed).chain_update(self.encoded.concat()).chain_update(&self.rows);
        let input_hash = format!("sha256:{}", hex(&hash.finalize()));
        let given = self.args.request_id.as_deref();
        let named = given.map(|id| keys::hash(format!("request {id}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let id = format!("BAT-{}", &digits[..16]);
        let job = BatchJob {
            backend: self.client.ready.backend.name().to_owned(),
            endpoint: base.map(str::to_owned),
            count: self.encoded.len() as u64,
            created_at: clock::now(),
            input_hash: input_hash.clone(),
            job_id: id.clone(),
            ..BatchJob::default()
        };
        let terms = Terms {
            endpoint: endpoint.name.clone(),
            fail_on: engine.fail_on.clone(),
            stub_script: self.args.stub_script.as_ref().map(std::path::absolute).transpose()?,
            schema: engine.schema.as_ref().map(|schema| schema.text.clone()),
        };
        let batch = Batch::locked(&context.home, &id, Some((job, terms, &self.rows)))?;
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
        for row in batch.rows() {
            let (number, row, _) = row?;
            let work = row.work(number, endpoint);
            engine.record_enqueued(&work, &batch.name_of(number), &row.request_hash, row.bytes)?;
        }
        // A signal waits until a batch that is paid for is recorded.
        let _effect = signals::effect();
        let (made, is_certain) = self.client.create(batch, &self.encoded);
        engine.record_submitted(&batch.job, made.as_ref().err())?;
        made.or_else(|error| {
            if is_certain {
                return batch.remove().and(Err(error.fatal()));
            }
            Err(error
                .with("batch", batch.job.job_id.as_str())
                .hint("the provider may have created the batch: submit the same input again to find out")
                .fatal())
        })
    }
}
