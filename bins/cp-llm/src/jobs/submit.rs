//! `cp-llm batch submit`: prompts become batches of their provider.
//!
//! A batch's id is made from its input, so that the same input is submitted once, however often this is run and wherever it was killed:
//! what is about to be asked for is on disk before the provider is asked.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStringExt as _;

use cp_common::home::write_whole;
use cp_common::keys;
use cp_common::program::{Class, Input, VerbDoc};
use cp_common::stream::filter::{self, Body, Filter, Source};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, clock, signals};

use super::asker::Asker;
use super::job::{self, Job};
use super::provider::Provider;
use super::record::BatchJob;
use super::spool::{Part, Spool};
use crate::send::{self, RequestBuilder};

/// What the reference says of this verb.
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
    let asker = Asker::of(engine, &requests)?;
    let provider = asker.provider()?;
    let words = args.words_for_answers(&asker.endpoint.name);
    let seed = format!("{}\n{}\n", asker.endpoint.name, provider.endpoint().unwrap_or_default());
    let spool = Spool::new(job::directory(&context.home), seed, provider.limits());
    let id = args.request_id.as_deref();
    let mut submit = Submit { asker: &asker, provider, requests, words, id, spool };
    filter::run(&mut submit, source, args.stream_options, context)
}

struct Submit<'a> {
    asker: &'a Asker,
    provider: Provider<'a>,
    requests: RequestBuilder,
    /// The options with which the answers are read.
    words: Vec<String>,
    /// The request id.
    id: Option<&'a str>,
    spool: Spool,
}

impl Filter for Submit<'_> {
    fn accepts(&self) -> &'static [Kind] {
        &[Kind::Prompt]
    }

    fn item(&mut self, body: Body<'_>, context: &mut Context) -> Result<()> {
        let work = self.requests.work(&body)?;
        if work.targets().len() > 1 {
            return Err(Error::usage("a batch asks one model: it cannot fall back to another").fatal());
        }
        let here = &self.asker.endpoint.name;
        if work.target().endpoint.name != *here {
            let message = format!("a batch goes to one endpoint: {} is not of {here}", work.target().name());
            return Err(Error::usage(message).hint("submit the prompts of each endpoint by themselves").fatal());
        }
        let engine = &self.asker.engine;
        engine.note_lowered(&work)?;
        let body = engine.body(&work)?;
        engine.afford(&work, body.len())?;
        self.spool.add(&work, &body, context.out.place(), &self.provider)
    }

    fn finish(&mut self, context: &mut Context) -> Result<()> {
        // Nothing is submitted of an input that did not come to its end.
        signals::check()?;
        self.asker.engine.report_lowered(context);
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
    /// The batch that these rows are: a new one, unless they were submitted before.
    fn kept(&self, mut part: Part, number: usize, context: &Context) -> Result<Job> {
        let input_hash = part.finish()?;
        let named = self.id.map(|id| keys::hash(format!("request {id}#{number}").as_bytes()));
        let digits = named.as_ref().unwrap_or(&input_hash).trim_start_matches("sha256:");
        let id = format!("BAT-{}", &digits[..16]);
        let place = job::directory(&context.home);
        let directory = place.join(&id);
        let job = Job {
            id,
            backend: self.asker.ready.backend.name().to_owned(),
            endpoint: self.provider.endpoint().map(str::to_owned),
            path: part.path.clone(),
            provider_id: None,
            input_file: None,
            asked_at: None,
            created_at: clock::now(),
            input_hash: input_hash.clone(),
            count: part.count,
            words: self.words.clone(),
            ledger: std::path::absolute(&self.asker.engine.journal.path)?.into_os_string().into_vec(),
            session: context.session(),
            run: context.options.run.clone(),
            directory: part.directory.clone(),
        };
        job.save()?;
        if let Some(schema) = &self.asker.engine.schema {
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

    /// Has the provider make the batch, unless it already has.
    fn submitted(&self, job: &mut Job, context: &Context) -> Result<()> {
        if job.asked_at.is_some() {
            let others: Vec<String> = Job::all(&context.home)?.into_iter().filter_map(|job| job.provider_id).collect();
            job.provider_id = self.provider.made(job, &others)?;
            if job.provider_id.is_some() {
                job.save()?;
                return self.asker.engine.submitted(&job.facts(), None);
            }
        } else {
            for row in job.items()? {
                let (number, name, item) = row?;
                self.asker.engine.enqueued(
                    &item.work(number, &self.asker.endpoint),
                    &name,
                    &item.request_hash,
                    item.bytes,
                )?;
            }
        }
        // What is paid for is recorded.
        let _effect = signals::effect();
        let made = self.provider.make(job);
        self.asker.engine.submitted(&job.facts(), made.as_ref().err())?;
        match made {
            Ok(()) => {
                // The provider has them now.
                let _ = std::fs::remove_file(job.file("requests"));
                Ok(())
            }
            Err(error) if job.asked_at.is_some() => Err(error
                .with("batch", job.id.as_str())
                .hint("the provider may have made the batch: submit the same again to find out")
                .fatal()),
            Err(error) => job.remove().and(Err(error.fatal())),
        }
    }
}
