//! `cp-llm batch submit`: prompts become jobs of their provider.
//!
//! A job's id is made from its input, so that the same input is submitted once, however often this is run and wherever it was killed:
//! what is about to be asked for is on disk before the provider is asked.

use std::fs::File;
use std::io::ErrorKind;

use cp_common::home::write_whole;
use cp_common::output::Severity;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, signals};
use serde_json::Value;

use super::job::{self, Item, Job, row_name};
use super::provider::{Made, Provider};
use super::record::BatchJob;
use super::spool::{Part, Spool};
use crate::digest;
use crate::engine::Engine;
use crate::engine::batched::Row;
use crate::send::{self, RequestBuilder};

/// What the reference says of this verb.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch submit",
    class: Class::Governed,
    output: "batch_job",
    also: &["summary"],
    examples: &[
        "cp-llm batch submit --backend stub -- hello",
        "echo '{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}' | cp-llm batch submit --backend stub --rows",
    ],
    input: &[Input::Text, Input::Records, Input::Rows],
    events: &["llm.request", "llm.batch"],
    ..VerbDoc::EMPTY
};

/// Submit prompts as a job that their provider answers later
#[derive(clap::Args)]
#[group(skip)]
#[command(mut_args(|option| if send::is_direct(&option) { option.hide(true) } else { option }))]
pub(super) struct Args {
    #[command(flatten)]
    send: send::Args,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let args = &args.send;
    args.refuse_direct()?;
    let source = Source::from_operands(&args.text)?;
    let (engine, requests) = args.prepared(context)?;
    let provider = Provider::of(engine.backend.as_ref())?;
    let words = args.words_for_answers(engine.backend.name());
    let seed = format!("{}\n{}\n", provider.endpoint().unwrap_or_default(), words.join("\n"));
    let spool = Spool::new(job::directory(&context.home), seed, provider.most());
    let mut submit =
        Submit { engine: &engine, provider, requests, words, request_id: args.request_id.as_deref(), spool };
    filter::run(&mut submit, source, args.stream_options, context)
}

struct Submit<'a> {
    engine: &'a Engine,
    provider: Provider<'a>,
    requests: RequestBuilder,
    words: Vec<String>,
    request_id: Option<&'a str>,
    spool: Spool,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body)?;
        if work.models().len() > 1 {
            return Err(Error::usage("a batch asks one model: it cannot fall back to another").fatal());
        }
        self.engine.note_lowered(&work)?;
        let body = self.engine.body(&work)?;
        self.engine.estimate(&work, body.len())?;
        self.spool.add(&work, &body, context.out.place(), self.provider)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // Nothing is submitted of an input that did not come to its end.
        signals::check()?;
        if let Some(lowered) = self.engine.lowered() {
            context.warn(&lowered);
            context.out.notice("blocks_lowered", Severity::Warning, lowered);
        }
        for (number, part) in std::mem::take(&mut self.spool.parts).into_iter().enumerate() {
            let mut job = self.kept(part, number, context)?;
            let _held = job.locked()?;
            if job.provider_id.is_none() {
                self.submitted(&mut job, context)?;
            }
            let progress = self.provider.progress(&job)?;
            context.out.record(Kind::Item, &BatchJob::of(&job, progress))?;
            context.out.flush()?;
        }
        Ok(())
    }
}

impl Submit<'_> {
    /// The job that these rows are: a new one, unless they were submitted before.
    fn kept(&self, mut part: Part, number: usize, context: &Context) -> Result<Job> {
        let input_hash = part.finish()?;
        let id = match (self.request_id, number) {
            (None, _) => input_hash.clone(),
            (Some(id), 0) => digest::of(format!("request {id}").as_bytes()),
            (Some(id), _) => digest::of(format!("request {id}#{number}").as_bytes()),
        };
        let id = format!("BAT-{}", &id["sha256:".len()..][..16]);
        let place = job::directory(&context.home);
        let job = Job {
            directory: part.directory.clone(),
            backend: self.engine.backend.name().to_owned(),
            endpoint: self.provider.endpoint().map(str::to_owned),
            path: part.path.clone(),
            provider_id: None,
            input_file: None,
            asked_at: None,
            created_at: clock::now(),
            input_hash: input_hash.clone(),
            count: part.count,
            words: self.words.clone(),
            ledger: std::path::absolute(self.engine.journal.path())?,
            session: context.session(),
            run: context.options.run.clone(),
            id,
        };
        job.save()?;
        if let Some(schema) = &self.engine.schema {
            write_whole(&job.file("schema.json"), schema.text.to_string().as_bytes())?;
        }
        let directory = place.join(&job.id);
        match std::fs::rename(&job.directory, &directory) {
            Ok(()) => File::open(&place).and_then(|place| place.sync_all()).map_err(|e| Error::io("keeping the batch", e))?,
            Err(e) if matches!(e.kind(), ErrorKind::DirectoryNotEmpty | ErrorKind::AlreadyExists) => {}
            Err(e) => return Err(Error::io("keeping the batch", e).in_file(&directory).fatal()),
        }
        let kept = Job::load(&directory)?;
        if kept.input_hash == input_hash {
            return Ok(kept);
        }
        let given = self.request_id.unwrap_or(&kept.id);
        Err(Error::new(Code::Conflict, format!("the request id `{given}` was used for another input"))
            .with("reason", "other_arguments")
            .hint("use a new id for a new request")
            .fatal())
    }

    /// Has the provider make the job, unless it already has.
    fn submitted(&self, job: &mut Job, context: &Context) -> Result<()> {
        if job.asked_at.is_some() {
            let others = Job::all(&context.home)?.into_iter().filter_map(|job| job.provider_id);
            match self.provider.made(job, &others.collect::<Vec<_>>())? {
                Made::Yes(id) => {
                    job.provider_id = Some(id);
                    job.save()?;
                    return self.engine.submitted(&job.facts(), None);
                }
                Made::No => {}
                Made::Perhaps(candidates) => return Err(unresolved(job, candidates)),
            }
        } else {
            self.enqueue(job)?;
        }
        // What is paid for is recorded.
        let _effect = signals::effect();
        let made = self.provider.make(job);
        self.engine.submitted(&job.facts(), made.as_ref().err())?;
        match made {
            Ok(()) => {
                // The provider has them now.
                let _ = std::fs::remove_file(job.file("requests"));
                Ok(())
            }
            Err(error) if job.asked_at.is_some() => Err(error
                .with("batch", job.id.as_str())
                .hint("whether the provider made the batch is not known: submit the same again, and it is found out")
                .fatal()),
            Err(error) => {
                job.remove()?;
                Err(error.fatal())
            }
        }
    }

    /// Puts the requests on the ledger.
    fn enqueue(&self, job: &Job) -> Result<()> {
        for (number, item) in job.items()?.enumerate() {
            let item: Item = item?;
            let (number, request_hash, bytes) = (number as u64, item.request_hash.clone(), item.bytes);
            let row = Row { name: &row_name(&job.id, number), request_hash: &request_hash, bytes };
            self.engine.enqueued(&item.work(number), &row)?;
        }
        Ok(())
    }
}

/// A person must say which batch of the provider's it is, if it is one.
fn unresolved(job: &Job, candidates: Vec<Value>) -> Error {
    let id = |one: &Value| one.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
    let first = candidates.first().map(id).unwrap_or_default();
    Error::new(Code::HumanRequired, format!("the submit of {} was cut off, and the provider may have made it", job.id))
        .with("action", "resolve_unfinished_batch")
        .with("resume", format!("cp-llm batch fetch {} --as {first}", job.id))
        .with("batch", job.id.as_str())
        .with("candidates", candidates)
        .with("_untrusted", vec!["/candidates"])
        .hint(format!(
            "look at the candidates: if one is it, fetch it with --as ID; if none is, `cp-llm batch cancel {}` and submit again",
            job.id
        ))
        .fatal()
}

