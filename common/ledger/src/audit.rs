//! The sink that records what command lines came to.

use std::path::PathBuf;

use cp_common::program::{Audit, Finished};
use cp_common::{Code, Context, Result};
use cp_redact::Redactor;

use crate::append::{Ledger, Sync};
use crate::format::Entry;
use crate::home::effect_path;

/// The audit of a program, for its [`cp_common::program::Program::audit`]: an entry for each command line that is reported to it.
pub fn audit(context: &Context) -> Result<Option<Box<dyn Audit>>> {
    let name = match context.program {
        name @ ("cp-exec" | "cp-llm") => format!("{name}.jsonl"),
        _ => "cp-log.jsonl".to_owned(),
    };
    // A command line about a session that is not there still has to be recorded.
    let path = match effect_path(context, &name) {
        Err(e) if matches!(e.code(), Code::NotFound | Code::Validation) => context.home.ledger(&name),
        path => path?,
    };
    let sink = Sink { path, program: context.program, agent: context.agent(None), origin: context.origin().name() };
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
        let mut entry = Entry::new(if what.exit == 0 { "command" } else { "error" }).agent(&self.agent);
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
        let entry = if what.argv_bytes.iter().any(Option::is_some) {
            // A word whose text has a secret in it would have it in its bytes.
            let redactor = Redactor::from_environment();
            let clean = |word: &String| redactor.redact_text(word).1 == 0;
            let bytes = what.argv.iter().zip(what.argv_bytes);
            let bytes: Vec<_> = bytes.map(|(word, bytes)| bytes.as_ref().filter(|_| clean(word))).collect();
            entry.with("argv_bytes", &bytes)
        } else {
            entry
        };
        // Nobody waits for it: what the command line did has entries of its own, as durable as they must be.
        Ledger::open(&self.path, Sync::None)?.append(entry).map(|_| ())
    }
}
