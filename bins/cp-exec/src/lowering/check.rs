//! Whether steps that were given outright could have come from a line.

use super::builtins::is_status;
use super::glob::bracket_length;
use super::steps::{Action, Join, Part, Piece, Redirect, Step, Target, Word};
use super::word::is_name;

/// As deep as groups may stand in each other.
pub(super) const DEEPEST: usize = 16;

/// Says what is wrong with steps, if something is.
pub(crate) fn check(steps: &[Step]) -> Result<(), &'static str> {
    list(steps, 0)
}

/// Refuses what does not hold.
fn must(holds: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if holds { Ok(()) } else { Err(otherwise) }
}

fn list(steps: &[Step], depth: usize) -> Result<(), &'static str> {
    must(depth <= DEEPEST, "groups stand too deep in each other")?;
    must(!steps.is_empty(), "a plan or group has no steps")?;
    for (at, step) in steps.iter().enumerate() {
        must((at == 0) == (step.join == Join::Start), "the first step, and no other, has the join `start`")?;
        match &step.action {
            Action::Pipeline(parts) => {
                must(!parts.is_empty(), "a pipeline has no parts")?;
                must(
                    parts.len() == 1 || parts.iter().all(|part| !part.argv.is_empty()),
                    "a part of a pipeline has no words",
                )?;
                parts.iter().try_for_each(part)?;
            }
            Action::Cd(to) => {
                word(to, true)?;
                must(to.text() != Some(""), "the directory has no name")?;
            }
            Action::Group(steps) | Action::Block(steps) => list(steps, depth + 1)?,
            Action::Exit(status) => {
                must(!step.negated && is_status(status), "`exit` has a status from 0 to 255, and is not negated")?;
            }
        }
    }
    Ok(())
}

fn part(part: &Part) -> Result<(), &'static str> {
    let name = part.argv.first();
    must(name.is_some() || !part.env.is_empty() || !part.redirects.is_empty(), "a part is empty")?;
    must(
        name.is_none_or(|name| name.text().is_some_and(|text| !text.is_empty())),
        "the name of a command is a plain text",
    )?;
    part.argv.iter().try_for_each(|argument| word(argument, true))?;
    for (name, value) in &part.env {
        must(is_name(name.chars().map(Some)), "a variable has no valid name")?;
        word(value, false)?;
    }
    part.redirects.iter().try_for_each(redirect)
}

fn redirect(Redirect { fd, target }: &Redirect) -> Result<(), &'static str> {
    match target {
        Target::Read { path } | Target::Write { path } | Target::Append { path } => {
            must((*fd == 0) == matches!(target, Target::Read { .. }) && *fd < 3, "0 is read; 1 and 2 are written")?;
            must(path.text() != Some(""), "a file has no name")?;
            word(path, false)
        }
        Target::Dup { to } => must(matches!((fd, to), (1 | 2, 1 | 2)), "1 and 2 can become each other"),
        Target::Text { text } => {
            must(*fd == 0, "a text is read from 0")?;
            word(text, false)
        }
    }
}

fn word(word: &Word, patterns: bool) -> Result<(), &'static str> {
    let text = |text: &str| must(!text.contains('\0'), "a word holds a NUL byte");
    let pieces = match word {
        Word::Text(whole) => return text(whole),
        Word::Pieces(pieces) => pieces,
    };
    must(!pieces.is_empty(), "a word has no pieces")?;
    pieces.iter().try_for_each(|piece| match piece {
        Piece::Text(part) => text(part),
        Piece::Glob(pattern) => {
            let is_one = matches!(pattern.as_str(), "*" | "?") || bracket_length(pattern) == Some(pattern.len());
            must(
                patterns && is_one && !pattern.contains(['/', '\0']),
                "a pattern is `*`, `?` or `[…]`, in words of a command",
            )
        }
        Piece::Status => Ok(()),
    })
}
