//! `cp-llm batch submit`: prompts become batches of their provider.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and wherever it was killed: a
//! batch is on disk before the provider is asked to create it. Its requests are only in memory, because the same input has them again.

use std::os::unix::ffi::OsStringExt as _;

use cp_common::keys::hex;
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};
use sha2::{Digest as _, Sha256};

use super::provider::{BatchProvider, Client};
use super::state::{Batch, BatchJob, Item, Job, Line};
use crate::engine::Work;
use crate::send::{self, RequestBuilder};

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
#[command(mut_args(|option| if send::is_direct(&option) { option.hide(true) } else { option }))]
pub(super) struct Args {
    #[command(flatten)]
    send: send::Args,
}

pub(super) fn run(Args { send: args }: &Args, context: &mut Context) -> Result<()> {
    send::refuse_direct()?;
    let source = args.source()?;
    let (engine, mut requests) = args.prepared(context)?;
    requests.table = args.table()?;
    let client = Client::of(engine, requests.endpoint()?)?;
    let provider = client.provider()?;
    let seed = format!("{}\n{}\n", client.endpoint.name, provider.endpoint().unwrap_or_default());
    let drafts = Drafts { hash: Sha256::new_with_prefix(seed), limits: provider.limits(), all: Vec::new() };
    let mut submit = Submit { args, client: &client, provider, requests, drafts };
    filter::run(&mut submit, source, args.stream_options(), context)
}

struct Submit<'a> {
    args: &'a send::Args,
    client: &'a Client,
    provider: BatchProvider<'a>,
    requests: RequestBuilder,
    drafts: Drafts,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body, context.out.place())?;
        if work.targets().len() > 1 {
            return Err(Error::usage("a batch uses one model: fallback models are not supported").fatal());
        }
        let here = &self.client.endpoint.name;
        if work.target().endpoint.name != *here {
            let message =
                format!("all prompts of a batch must use one endpoint: {} does not use {here}", work.target().name());
            return Err(Error::usage(message).hint("submit the prompts of each endpoint separately").fatal());
        }
        let engine = &self.client.engine;
        engine.note_lowered(&work)?;
        let body = engine.body(&work)?;
        engine.check_batch_budget(&work, body.len())?;
        self.drafts.add(&work, &body, context.out.place(), &self.provider)?;
        context.out.defer_item();
        Ok(())
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // An incomplete input is not submitted.
        signals::check()?;
        self.client.engine.report_lowered(context);
        for (number, draft) in self.drafts.all.iter().enumerate() {
            let mut batch = self.store(draft, number, context)?;
            if batch.provider_id.is_none() {
                self.submit(&mut batch, draft)?;
            }
            let progress = self.provider.progress(&batch)?;
            context.out.record(Kind::Item, &BatchJob::of(&batch, progress))?;
            (0..draft.count).for_each(|_| context.out.item_succeeded());
            context.out.flush()?;
        }
        Ok(())
    }
}

impl Submit<'_> {
    /// Stores a draft as a batch, or finds the batch of the same rows. The batch is locked.
    fn store(&self, draft: &Draft, number: usize, context: &Context) -> Result<Batch> {
        let input_hash = format!("sha256:{}", hex(&draft.hash.clone().finalize()));
        let given = self.args.request_id.as_deref();
        let named = given.map(|id| keys::hash(format!("request {id}#{number}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let id = format!("BAT-{}", &digits[..16]);
        let vacant = match Batch::lock(&context.home, &id)? {
            Ok(kept) if kept.job.input_hash == input_hash => return Ok(kept),
            Ok(_) => {
                let given = given.unwrap_or(&id);
                return Err(Error::new(Code::Conflict, format!("the request id `{given}` was used for another input"))
                    .with("reason", "other_arguments")
                    .hint("use a new id for a new request")
                    .fatal());
            }
            Err(vacant) => vacant,
        };
        let engine = &self.client.engine;
        let job = Job {
            id,
            backend: self.client.ready.backend.name().to_owned(),
            endpoint: self.client.endpoint.name.clone(),
            server: self.provider.endpoint().map(str::to_owned),
            created_at: clock::now(),
            input_hash,
            count: draft.count,
            fail_on: engine.fail_on.clone(),
            stub_script: self.args.stub_script.as_ref().map(std::path::absolute).transpose()?,
            schema: engine.schema.as_ref().map(|schema| schema.text.clone()),
            ledger: std::path::absolute(&engine.journal.path)?.into_os_string().into_vec(),
            session: context.session(),
            run: context.options.run.clone(),
        };
        vacant.fill(job, &draft.items)
    }

    /// Creates the batch at the provider, unless it exists there.
    fn submit(&self, batch: &mut Batch, draft: &Draft) -> Result<()> {
        if batch.was_asked {
            return Err(self.provider.interrupted(&batch.job));
        }
        for row in batch.items()? {
            let (number, name, item) = row?;
            self.client.engine.record_enqueued(
                &item.work(number, &self.client.endpoint),
                &name,
                &item.request_hash,
                item.bytes,
            )?;
        }
        // A signal waits until a batch that is paid for is recorded.
        let _effect = signals::effect();
        let made = self.provider.create(batch, &draft.path, &draft.requests);
        self.client.engine.record_submitted(&batch.ledger_facts(), made.as_ref().err())?;
        match made {
            Ok(()) => Ok(()),
            Err(error) if batch.was_asked => Err(error
                .with("batch", batch.job.id.as_str())
                .hint("the provider may have created the batch: submit the same input again to find out")
                .fatal()),
            Err(error) => batch.remove().and(Err(error.fatal())),
        }
    }
}

/// The rows of one batch.
struct Draft {
    /// The model, if all rows must have the same one.
    model: Option<String>,
    /// The path of a single request.
    path: String,
    requests: Vec<u8>,
    items: Vec<u8>,
    hash: Sha256,
    count: u64,
}

/// Distributes rows to batches within the limits of the provider.
struct Drafts {
    /// The hash of the endpoint, with which the hash of each input begins.
    hash: Sha256,
    /// The limits of a batch: requests, bytes, and whether all requests must be to one model.
    limits: (u64, u64, bool),
    all: Vec<Draft>,
}

impl Drafts {
    /// Adds a row to a draft that has room for it, or to a new one.
    fn add(&mut self, work: &Work, body: &[u8], place: Place, provider: &BatchProvider<'_>) -> Result<()> {
        let (rows, bytes, is_of_one_model) = self.limits;
        let model = is_of_one_model.then(|| work.request().model.clone());
        // 256 bytes are enough for the line around the body.
        let fits = |draft: &Draft| {
            let length = (draft.requests.len() + body.len() + 256) as u64;
            draft.model == model && draft.count < rows && length <= bytes
        };
        let at = self.all.iter().position(fits).unwrap_or(self.all.len());
        if at == self.all.len() {
            let (path, hash) = (provider.path(work.request()), self.hash.clone());
            self.all.push(Draft { model, path, requests: Vec::new(), items: Vec::new(), hash, count: 0 });
        }
        let draft = &mut self.all[at];
        let line = provider.line(draft.count, &draft.path, body);
        let item = Item::of(work, place, work.request_hash(body), body.len() as u64);
        let item = Line::Item(Box::new(item)).encoded()?;
        for bytes in [&line, &item] {
            draft.hash.update(bytes);
        }
        draft.requests.extend(line);
        draft.items.extend(item);
        draft.count += 1;
        Ok(())
    }
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
        let counts = |limits, models: &[&str]| {
            let mut drafts = Drafts { hash: Sha256::new(), limits, all: Vec::new() };
            for model in models {
                let item =
                    Item { index: None, line: None, request_hash: String::new(), bytes: 0, prompt: prompt(model) };
                drafts.add(&item.work(0, &stub), b"{}", Place::default(), &BatchProvider(None)).unwrap();
            }
            drafts.all.iter().map(|draft| draft.count).collect::<Vec<_>>()
        };
        assert_eq!(counts((2, u64::MAX, false), &["a", "b", "a", "b", "a"]), [2, 2, 1]);
        assert_eq!(counts((9, 600, false), &["a"; 30]).iter().sum::<u64>(), 30);
        assert!(counts((9, 600, false), &["a"; 30]).len() > 3);
        assert_eq!(counts((9, u64::MAX, true), &["a", "b", "a"]), [2, 1]);
    }
}
