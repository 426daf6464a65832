//! Which ledger an effect goes to, and the sink that records what command lines came to.

use std::path::{Path, PathBuf};

use cp_common::program::{Audit, Finished};
use cp_common::{Code, Context, Error, Result};

use crate::ledger::{Entry, Ledger, Sync};

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

/// The audit of a program, for its [`cp_common::program::Program::audit`]: an entry for each command line that it is told of.
pub fn audit(context: &Context) -> Result<Option<Box<dyn Audit>>> {
    let name = match context.program.name {
        name @ ("cp-exec" | "cp-llm") => format!("{name}.jsonl"),
        _ => "cp-log.jsonl".to_owned(),
    };
    // A command line about a session that is not there still has to be recorded.
    let path = match effect_path(context, &name) {
        Err(e) if matches!(e.code(), Code::NotFound | Code::Usage) => context.home.ledger(&name),
        path => path?,
    };
    let sink =
        Sink { path, program: context.program.name, agent: context.agent(None), origin: context.origin().name() };
    Ok(Some(Box::new(sink)))
}

struct Sink {
    path: PathBuf,
    program: &'static str,
    agent: String,
    origin: &'static str,
}

impl Audit for Sink {
    fn finished(&mut self, what: &Finished<'_>) -> Result<()> {
        let mut entry = Entry::new(if what.code.is_some() { "error" } else { "command" }).agent(&self.agent);
        if let Some(message) = what.message {
            entry = entry.message(message);
        }
        let entry = entry
            .with("program", self.program)
            .with("verb", what.verb)
            .with("argv", what.argv)
            .with("origin", self.origin)
            .with("uid", &rustix::process::getuid().as_raw())
            .with("exit", &what.exit)
            .with("code", &what.code)
            .with("duration_ms", &what.duration_ms);
        // Nobody waits for it: what the command line did has entries of its own, as durable as they must be.
        Ledger::open(&self.path, Sync::None)?.append(entry).map(|_| ())
    }
}
