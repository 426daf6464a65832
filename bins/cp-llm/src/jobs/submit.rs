//! `cp-llm batch submit`: prompts become batches of their provider.
//!
//! The id of a batch is derived from its input, so the same input is submitted once, however often the command runs and wherever it was killed: a
//! batch is on disk before the provider is asked to create it.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, ErrorKind, Write as _};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use cp_common::home::{make_directory, write_whole};
use cp_common::keys::{hex, random};
use cp_common::output::Place;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, keys, signals};
use sha2::{Digest as _, Sha256};

use super::client::{BatchClient, BatchProvider};
use super::job::{self, BatchJob, Item, Job};
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
    let source = Source::from_operands(&args.text)?;
    let (engine, requests) = args.prepared(context)?;
    let client = BatchClient::of(engine, &requests)?;
    let provider = client.provider()?;
    let words = args.reader_options(&client.endpoint.name);
    let seed = format!("{}\n{}\n", client.endpoint.name, provider.endpoint().unwrap_or_default());
    let spool = BatchSpool::new(job::directory(&context.home), seed, provider.limits());
    let id = args.request_id.as_deref();
    let mut submit = Submit { client: &client, provider, requests, words, id, spool };
    filter::run(&mut submit, source, args.stream_options, context)
}

struct Submit<'a> {
    client: &'a BatchClient,
    provider: BatchProvider<'a>,
    requests: RequestBuilder,
    /// The options with which the answers are read.
    words: Vec<String>,
    /// The request id.
    id: Option<&'a str>,
    spool: BatchSpool,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body)?;
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
        self.spool.add(&work, &body, context.out.place(), &self.provider)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // An incomplete input is not submitted.
        signals::check()?;
        self.client.engine.report_lowered(context);
        for (number, draft) in std::mem::take(&mut self.spool.drafts).into_iter().enumerate() {
            let mut job = self.save_draft(draft, number, context)?;
            let _held = job.locked()?;
            if job.provider_id.is_none() {
                self.submit(&mut job, context)?;
            }
            let progress = self.provider.progress(&job)?;
            context.out.record(Kind::Item, &BatchJob::of(&job, progress))?;
            context.out.flush()?;
        }
        Ok(())
    }
}

impl Submit<'_> {
    /// Stores a draft as a batch, or finds the batch of the same rows.
    fn save_draft(&self, mut draft: Draft, number: usize, context: &Context) -> Result<Job> {
        let input_hash = draft.finish()?;
        let named = self.id.map(|id| keys::hash(format!("request {id}#{number}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let id = format!("BAT-{}", &digits[..16]);
        let place = job::directory(&context.home);
        let directory = place.join(&id);
        let job = Job {
            id,
            backend: self.client.ready.backend.name().to_owned(),
            endpoint: self.provider.endpoint().map(str::to_owned),
            path: draft.path.clone(),
            provider_id: None,
            input_file: None,
            asked_at: None,
            created_at: clock::now(),
            input_hash: input_hash.clone(),
            count: draft.count,
            words: self.words.clone(),
            ledger: std::path::absolute(&self.client.engine.journal.path)?.into_os_string().into_vec(),
            session: context.session(),
            run: context.options.run.clone(),
            directory: draft.directory.clone(),
        };
        job.save()?;
        if let Some(schema) = &self.client.engine.schema {
            write_whole(&job.file("schema.json"), schema.text.to_string().as_bytes())?;
        }
        let named = std::fs::rename(&job.directory, &directory).and_then(|()| File::open(&place)?.sync_all());
        match named {
            Err(e) if !matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {
                return Err(Error::io("keeping the batch", e).in_file(&directory).fatal());
            }
            _ => {}
        }
        let kept = Job::load(&directory)?;
        if kept.input_hash == input_hash {
            return Ok(kept);
        }
        let given = self.id.unwrap_or(&kept.id);
        Err(Error::new(Code::Conflict, format!("the request id `{given}` was used for another input"))
            .with("reason", "other_arguments")
            .hint("use a new id for a new request")
            .fatal())
    }

    /// Creates the batch at the provider, unless it exists there.
    fn submit(&self, job: &mut Job, context: &Context) -> Result<()> {
        if job.asked_at.is_some() {
            let others: Vec<String> = Job::all(&context.home)?.into_iter().filter_map(|job| job.provider_id).collect();
            job.provider_id = self.provider.find_created(job, &others)?;
            if job.provider_id.is_some() {
                job.save()?;
                return self.client.engine.record_submitted(&job.ledger_facts(), None);
            }
        } else {
            for row in job.items()? {
                let (number, name, item) = row?;
                self.client.engine.record_enqueued(
                    &item.work(number, &self.client.endpoint),
                    &name,
                    &item.request_hash,
                    item.bytes,
                )?;
            }
        }
        // A signal waits until a batch that is paid for is recorded.
        let _effect = signals::effect();
        let made = self.provider.create(job);
        self.client.engine.record_submitted(&job.ledger_facts(), made.as_ref().err())?;
        match made {
            Ok(()) => {
                // The provider has the requests now.
                let _ = std::fs::remove_file(job.file("requests"));
                Ok(())
            }
            Err(error) if job.asked_at.is_some() => Err(error
                .with("batch", job.id.as_str())
                .hint("the provider may have created the batch: submit the same input again to find out")
                .fatal()),
            Err(error) => job.remove().and(Err(error.fatal())),
        }
    }
}

/// The age at which abandoned drafts are removed.
const ABANDONED: Duration = Duration::from_hours(24);

/// The rows of a batch that is not complete.
pub(super) struct Draft {
    /// The directory. It is removed with this value, unless it was renamed.
    pub directory: PathBuf,
    /// The model, if all rows must have the same one.
    model: Option<String>,
    /// The path of a single request.
    pub path: String,
    requests: BufWriter<File>,
    items: BufWriter<File>,
    hash: Sha256,
    pub count: u64,
    bytes: u64,
}

impl Drop for Draft {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// Distributes rows to batches within the limits of the provider.
pub(super) struct BatchSpool {
    place: PathBuf,
    /// The prefix of the hashed input.
    seed: String,
    /// The limits of a batch: requests, bytes, and whether all requests must be to one model.
    limits: (u64, u64, bool),
    pub drafts: Vec<Draft>,
}

impl BatchSpool {
    /// A spool below this directory. Abandoned drafts are removed.
    pub(super) fn new(place: PathBuf, seed: String, limits: (u64, u64, bool)) -> Self {
        for entry in std::fs::read_dir(&place).into_iter().flatten().flatten() {
            let age = entry.metadata().ok().and_then(|meta| meta.modified().ok()?.elapsed().ok());
            if entry.file_name().as_encoded_bytes().starts_with(b".new-") && age.is_some_and(|age| age > ABANDONED) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        Self { place, seed, limits, drafts: Vec::new() }
    }

    /// Adds a row to a draft that has room for it, or to a new one.
    pub(super) fn add(&mut self, work: &Work, body: &[u8], place: Place, provider: &BatchProvider<'_>) -> Result<()> {
        let (rows, bytes, is_of_one_model) = self.limits;
        let model = is_of_one_model.then(|| work.request().model.clone());
        // 256 bytes are enough for the line around the body.
        let fits = |draft: &Draft| {
            draft.model == model && draft.count < rows && draft.bytes.saturating_add(body.len() as u64 + 256) <= bytes
        };
        let at = self.drafts.iter().position(fits).unwrap_or(self.drafts.len());
        if at == self.drafts.len() {
            self.drafts.push(self.draft(model, provider.path(work.request()))?);
        }
        let draft = &mut self.drafts[at];
        let line = provider.line(draft.count, &draft.path, body);
        let mut item = serde_json::to_vec(&Item::of(work, place, work.request_hash(body), body.len() as u64))
            .map_err(|e| failed(e.into()))?;
        item.push(b'\n');
        draft.requests.write_all(&line).and_then(|()| draft.items.write_all(&item)).map_err(failed)?;
        draft.hash.update(&line);
        draft.hash.update(&item);
        draft.count += 1;
        draft.bytes += line.len() as u64;
        Ok(())
    }

    fn draft(&self, model: Option<String>, path: String) -> Result<Draft> {
        let directory = self.place.join(format!(".new-{}", hex(&random::<8>()?)));
        make_directory(&directory)?;
        let create = |name: &str| {
            let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(directory.join(name));
            file.map(BufWriter::new).map_err(failed)
        };
        let (requests, items) = (create("requests")?, create("items.jsonl")?);
        let hash = Sha256::new_with_prefix(&self.seed);
        Ok(Draft { directory, model, path, requests, items, hash, count: 0, bytes: 0 })
    }
}

impl Draft {
    /// Syncs the rows to disk and returns their hash.
    pub(super) fn finish(&mut self) -> Result<String> {
        for file in [&mut self.requests, &mut self.items] {
            file.flush().and_then(|()| file.get_ref().sync_data()).map_err(failed)?;
        }
        Ok(format!("sha256:{}", hex(&std::mem::take(&mut self.hash).finalize())))
    }
}

fn failed(e: std::io::Error) -> Error {
    Error::io("keeping the rows of the batch", e).fatal()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cp_common::wire::Prompt;

    use super::*;
    use crate::backend::endpoint::{ApiName, Endpoint};

    #[test]
    fn spool_divides_rows_and_removes_drafts() {
        let place = tempfile::tempdir().unwrap();
        let stub = Arc::new(Endpoint::of("stub", ApiName::Stub));
        let prompt = |model: &str| Prompt { model: Some(model.to_owned()), ..Prompt::of_text("hi") };
        let counts = |limits, models: &[&str]| {
            let mut spool = BatchSpool::new(place.path().to_owned(), String::new(), limits);
            for model in models {
                let item =
                    Item { index: None, line: None, request_hash: String::new(), bytes: 0, prompt: prompt(model) };
                spool.add(&item.work(0, &stub), b"{}", Place::default(), &BatchProvider(None)).unwrap();
            }
            spool.drafts.iter().map(|draft| draft.count).collect::<Vec<_>>()
        };
        assert_eq!(counts((2, u64::MAX, false), &["a", "b", "a", "b", "a"]), [2, 2, 1]);
        assert_eq!(counts((9, 600, false), &["a"; 30]).iter().sum::<u64>(), 30);
        assert!(counts((9, 600, false), &["a"; 30]).len() > 3);
        assert_eq!(counts((9, u64::MAX, true), &["a", "b", "a"]), [2, 1]);
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
    }
}
