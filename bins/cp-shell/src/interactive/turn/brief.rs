//! The brief of a directory goes with turns after a yes: anybody who can write there could have written it. The answer is kept for the
//! directory and what the brief says.

use std::io::Write as _;

use cp_common::home::make_directory;
use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;

use crate::interactive::console::render::{harmless, style};
use crate::interactive::state::State;

/// Where the answers are kept, one a line: `yes` or `no`, and the hash of the directory and the brief.
const FILE: &str = "briefs";

/// Asks about the brief once, where there is one, and leaves it out where the answer is no or nobody can be asked.
pub(super) fn decide(state: &mut State<'_>) -> Result<()> {
    let Some((path, text)) = state.hub.undecided_brief() else { return Ok(()) };
    let hash = Hash::of(format!("{path}\n{text}").as_bytes());
    let mark = hash.hex();
    let file = state.context.home.state(FILE);
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let answered = |answer: &str| kept.lines().any(|line| line == format!("{answer} {mark}"));
    if answered("yes") {
        state.hub.decide_brief(true);
        return Ok(());
    }
    let is_asked = !answered("no") && state.console.is_terminal();
    let name = harmless(&path);
    let agrees = is_asked
        && state.console.agrees(&format!("Let the brief {name} ({} bytes) go along with turns? [y/N] ", text.len()));
    if is_asked {
        let failed = |e| Error::io("keeping the answer", e).in_file(&file);
        make_directory(file.parent().unwrap_or(&file))?;
        let mut kept = std::fs::OpenOptions::new().create(true).append(true).open(&file).map_err(failed)?;
        writeln!(kept, "{} {mark}", if agrees { "yes" } else { "no" }).map_err(failed)?;
    } else if !answered("no") {
        let line = format!("the brief {name} was not sent: a yes at a terminal is needed once\n");
        state.show(&style().faint(&line))?;
    }
    state.hub.decide_brief(agrees);
    Ok(())
}
