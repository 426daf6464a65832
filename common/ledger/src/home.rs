//! The ledger that records an effect, the directory of a session, and the audit of command lines.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cp_common::context::options::Shared;
use cp_common::program::Finished;
use cp_common::wire::bytes_of;
use cp_common::{Code, Context, Result};
use cp_redact::Redactor;

use crate::append::{Ledger, Sync};
use crate::format::Entry;
use crate::read::segments::followed;
use crate::sessions::Session;

/// Opens the ledger that records the effects of this command line: the one that was named, else the run's, else the
/// session's, else `ledger/<name>` of home.
pub fn effect_ledger(context: &Context, name: &str) -> Result<Ledger> {
    Ledger::open(&effect_path(context, name)?, Sync::Batch)
}

/// The file that [`effect_ledger`] opens.
pub fn effect_path(context: &Context, name: &str) -> Result<PathBuf> {
    if let Some(path) = &context.options.ledger {
        cp_policy::check_writable(&context.home, path)?;
        return Ok(followed(path));
    }
    if let Some(run) = &context.options.run {
        return Ok(if run.contains('/') {
            followed(Path::new(run))
        } else {
            context.home.runs(&context.tier(None)?).join(format!("{run}.jsonl"))
        });
    }
    Ok(followed(&match session_directory(context)? {
        Some(directory) => directory.join("ledger").join(name.strip_prefix("cp-").unwrap_or(name)),
        None => context.home.ledger(name),
    }))
}

/// The directory of the session that the command line or the environment names, if one is named.
pub fn session_directory(context: &Context) -> Result<Option<PathBuf>> {
    let named = context.session();
    named.map(|named| Ok(Session::find(&named, &context.home)?.directory)).transpose()
}

/// Records a command line that has finished, for [`cp_common::program::Program::audit`].
pub fn audit(context: &Context, what: &Finished<'_>) -> Result<()> {
    // A program that a run started has entries of its own on the ledger of the run.
    let Shared { run, ledger, origin, .. } = &context.options;
    if what.exit == 0 && run.is_some() && ledger.is_some() && origin.is_some() {
        return Ok(());
    }
    let name = match context.program {
        name @ ("cp-exec" | "cp-llm") => format!("{name}.jsonl"),
        _ => "cp-log.jsonl".to_owned(),
    };
    // A command line about a missing session or run must be recorded, too, and must not begin its ledger.
    let is_lost = |path: &Path| context.options.ledger.is_none() && context.options.run.is_some() && !path.exists();
    let path = match effect_path(context, &name) {
        Err(e) if matches!(e.code(), Code::NotFound | Code::Validation) => context.home.ledger(&name),
        Ok(path) if is_lost(&path) => context.home.ledger(&name),
        path => path?,
    };
    let mut entry = Entry::new(if what.exit == 0 { "command" } else { "error" }).agent(context.agent(None));
    if let Some(message) = what.message {
        entry = entry.message(message);
    }
    let argv: Vec<_> = what.argv.iter().map(|word| word.to_string_lossy()).collect();
    entry = entry
        .with("program", context.program)
        .with("verb", what.verb)
        .with("argv", &argv)
        .with("origin", context.origin().name())
        .with("uid", &rustix::process::getuid().as_raw())
        .with("exit", &what.exit)
        .with("code", &what.code)
        .with("duration_ms", &what.duration_ms);
    if what.argv.iter().any(|word| word.to_str().is_none()) {
        // The bytes of a word with a secret would disclose the secret.
        let redactor = Redactor::from_environment();
        let clean = |word: &OsString| redactor.redact_text(&word.to_string_lossy()).1 == 0;
        let bytes: Vec<_> = what.argv.iter().map(|word| bytes_of(word).filter(|_| clean(word))).collect();
        entry = entry.with("argv_bytes", &bytes);
    }
    // No sync: the effects of the command line have entries of their own, which are as durable as required.
    Ledger::open(&path, Sync::None)?.append(entry).map(|_| ())
}
