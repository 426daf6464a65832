//! A command or plan from the decision about all of it to its intent on the ledger.

use std::os::fd::OwnedFd;
use std::time::Duration;

use cp_common::Result;
use cp_common::program::confirm::inspect;

use crate::decision::confirm::{self, Consent};
use crate::decision::{self, Ruling};
use crate::request::Command;
use crate::run::{Engine, Prepared};

/// Decides about every part before any runs, and puts the intent on the ledger, with what is worth saying of it.
pub(super) fn ready(
    engine: &mut Engine,
    command: Command,
    consent: Consent<'_>,
    stdin: impl Fn() -> Result<Option<OwnedFd>>,
    grace: Option<Duration>,
) -> Result<(Prepared, Vec<String>)> {
    if let Consent::Token(Some(token)) = consent {
        inspect(&engine.policy.cp_home, token)?;
    }
    let command = if command.steps.is_empty() {
        let mut rulings = rule(engine, &command)?;
        let alone = rulings.len() == 1 || matches!(consent, Consent::Set(_));
        if alone || rulings.iter().all(|ruling| ruling.confirm.is_none()) {
            for ruling in &mut rulings {
                confirm::settle(&engine.policy, ruling, consent)?;
            }
            let notices = rulings.iter().flat_map(|ruling| ruling.notices.clone()).collect();
            return Ok((Prepared::new(engine, "shell", rulings, stdin()?, grace)?, notices));
        }
        // A yes is for all of its stages at once.
        command.into_plan()
    } else {
        command
    };
    let mut line = decision::decide_line(&engine.policy, &mut engine.hashes, &command)?;
    confirm::settle_line(&engine.policy, &command, &mut line, consent)?;
    let notices = command.notices.iter().cloned().chain(line.notices()).collect();
    Ok((Prepared::line(engine, command, line, stdin()?, grace)?, notices))
}

fn rule(engine: &mut Engine, command: &Command) -> Result<Vec<Ruling>> {
    let stages = command.stages.iter();
    stages.map(|argv| decision::decide(&engine.policy, &mut engine.hashes, command, argv)).collect()
}
