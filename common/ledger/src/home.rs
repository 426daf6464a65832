//! Which ledger an effect goes to, and where sessions lie.

use std::path::PathBuf;

use cp_common::{Context, Result};

use crate::append::{Ledger, Sync};

/// Opens the one ledger that an effect of this command line goes to: the one that was named, else the run's, else the session's, else
/// `ledger/<name>` of home.
pub fn effect_ledger(context: &Context, name: &str) -> Result<Ledger> {
    Ledger::open(&effect_path(context, name)?, Sync::Batch)
}

/// The file that [`effect_ledger`] opens.
pub fn effect_path(context: &Context, name: &str) -> Result<PathBuf> {
    if let Some(path) = &context.options.ledger {
        context.home.check_writable(path)?;
        return Ok(path.clone());
    }
    if let Some(run) = &context.options.run {
        return Ok(if run.contains('/') {
            PathBuf::from(run)
        } else {
            context.home.runs(&context.tier()).join(format!("{run}.jsonl"))
        });
    }
    Ok(match session_directory(context)? {
        Some(directory) => directory.join("ledger").join(name.strip_prefix("cp-").unwrap_or(name)),
        None => context.home.ledger(name),
    })
}

/// The directory of the session that is meant, if one is.
pub fn session_directory(context: &Context) -> Result<Option<PathBuf>> {
    let named = context.session();
    named.map(|named| Ok(context.home.session(&named)?.directory)).transpose()
}
