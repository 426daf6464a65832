//! Which ledger an effect goes to, and where sessions lie.

use std::path::{Path, PathBuf};

use cp_common::{Context, Error, Result};

use crate::append::{Ledger, Sync};

/// Opens the one ledger that an effect of this command line goes to: the one that was named, else the run's, else the session's, else
/// `ledger/<name>` of home.
pub fn effect_ledger(context: &Context, name: &str) -> Result<Ledger> {
    Ledger::open(&effect_path(context, name)?, Sync::Batch)
}

/// The file that [`effect_ledger`] opens.
pub fn effect_path(context: &Context, name: &str) -> Result<PathBuf> {
    if let Some(path) = &context.options.ledger {
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
    context.session().map(|session| directory_of_session(context, &session)).transpose()
}

/// The directory of a session, given by its id, a unique prefix of it, or a path to it or to a file in it.
pub fn directory_of_session(context: &Context, session: &str) -> Result<PathBuf> {
    let missing = || {
        Error::not_found(format!("no session `{session}`"))
            .with("session", session)
            .hint("`cp-session list` shows them")
    };
    if session.contains('/') {
        let path = Path::new(session);
        return match path.metadata() {
            Ok(metadata) if metadata.is_dir() => Ok(path.to_owned()),
            Ok(_) => Ok(path.canonicalize()?.parent().map_or_else(PathBuf::new, Path::to_owned)),
            Err(_) => Err(missing()),
        };
    }
    let mut found: Vec<PathBuf> = Vec::new();
    for tier in ["ho1", "ho2", "ho3"] {
        let sessions = context.home.sessions(tier);
        let exact = sessions.join(session);
        if !session.is_empty() && exact.is_dir() {
            return Ok(exact);
        }
        let Ok(listing) = std::fs::read_dir(&sessions) else { continue };
        let names = listing.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        found.extend(names.filter(|name| name.starts_with(session)).map(|name| sessions.join(name)));
    }
    match found.len() {
        0 => Err(missing()),
        1 => Ok(found.remove(0)),
        many => {
            Err(Error::usage(format!("`{session}` is the beginning of {many} sessions")).hint("give more of the id"))
        }
    }
}
