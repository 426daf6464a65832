//! `cp-llm batch cancel`: a job is stopped.

use cp_common::program::{Class, VerbDoc};
use cp_common::{Context, Result, signals};

use super::job::Job;
use super::provider::{Progress, Provider};
use super::record::BatchJob;

/// What the reference says of this verb.
pub(super) const DOC: VerbDoc = VerbDoc {
    path: "batch cancel",
    class: Class::Governed,
    output: "batch_job",
    examples: &["cp-llm batch submit --backend stub -- hello >job && cp-llm batch cancel \"$(jq -r .data.id job)\""],
    ..VerbDoc::EMPTY
};

/// Stop a job; what it has answered can be fetched
#[derive(clap::Args)]
pub(super) struct Args {
    /// The job, by its id or what begins it
    #[arg(value_name = "ID")]
    id: String,
}

pub(super) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let mut job = Job::find(&context.home, &args.id)?;
    let _held = job.locked()?;
    if job.provider_id.is_none() {
        // A person says that the provider does not have it: the same input can be submitted anew.
        job.remove()?;
        return context.out.answer(&BatchJob::of(&job, Progress::never_made()));
    }
    let engine = job.engine(context)?;
    let provider = Provider::of(engine.backend.as_ref())?;
    let _effect = signals::effect();
    provider.cancel(&job)?;
    context.out.answer(&BatchJob::of(&job, provider.progress(&job)?))
}
