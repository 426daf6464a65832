//! `cp-llm batch cancel`: a batch is stopped.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result, signals};

use super::client::BatchClient;
use super::job::{BatchJob, Job, Progress, State};

/// What the reference says of this verb.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch cancel",
    class: Class::Governed,
    output: "batch_job",
    examples: &["cp-llm batch submit --backend stub -- hello && cp-llm batch cancel BAT-"],
    ..VerbDoc::EMPTY
};

/// Stop a batch; what it has answered can be fetched
#[derive(clap::Args)]
pub(super) struct Args {
    /// The batch, by its id or what this begins with
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut job = Job::find(&context.home, &args.id)?;
    let _held = job.locked()?;
    if job.provider_id.is_none() {
        // A person says that the provider does not have it: the same input can be submitted anew.
        job.remove()?;
        return context.out.answer(&BatchJob::of(&job, Progress::of(State::Cancelled, "unknown", 0)));
    }
    let client = BatchClient::of_job(&job, context)?;
    let provider = client.provider()?;
    let _effect = signals::effect();
    provider.cancel(&job)?;
    context.out.answer(&BatchJob::of(&job, provider.progress(&job)?))
}
