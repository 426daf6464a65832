//! The session with a person.

use std::io::BufRead as _;

use cp_common::program::VERSION;
use cp_common::{Context, Result};

use crate::session::Args;

pub(crate) fn run(_args: &Args, context: &mut Context) -> Result<()> {
    context.out.raw(format!("cp-shell {VERSION}\n").as_bytes())?;
    context.out.flush()?;
    for line in std::io::stdin().lock().lines() {
        line?;
    }
    context.out.ended_with(0);
    Ok(())
}
