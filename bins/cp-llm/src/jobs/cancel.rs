//! `cp-llm batch cancel`: cancel a batch.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result, signals};

use super::client::BatchClient;
use super::job::{BatchJob, Job, Progress, State};

/// The entry of this verb in `reference`.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch cancel",
    class: Class::Governed,
    output: "batch_job",
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch cancel BAT-"],
    ..VerbDoc::EMPTY
};

/// Cancel a batch; answers from before can be fetched
#[derive(clap::Args)]
pub(super) struct Args {
    /// The batch, by id or a prefix of it
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut job = Job::find(&context.home, &args.id)?;
    let _held = job.locked()?;
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
