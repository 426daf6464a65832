//! What is learnt: a lesson now, or at the end of a session with a person; and, if they want, its rounds for later sessions. To skip a
//! question writes nothing.

use cp_common::{Error, Result};

use crate::interactive::commands::memory::keep;
use crate::interactive::console::render::{count, style};
use crate::interactive::memory::remember;
use crate::interactive::outcome::Outcome;
use crate::interactive::state::State;

/// `:learn [LESSON]`
pub(super) fn learn(state: &mut State<'_>, lesson: &str) -> Result<Outcome> {
    let lesson = if lesson.is_empty() {
        let tracker = &mut state.standing.tracker;
        tracker.learning(true);
        let answer = state.console.answer("Lesson (Enter skips): ");
        tracker.learning(false);
        match answer {
            Some(answer) => answer,
            None if state.console.is_terminal() => String::new(),
            None => return Err(Error::usage("there is no terminal to ask at").hint("name the lesson: :learn TEXT")),
        }
    } else {
        lesson.to_owned()
    };
    if lesson.is_empty() {
        return Ok(Outcome::of_text("skipped: nothing was written\n"));
    }
    keep("lesson", &lesson, &state.setup, state.context)
}

/// The questions at the end of a session with a person.
pub(crate) fn offer(state: &mut State<'_>) -> Result<()> {
    if state.conversation.rounds.is_empty() {
        return Ok(());
    }
    state.standing.tracker.learning(true);
    let lesson = state.console.answer("Keep a lesson of this session? (Enter skips): ").unwrap_or_default();
    if !lesson.is_empty() {
        keep_and_show(state, "lesson", &lesson)?;
    }
    let rounds = std::mem::take(&mut state.conversation.rounds);
    let question =
        format!("Remember its {}, without secrets, for later sessions? [y/N] ", count(rounds.len(), "round"));
    if state.console.agrees(&question) {
        for (at, (said, answered)) in rounds.iter().enumerate() {
            let text = format!("user: {said}\nassistant: {answered}");
            if at + 1 < rounds.len() {
                remember("session_turn", &text, state.context)?;
            } else {
                keep_and_show(state, "session_turn", &text)?;
            }
        }
    }
    state.standing.tracker.learning(false);
    Ok(())
}

/// Keeps a text and shows where, or why not: a session ends all the same.
fn keep_and_show(state: &mut State<'_>, kind: &str, text: &str) -> Result<()> {
    let text = match keep(kind, text, &state.setup, state.context) {
        Ok(outcome) => outcome.text,
        Err(error) => style().error(error.message(), error.hint_text()),
    };
    state.show(&text)
}
