//! The ledger that records an effect, the directory of a session, and the audit of command lines.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use cp_common::context::options::Shared;
use cp_common::home::OF_PROCESS;
use cp_common::program::Finished;
use cp_common::wire::{Receipt, bytes_of};
use cp_common::{Code, Context, Result};
use cp_redact::Redactor;

use crate::append::{Ledger, Sync};
use crate::format::Entry;
use crate::read::lines;
use crate::read::segments::segments_of;
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

/// The directory of the session that the command line or the environment names, if one is named.
pub fn session_directory(context: &Context) -> Result<Option<PathBuf>> {
    let named = context.session();
    named.map(|named| Ok(Session::find(&named, &context.home)?.directory)).transpose()
}

/// The home's own ledger, which names every other one that is made in the home.
const OWN: &str = "ledger/cp-log.jsonl";
const MADE: &str = "ledger.made";
const REMOVED: &str = "ledger.removed";
const FILE: &str = "file";

/// Names a new ledger in the home's own ledger, so that a checkpoint of that tells which ledgers there were.
pub(crate) fn name(ledger: &Path) -> Result<()> {
    let Some(home) = OF_PROCESS.get().and_then(|home| home.canonicalize().ok()) else { return Ok(()) };
    match ledger.strip_prefix(&home).ok().and_then(Path::to_str) {
        Some(file) if file != OWN => record(&home, MADE, file).map(drop),
        _ => Ok(()),
    }
}

/// Records that a ledger of a home, or a directory of ledgers, was removed on purpose.
pub fn remove(home: &Path, file: &Path) -> Result<Receipt> {
    record(home, REMOVED, &file.to_string_lossy())
}

fn record(home: &Path, event: &str, file: &str) -> Result<Receipt> {
    Ledger::open(&home.join(OWN), Sync::Line)?.append(Entry::new(event).with(FILE, file))
}

/// The ledgers below a home that its own ledger names, that are not there, and that nobody removed on record.
pub fn missing(home: &Path) -> Result<BTreeSet<PathBuf>> {
    let (own, mut named) = (home.join(OWN), BTreeSet::new());
    let mut files = segments_of(&own)?;
    files.extend(own.is_file().then(|| own.clone()));
    for file in files {
        let mut lines = lines(&file)?;
        while let Some(raw) = lines.next()? {
            let Some(line) = raw.stored() else { continue };
            let text = |json: Option<&[u8]>| serde_json::from_slice::<String>(json.unwrap_or_default()).ok();
            let file = || text(line.data_member(FILE)).filter(|file| !file.is_empty());
            if line.is_event(MADE) {
                named.extend(file().map(PathBuf::from));
            } else if let Some(removed) = file().filter(|_| line.is_event(REMOVED)) {
                named.retain(|file| !file.starts_with(&removed));
            } else if let Some(session) = text(line.member("session")).filter(|_| line.is_event("session_delete")) {
                named.retain(|file| !file.iter().any(|part| part == session.as_str()));
            }
        }
    }
    named.retain(|file| !home.join(file).exists());
    Ok(named)
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
