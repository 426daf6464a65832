//! Batches: prompts that a provider answers within a day, for half the price. `status` prints their state and `cancel`
//! ends them.
//!
//! The [`state`] of each is a file below `state/batches` of the home. [`provider`] implements the two batch APIs.

mod provider;
mod result;
pub(crate) mod state;
mod submit;

use std::time::Duration;

use cp_common::program::{Class, VerbDoc};
use cp_common::wire::record::Kind;
use cp_common::{Code, Context, Result, signals};

use self::provider::{Client, Progress};
use self::state::{Batch, BatchJob, State};
use crate::pause;

/// The entries of these verbs in `reference`.
pub(crate) const DOCS: [VerbDoc; 4] = [submit::DOC, STATUS, result::DOC, CANCEL];

/// Let a provider answer prompts later, for less
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    Submit(Box<submit::Args>),
    Status(StatusArgs),
    Result(result::Args),
    Cancel(CancelArgs),
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    match &args.verb {
        Verb::Submit(args) => submit::run(args, context),
        Verb::Status(args) => status(args, context),
        Verb::Result(args) => result::run(args, context),
        Verb::Cancel(args) => cancel(args, context),
    }
}

/// The entry of this verb in `reference`.
const STATUS: VerbDoc = VerbDoc {
    path: "batch status",
    class: Class::Query,
    output: "batch_job",
    also: &["summary"],
    exits: &[7, 8],
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch status --wait"],
    sort: Some("created_at, descending"),
    ..VerbDoc::EMPTY
};

/// The first and the longest interval between two requests for the state.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// Print the state of batches
#[derive(clap::Args)]
struct StatusArgs {
    /// Wait until all batches have ended, and print each when it ends
    #[arg(long)]
    wait: bool,
    /// The batches, by id or a prefix of it (default: all)
    #[arg(value_name = "ID")]
    ids: Vec<String>,
}

fn status(args: &StatusArgs, context: &mut Context) -> Result<()> {
    context.out.streaming()?;
    let mut shown = context.out.progress();
    let mut open = if args.ids.is_empty() { Batch::all(&context.home, "")? } else { Vec::new() };
    for id in &args.ids {
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
                Ok(Progress { job, .. }) if args.wait && !job.is_ended() => {
                    shown.report(|| format!("{}: {} of {} done", job.job_id, job.done, job.count));
                    running.push(batch);
                }
                Ok(Progress { job, .. }) => {
                    context.out.record(Kind::Item, &job)?;
                    context.out.item_succeeded();
                }
                Err(error) if error.code() == Code::Interrupted => return Err(error),
                Err(error) if args.wait && error.code().row().retryable => {
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

/// The entry of this verb in `reference`.
const CANCEL: VerbDoc = VerbDoc {
    path: "batch cancel",
    class: Class::Governed,
    output: "batch_job",
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch cancel BAT-"],
    ..VerbDoc::EMPTY
};

/// Cancel a batch; answers from before can be printed
#[derive(clap::Args)]
struct CancelArgs {
    /// The batch, by id or a prefix of it
    #[arg(value_name = "ID")]
    id: String,
}

fn cancel(args: &CancelArgs, context: &mut Context) -> Result<()> {
    let batch = Batch::find_locked(&context.home, &args.id)?;
    if batch.job.provider_id.is_none() {
        // The user confirms that the provider does not have the batch, so the same input can be submitted again.
        batch.remove()?;
        return context.out.answer(&BatchJob { status: State::Cancelled, ..batch.job });
    }
    let client = Client::of_batch(&batch, context)?;
    let _effect = signals::effect();
    client.cancel(&batch)?;
    context.out.answer(&client.progress(&batch)?.job)
}
