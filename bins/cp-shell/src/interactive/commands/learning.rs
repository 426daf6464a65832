//! What is learnt: a lesson now, or at the end of a session with a person; and, if they want, its rounds for later sessions. To skip a
//! question writes nothing.

use cp_common::Result;

use crate::interactive::outcome::{Done, Outcome, Problem};
use crate::interactive::recall::{file_of, remember};
use crate::interactive::render::count;
use crate::interactive::shell::Shell;
use crate::interactive::style;

/// `:learn [LESSON]`
pub(crate) fn learn(shell: &mut Shell<'_>, lesson: &str) -> Done {
    let lesson = if lesson.is_empty() {
        shell.tracker.learning(true);
        let answer = shell.desk.answer("Lesson (Enter skips): ");
        shell.tracker.learning(false);
        match answer {
            Some(answer) => answer,
            None if shell.desk.is_terminal() => String::new(),
            None => return Err(Problem::new("there is no terminal to ask at", "say the lesson: :learn TEXT")),
        }
    } else {
        lesson.to_owned()
    };
    if lesson.is_empty() {
        return Ok(Outcome::of_text("skipped: nothing was written\n"));
    }
    kept(shell, "lesson", &lesson)
}

/// Keeps a text of a kind without secrets, and says where.
pub(crate) fn kept(shell: &Shell<'_>, kind: &str, text: &str) -> Done {
    let (text, redactions) = shell.redactor.redact_text(text);
    remember(kind, &text, shell.context)?;
    let without =
        if redactions > 0 { format!(", {} taken out", count(redactions as usize, "secret")) } else { String::new() };
    Ok(Outcome::of_text(format!("kept in {}{without}\n", file_of(kind, shell.context).display())))
}

/// The questions at the end of a session with a person.
pub(crate) fn offer(shell: &mut Shell<'_>) -> Result<()> {
    if shell.rounds.is_empty() {
        return Ok(());
    }
    shell.tracker.learning(true);
    let lesson = shell.desk.answer("Keep a lesson of this session? (Enter skips): ").unwrap_or_default();
    if !lesson.is_empty() {
        told(shell, "lesson", &lesson)?;
    }
    let question =
        format!("Remember its {}, without secrets, for later sessions? [y/N] ", count(shell.rounds.len(), "round"));
    if shell.desk.agrees(&question) {
        let rounds = std::mem::take(&mut shell.rounds);
        for (at, (said, answered)) in rounds.iter().enumerate() {
            let text = format!("user: {said}\nassistant: {answered}");
            if at + 1 < rounds.len() {
                remember("session_turn", &text, shell.context)?;
            } else {
                told(shell, "session_turn", &text)?;
            }
        }
    }
    shell.tracker.learning(false);
    Ok(())
}

/// Keeps it and says so, or why not: a session ends all the same.
fn told(shell: &mut Shell<'_>, kind: &str, text: &str) -> Result<()> {
    let text = match kept(shell, kind, text) {
        Ok(outcome) => outcome.text,
        Err(problem) => style().error(&problem.message, problem.cure.as_deref()),
    };
    shell.say(&text)
}
