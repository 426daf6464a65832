//! Pipe mode: requests on standard input, an answer a line.

use cp_common::{Context, Result};

use crate::journal::Journal;
use crate::plane::Plane;
use crate::session::Args;

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let root = args.root.clone().unwrap_or_else(|| context.home.root().to_owned());
    let plane = Plane::open(&root)?;
    let agent = context.agent(args.agent.as_deref());
    let journal = Journal::open(context, &agent)?;
    context.out.raw(plane.root().display().to_string().as_bytes())?;
    context.out.ended_with(0);
    journal.end(context)
}
