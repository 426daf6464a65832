//! `cp-llm batch submit`: prompts become batches of their provider.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and
//! wherever it was killed: a batch is on disk before the provider is asked to create it. Its requests are only in
//! memory, because the same input has them again.

use cp_common::keys::hex;
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};
use sha2::{Digest as _, Sha256};

use super::provider::{Client, Protocol};
use super::state::{Batch, BatchJob, Line, Row, State, Terms, path};
use crate::engine::Work;
use crate::send::{RequestArgs, RequestBuilder};

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
    let mut submit = Submit { args, client: &client, requests, drafts: Vec::new() };
    filter::run(&mut submit, source, args.stream_options(), context)
}

struct Submit<'a> {
    args: &'a RequestArgs,
    client: &'a Client,
    requests: RequestBuilder,
    drafts: Vec<Draft>,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body, context.out.place)?;
        let Client { engine, endpoint, protocol, .. } = self.client;
        if work.target.endpoint.name != endpoint.name {
            let (here, other) = (&endpoint.name, work.target.name());
            let message = format!("all prompts of a batch must use one endpoint: {other} does not use {here}");
            return Err(Error::usage(message).hint("submit the prompts of each endpoint separately").fatal());
        }
        engine.note_lowered(&work)?;
        let body = engine.body(&work)?;
        engine.check_batch_budget(&work, body.len())?;
        let path = self.client.server().map(|server| server.api.path(&work.request)).unwrap_or_default();
        add(&mut self.drafts, protocol, path, &work, &body, context.out.place)?;
        context.out.defer_item();
        Ok(())
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // An incomplete input is not submitted.
        signals::check()?;
        self.client.engine.report_lowered(context);
        for (number, draft) in self.drafts.iter_mut().enumerate() {
            draft.requests.extend(self.client.protocol.frame[1].bytes());
            let mut batch = store(draft, number, self.args, self.client, context)?;
            if batch.job.provider_id.is_none() {
                submit(&mut batch, draft, self.client)?;
            }
            context.out.record(Kind::Item, &batch.record(self.client.progress(&batch)?))?;
            (0..draft.count).for_each(|_| context.out.item_succeeded());
            context.out.flush()?;
        }
        Ok(())
    }
}

/// Stores a draft as a batch, or finds the batch of the same rows. The batch is locked.
fn store(draft: &Draft, number: usize, args: &RequestArgs, client: &Client, context: &Context) -> Result<Batch> {
    let Client { engine, endpoint, .. } = client;
    let seed = format!("{}\n{}\n", endpoint.name, client.base().unwrap_or_default());
    let hash = Sha256::new_with_prefix(seed).chain_update(&draft.requests).chain_update(&draft.rows);
    let input_hash = format!("sha256:{}", hex(&hash.finalize()));
    let given = args.request_id.as_deref();
    let named = given.map(|id| keys::hash(format!("request {id}#{number}").as_bytes()));
    let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
    let id = format!("BAT-{}", &digits[..16]);
    let job = BatchJob {
        status: State::Pending,
        provider_id: None,
        backend: client.ready.backend.name().to_owned(),
        endpoint: client.base().map(str::to_owned),
        count: draft.count,
        done: 0,
        created_at: clock::now(),
        input_hash: input_hash.clone(),
        file: path(&context.home, &id).display().to_string(),
        failure: None,
        untrusted: Vec::new(),
        job_id: id.clone(),
    };
    let terms = Terms {
        endpoint: endpoint.name.clone(),
        fail_on: engine.fail_on.clone(),
        stub_script: args.stub_script.as_ref().map(std::path::absolute).transpose()?,
        schema: engine.schema.as_ref().map(|schema| schema.text.clone()),
    };
    let batch = Batch::locked(&context.home, &id, Some((job, terms, &draft.rows)))?;
    if batch.job.input_hash == input_hash {
        return Ok(batch);
    }
    let message = format!("the request id `{}` was used for another input", given.unwrap_or(&id));
    let error = Error::new(Code::Conflict, message).with("reason", "other_arguments");
    Err(error.hint("use a new id for a new request").fatal())
}

/// Creates the batch at the provider, unless it may exist there.
fn submit(batch: &mut Batch, draft: &Draft, client: &Client) -> Result<()> {
    if batch.was_asked {
        return Err(client.interrupted(batch));
    }
    for row in batch.rows()? {
        let (number, name, row) = row?;
        let work = row.work(number, &client.endpoint);
        client.engine.record_enqueued(&work, &name, &row.request_hash, row.bytes)?;
    }
    // A signal waits until a batch that is paid for is recorded.
    let _effect = signals::effect();
    let made = client.create(batch, &draft.path, &draft.requests);
    client.engine.record_submitted(&batch.job, made.as_ref().err())?;
    match made {
        Err(error) if batch.was_asked => Err(error
            .with("batch", batch.job.job_id.as_str())
            .hint("the provider may have created the batch: submit the same input again to find out")
            .fatal()),
        Err(error) => batch.remove().and(Err(error.fatal())),
        Ok(()) => Ok(()),
    }
}

/// The rows of one batch.
struct Draft {
    /// The model, if all rows must have the same one.
    model: Option<String>,
    /// The path of a single request.
    path: String,
    requests: Vec<u8>,
    /// The lines of the state file.
    rows: Vec<u8>,
    count: u64,
}

/// Adds a row to a draft that has room for it within the limits of the provider, or to a new one.
fn add(
    drafts: &mut Vec<Draft>,
    protocol: &Protocol,
    path: String,
    work: &Work,
    body: &[u8],
    place: Place,
) -> Result<()> {
    let model = protocol.has_file.then(|| work.request.model.clone());
    // 256 bytes are enough for the line around the body.
    let fits = |draft: &Draft| {
        let length = draft.requests.len() + body.len() + 256;
        draft.model == model && draft.count < protocol.rows && length <= protocol.bytes
    };
    let at = drafts.iter().position(fits).unwrap_or(drafts.len());
    if at == drafts.len() {
        drafts.push(Draft { model, path, requests: protocol.frame[0].into(), rows: Vec::new(), count: 0 });
    }
    let draft = &mut drafts[at];
    draft.requests.extend(protocol.line(draft.count, &draft.path, body));
    draft.rows.extend(Line::Row(Box::new(Row::of(work, place, body))).encoded()?);
    draft.count += 1;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cp_common::wire::Prompt;

    use super::*;
    use crate::backend::endpoint::{ApiName, Endpoint};

    #[test]
    fn drafts_divide_rows_by_limits_and_model() {
        let stub = Arc::new(Endpoint::of("stub", ApiName::Stub));
        let prompt = |model: &str| Prompt { model: Some(model.to_owned()), ..Prompt::of_text("hi") };
        let counts = |rows, bytes, has_file, models: &[&str]| {
            let protocol = Protocol { rows, bytes, has_file, frame: [""; 2], path: "", console: "" };
            let mut drafts = Vec::new();
            for model in models {
                let row = Row { index: None, line: None, request_hash: String::new(), bytes: 0, prompt: prompt(model) };
                let work = row.work(0, &stub);
                add(&mut drafts, &protocol, String::new(), &work, b"{}", Place::default()).unwrap();
            }
            drafts.iter().map(|draft| draft.count).collect::<Vec<_>>()
        };
        assert_eq!(counts(2, usize::MAX, false, &["a", "b", "a", "b", "a"]), [2, 2, 1]);
        assert_eq!(counts(9, 600, false, &["a"; 30]).iter().sum::<u64>(), 30);
        assert!(counts(9, 600, false, &["a"; 30]).len() > 3);
        assert_eq!(counts(9, usize::MAX, true, &["a", "b", "a"]), [2, 1]);
    }
}
