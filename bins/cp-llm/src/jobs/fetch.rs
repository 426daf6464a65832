//! `cp-llm batch fetch`: the answers of jobs, as the messages that a direct run would have printed.
//!
//! Each row is settled once: its outcome is on the ledger and in `answers.jsonl` before it is printed, and is printed from there again.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Message;
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, signals};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::job::{Item, Job, row_name};
use super::poll::unsubmitted;
use super::provider::{Provider, checked_id};
use super::results::Results;
use crate::engine::Engine;
use crate::engine::batched::Row;

/// What the reference says of this verb.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch fetch",
    class: Class::Governed,
    output: "message",
    also: &["summary"],
    examples: &["cp-llm batch submit --backend stub -- hello >job && cp-llm batch fetch \"$(jq -r .data.id job)\""],
    events: &["llm.response", "llm.batch"],
    ..VerbDoc::EMPTY
};

/// Print the answers of jobs that have ended
#[derive(clap::Args)]
pub(super) struct Args {
    /// The provider's id of a job whose submit was cut off
    #[arg(long = "as", value_name = "ID")]
    made: Option<String>,
    /// The jobs, by their ids or what begins them
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

/// What came of a row.
#[derive(Serialize, Deserialize)]
enum Outcome {
    #[serde(rename = "message")]
    Message(Box<Message>),
    #[serde(rename = "error")]
    Error(Value),
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    context.out.filtering();
    if args.ids.len() > 1 {
        context.out.streaming()?;
    }
    for id in &args.ids {
        let mut job = Job::find(&context.home, id)?;
        let _held = job.locked()?;
        match &args.made {
            Some(_) if args.ids.len() > 1 => return Err(Error::usage("--as is about one job")),
            Some(_) if job.provider_id.is_some() => {
                return Err(Error::usage(format!("the provider's id of {} is known: leave out --as", job.id)));
            }
            Some(made) => adopt(&mut job, made, context)?,
            None if job.provider_id.is_none() => return Err(unsubmitted(&job)),
            None => {}
        }
        fetched(&job, context)?;
    }
    Ok(())
}

/// Takes a batch of the provider for the job.
fn adopt(job: &mut Job, made: &str, context: &mut Context) -> Result<()> {
    let engine = job.engine(context)?;
    let id = checked_id(made).ok_or_else(|| Error::usage(format!("--as: `{made}` is not the id of a batch")))?;
    job.provider_id = Some(id);
    Provider::of(engine.backend.as_ref())?.progress(job)?;
    job.save()?;
    engine.submitted(&job.facts(), None)
}

/// Prints the answers of a job, in the order of its input.
fn fetched(job: &Job, context: &mut Context) -> Result<()> {
    let answers = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(job.file("answers.jsonl"));
    let answers = answers.map_err(failed)?;
    let (mut known, mut line) = (BufReader::new(answers.try_clone()?), Vec::new());
    let (mut source, mut whole) = (None, 0);
    for (number, item) in job.items()?.enumerate() {
        let item = item?;
        let (number, place) = (number as u64, item.place());
        signals::check()?;
        line.clear();
        let outcome = if source.is_none() && known.read_until(b'\n', &mut line).map_err(failed)? > 0 && line.ends_with(b"\n") {
            whole += line.len() as u64;
            serde_json::from_slice(&line)
                .map_err(|e| Error::io("reading the answers", std::io::Error::from(e)).in_file(&job.file("answers.jsonl")))?
        } else {
            if source.is_none() {
                // A line that was torn when its writer was killed.
                answers.set_len(whole).map_err(failed)?;
                source = Some(Source::open(job, context)?);
            }
            let Some(source) = &source else { continue };
            source.settled(job, number, item, &answers)?
        };
        context.out.set_place(place);
        if place.index.is_some() {
            context.out.streaming()?;
        }
        match outcome {
            Outcome::Message(message) => {
                context.out.record(Kind::Message, &*message)?;
                context.out.item_succeeded();
            }
            Outcome::Error(error) => context.out.item_failed(Error::from_value(&error))?,
        }
    }
    if source.is_some() {
        answers.sync_data().map_err(failed)?;
        // Every row has its outcome.
        let _ = std::fs::remove_file(job.file("results.jsonl"));
    }
    Ok(())
}

/// Where the outcomes come from that are not known yet.
struct Source {
    engine: Engine,
    results: Option<Results>,
}

impl Source {
    /// The results of the job, which must have ended.
    fn open(job: &Job, context: &mut Context) -> Result<Self> {
        let engine = job.engine(context)?;
        let provider = Provider::of(engine.backend.as_ref())?;
        let results = job.file("results.jsonl");
        if !results.exists() {
            let progress = provider.progress(job)?;
            if !progress.state.is_ended() {
                let state = serde_json::to_value(progress.state).unwrap_or_default();
                return Err(Error::new(Code::Conflict, format!("{} has not ended: {}", job.id, progress.word))
                    .with("reason", "not_ended")
                    .with("state", state)
                    .hint(format!("wait for it: cp-llm batch poll --wait {}", job.id)));
            }
            if let Some(failure) = progress.failure.as_ref().filter(|_| progress.done == 0) {
                return Err(Error::validation(format!("the provider did not take the batch: {failure}"))
                    .with("origin", "upstream")
                    .with("upstream_message", failure.as_str())
                    .with("_untrusted", vec!["/upstream_message"]));
            }
            let part = job.file("results.part");
            let mut file =
                OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part).map_err(failed)?;
            provider.save_results(&progress, &mut file)?;
            file.sync_data().and_then(|()| std::fs::rename(&part, &results)).map_err(failed)?;
        }
        let results = match provider {
            Provider::Stub => None,
            Provider::Inline(_) | Provider::File(_) => Some(Results::open(job.opened("results.jsonl")?, job.count)?),
        };
        Ok(Self { engine, results })
    }

    /// What came of a row, kept.
    fn settled(&self, job: &Job, number: u64, item: Item, answers: &File) -> Result<Outcome> {
        let (request_hash, bytes) = (item.request_hash.clone(), item.bytes);
        let work = item.work(number);
        let exchange = match (self.engine.backend.server(), &self.results) {
            (Some(server), Some(results)) => results.exchange(number, server)?,
            _ => self.engine.backend.exchange(work.request(), &[], &mut |_| Ok(())),
        };
        if let Err(error) = &exchange.outcome
            && error.code() == Code::Interrupted
        {
            return Err(Error::new(Code::Interrupted, error.message()));
        }
        // On the ledger and among the answers, or on neither.
        let _effect = signals::effect();
        let row = Row { name: &row_name(&job.id, number), request_hash: &request_hash, bytes };
        let outcome = match self.engine.delivered(&work, &row, exchange)? {
            Ok(message) => Outcome::Message(Box::new(message)),
            Err(error) => Outcome::Error(error.to_value()),
        };
        let mut line = serde_json::to_vec(&outcome).map_err(|e| failed(e.into()))?;
        line.push(b'\n');
        (&*answers).write_all(&line).map_err(failed)?;
        Ok(outcome)
    }
}

fn failed(e: std::io::Error) -> Error {
    Error::io("keeping the answers of the batch", e).fatal()
}
