//! What an operand names: a ledger, a run or a session of this home.

use std::path::PathBuf;

use cp_common::home::TIERS;
use cp_common::{Context, Error, Result};
use cp_ledger::read::tail::is_ledger_file;

use crate::reading::Target;

/// The paths that the operands stand for.
pub(super) fn paths(subjects: &[String], context: &Context) -> Result<Vec<PathBuf>> {
    subjects.iter().map(|subject| path(subject, context)).collect()
}

fn path(subject: &str, context: &Context) -> Result<PathBuf> {
    let named = PathBuf::from(subject);
    if subject == "-" {
        return Err(Error::usage("an audit reads what lies beside a ledger, so standard input cannot be audited")
            .hint("name the file"));
    }
    if subject.contains('/') || named.extension().is_some_and(|end| end == "jsonl") || named.exists() {
        return Ok(named);
    }
    let run =
        |tier: &&str| Some(context.home.runs(tier).join(format!("{subject}.jsonl"))).filter(|path| path.is_file());
    if let Some(ledger) = TIERS.iter().find_map(run) {
        return Ok(ledger);
    }
    match context.home.session(subject) {
        Ok(session) => Ok(session.directory),
        Err(_) => Err(Error::not_found(format!("no session, run or ledger `{subject}`"))
            .hint("cp-session list and cp-toolloop runs list them; a ledger is named by its path")),
    }
}

/// Whether a file is a ledger. One that was named has to be.
pub(crate) fn is_ledger(target: &Target) -> Result<bool> {
    let path = &target.path;
    if !path.is_file() {
        return Err(Error::not_found("no such ledger").in_file(path));
    }
    if is_ledger_file(&cp_ledger::read::open(path)?) {
        return Ok(true);
    }
    if target.named {
        return Err(Error::validation("not a ledger: nothing in it is claimed with a hash").in_file(path));
    }
    Ok(false)
}
