//! Batches: prompts that a provider answers within a day, for half the price. `poll` prints their state and `cancel` ends them.
//!
//! A [`job`] is stored below `state/batches` of the home, with members that the provider does not get. [`client`] implements the two batch APIs.

mod client;
mod fetch;
pub(crate) mod job;
mod submit;

use std::time::Duration;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Error, Result, signals};

use self::client::BatchClient;
use self::job::{BatchJob, Job, Progress, State};
use crate::pause;

/// The entries of these verbs in `reference`.
pub(crate) const DOCS: [VerbDoc; 4] = [submit::DOC, POLL, fetch::DOC, CANCEL];

/// Let a provider answer prompts later, for less
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Submit(Box<submit::Args>),
    Poll(PollArgs),
    Fetch(fetch::Args),
    Cancel(CancelArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Submit(args) => submit::run(args, context),
        Verb::Poll(args) => poll(args, context),
        Verb::Fetch(args) => fetch::run(args, context),
        Verb::Cancel(args) => cancel(args, context),
    }
}

/// The entry of this verb in `reference`.
const POLL: VerbDoc = VerbDoc {
    path: "batch poll",
    class: Class::Query,
    output: "batch_job",
    also: &["summary"],
    exits: &[7, 8],
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch poll --wait"],
    sort: Some("created_at, descending"),
    ..VerbDoc::EMPTY
};

/// The first and the longest interval between two requests for the state.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Print the state of batches
#[derive(clap::Args)]
struct PollArgs {
    /// Wait until all batches have ended, and print each when it ends
    #[arg(long)]
    wait: bool,
    /// The batches, by id or a prefix of it (default: all)
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

fn poll(args: &PollArgs, context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let mut shown = context.out.progress();
    let mut open = if args.ids.is_empty() { Job::all(&context.home)? } else { Vec::new() };
    for id in &args.ids {
        match Job::find(&context.home, id) {
            Ok(job) => open.push(job),
            Err(error) => context.out.item_failed(error)?,
        }
    }
    let mut wait = WAITS.0;
    loop {
        let mut running = Vec::new();
        for job in open {
            match progress(&job, context) {
                Ok(progress) if args.wait && !progress.state.is_ended() => {
                    shown.report(|| format!("{}: {} of {} done", job.id, progress.done, job.count));
                    running.push(job);
                }
                Ok(progress) => {
                    context.out.record(Kind::Item, &BatchJob::of(&job, progress))?;
                    context.out.item_succeeded();
                }
                Err(error) if error.code() == Code::Interrupted => return Err(error),
                Err(error) if args.wait && error.code().row().retryable => {
                    context.warn(&format!("{}: {}; asking again", job.id, error.message()));
                    running.push(job);
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

fn progress(job: &Job, context: &mut Context) -> Result<Progress> {
    if job.provider_id.is_none() {
        return Err(unfinished(job));
    }
    BatchClient::of_job(job, context)?.provider()?.progress(job)
}

/// The error for a batch that was not submitted completely.
fn unfinished(job: &Job) -> Error {
    Error::new(Code::Conflict, format!("the submission of {} is incomplete", job.id))
        .with("reason", "unfinished")
        .hint("submit the same input again to continue")
}

/// The entry of this verb in `reference`.
const CANCEL: VerbDoc = VerbDoc {
    path: "batch cancel",
    class: Class::Governed,
    output: "batch_job",
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch cancel BAT-"],
    ..VerbDoc::EMPTY
};

/// Cancel a batch; answers from before can be fetched
#[derive(clap::Args)]
struct CancelArgs {
    /// The batch, by id or a prefix of it
    #[arg(value_name = "ID")]
    id: String,
}

fn cancel(args: &CancelArgs, context: &mut Context) -> Result<()> {
    let mut job = Job::find(&context.home, &args.id)?;
    let _held = job.lock()?;
    if job.provider_id.is_none() {
        // The user confirms that the provider does not have the batch, so the same input can be submitted again.
        job.remove()?;
        return context.out.answer(&BatchJob::of(&job, Progress::of(State::Cancelled, "unknown", 0)));
    }
    let client = BatchClient::of_job(&job, context)?;
    let provider = client.provider()?;
    let _effect = signals::effect();
    provider.cancel(&job)?;
    context.out.answer(&BatchJob::of(&job, provider.progress(&job)?))
}
