//! `--fit-tokens`: leave out the oldest rounds until the prompt is about this small. Sizes in tokens are estimates.

use cp_common::wire::{Prompt, estimated_tokens, raw};
use cp_common::{Error, Result};

use crate::parts::Account;

/// Makes the prompt fit. What is new in it is never cut: where that alone is too much, it is an error.
pub(crate) fn fit(prompt: &mut Prompt, limit: usize, account: &mut Account) -> Result<()> {
    let mut sizes = Vec::with_capacity(prompt.messages.len());
    for turn in &prompt.messages {
        sizes.push(turn.size()?);
    }
    let fixed = prompt.system.as_ref().map_or(0, String::len) + raw(&prompt.tools)?.get().len();
    let mut bytes = fixed + sizes.iter().sum::<usize>();
    let mut cut = 0;
    while cut < prompt.history && estimated_tokens(bytes) > limit {
        // A whole round goes: what stays must begin with a question.
        bytes -= sizes[cut];
        cut += 1;
        while cut < prompt.history && !prompt.messages[cut].is_question() {
            bytes -= sizes[cut];
            cut += 1;
        }
    }
    if estimated_tokens(bytes) > limit {
        return Err(Error::validation(format!(
            "too large: about {} tokens without any history, the limit is {limit}",
            estimated_tokens(bytes)
        ))
        .with("estimated_tokens", estimated_tokens(bytes))
        .hint("give less context, or a higher --fit-tokens"));
    }
    prompt.messages.drain(..cut);
    prompt.history -= cut;
    account.dropped("turns", cut, format!("--fit-tokens {limit}, estimated"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use cp_common::wire::Turn;

    fn prompt() -> Prompt {
        let turns = ["user", "assistant", "user", "assistant", "user"].map(|role| Turn::text(role, &"x".repeat(100)));
        Prompt { messages: turns.to_vec(), history: 4, ..Prompt::default() }
    }

    #[test]
    fn whole_rounds_go_and_the_new_turn_stays() {
        let (mut prompt, mut account) = (prompt(), Account::default());
        fit(&mut prompt, 120, &mut account).unwrap();
        assert_eq!((prompt.messages.len(), prompt.history), (3, 2));
        assert_eq!(account.dropped[0].count, 2);
        assert!(fit(&mut prompt, 10, &mut account).is_err());
    }

    #[test]
    fn what_fits_is_left_alone() {
        let (mut prompt, mut account) = (prompt(), Account::default());
        fit(&mut prompt, 1000, &mut account).unwrap();
        assert_eq!((prompt.messages.len(), account.dropped.len()), (5, 0));
        // Of a block only that counts which is sent.
        let thinking = "x".repeat(4000);
        let block = serde_json::json!({"type": "thinking", "thinking": thinking, "raw": {"signature": "s"}});
        prompt.messages[1].blocks = vec![serde_json::from_value(block).unwrap()];
        fit(&mut prompt, 200, &mut account).unwrap();
        assert_eq!(prompt.messages.len(), 5);
    }
}
