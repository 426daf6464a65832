//! What may be spent: by this process, or by all that share a budget file. Nothing is sent once it is used up.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use cp_common::home::lock;
use cp_common::wire::Usage;
use cp_common::{Code, Error, Result};
use serde::{Deserialize, Serialize};

use super::again::with_limits;

/// What part of the limit is reserved at a time: a process that is killed loses at most this much.
const SLICES: f64 = 50.0;

/// A limit on dollars, tokens or both.
pub(crate) struct Budget {
    limits: Spent,
    file: Option<PathBuf>,
    state: Mutex<State>,
}

/// Dollars and tokens. Tokens are counted as a float too: exact up to 2^53.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Spent {
    usd: f64,
    tokens: f64,
}

#[derive(Default)]
struct State {
    /// What this process has used.
    used: Spent,
    /// What it has reserved in the file, its use included.
    reserved: Spent,
}

impl Budget {
    /// A budget; `None` where nothing is limited.
    pub(crate) fn new(usd: Option<f64>, tokens: Option<u64>, file: Option<&Path>) -> Result<Option<Self>> {
        if usd.is_none() && tokens.is_none() {
            return match file {
                Some(_) => Err(Error::usage("--budget-file needs a limit: --budget-usd or --budget-tokens")),
                None => Ok(None),
            };
        }
        if usd.is_some_and(|usd| usd.is_nan() || usd < 0.0) {
            return Err(Error::usage("--budget-usd must be a number of dollars"));
        }
        #[expect(clippy::cast_precision_loss, reason = "a limit beyond 2^53 tokens is none")]
        let limits =
            Spent { usd: usd.unwrap_or(f64::INFINITY), tokens: tokens.map_or(f64::INFINITY, |tokens| tokens as f64) };
        Ok(Some(Self { limits, file: file.map(Path::to_owned), state: Mutex::default() }))
    }

    /// Whether dollars are limited: then every model must have a price.
    pub(crate) fn counts_dollars(&self) -> bool {
        self.limits.usd.is_finite()
    }

    /// Lets a request through, if there is something left.
    pub(crate) fn admit(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let left = |have: &Spent, used: &Spent| used.usd < have.usd && used.tokens < have.tokens;
        let Some(file) = &self.file else {
            return if left(&self.limits, &state.used) { Ok(()) } else { Err(self.exhausted(&state.used)) };
        };
        if left(&state.reserved, &state.used) {
            return Ok(());
        }
        let mut refused = None;
        let State { used, reserved } = &mut *state;
        change(file, |spent| {
            let take = |limit: f64, spent: f64, reserved: f64, used: f64| {
                if limit.is_infinite() {
                    return f64::INFINITY;
                }
                // Enough for what was used beyond the reservation, and one slice more.
                ((used - reserved).max(0.0) + limit / SLICES).min(limit - spent)
            };
            let usd = take(self.limits.usd, spent.usd, reserved.usd, used.usd);
            let tokens = take(self.limits.tokens, spent.tokens, reserved.tokens, used.tokens);
            if usd <= 0.0 || tokens <= 0.0 {
                refused = Some(*spent);
                return;
            }
            for (take, spent, reserved) in
                [(usd, &mut spent.usd, &mut reserved.usd), (tokens, &mut spent.tokens, &mut reserved.tokens)]
            {
                *reserved += take;
                if take.is_finite() {
                    *spent += take;
                }
            }
        })?;
        match refused {
            Some(spent) => Err(self.exhausted(&spent)),
            None if left(&state.reserved, &state.used) => Ok(()),
            None => Err(self.exhausted(&state.used)),
        }
    }

    /// Counts what a request has used.
    pub(crate) fn count(&self, usage: &Usage) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let tokens = usage.input_tokens + usage.output_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
        state.used.usd += usage.cost_usd.unwrap_or(0.0);
        #[expect(clippy::cast_precision_loss, reason = "token counts are far below 2^53")]
        let tokens = tokens as f64;
        state.used.tokens += tokens;
    }

    /// Gives back what was reserved and not used, or books what was used beyond it.
    pub(crate) fn settle(&self) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(file) = self.file.as_ref().filter(|_| state.reserved != Spent::default()) else { return Ok(()) };
        let State { used, reserved } = &mut *state;
        change(file, |spent| {
            for (used, reserved, spent) in
                [(used.usd, &mut reserved.usd, &mut spent.usd), (used.tokens, &mut reserved.tokens, &mut spent.tokens)]
            {
                *spent += if reserved.is_finite() { used - *reserved } else { used };
            }
        })?;
        *state = State::default();
        Ok(())
    }

    fn exhausted(&self, spent: &Spent) -> Error {
        let mut error = Error::new(Code::BudgetExhausted, "the budget is used up")
            .with("action", "raise_budget")
            // Twice the limit may be less than was spent: by others too, or by one large answer.
            .with(
                "resume",
                with_limits(self.limits.usd.max(spent.usd) * 2.0, (self.limits.tokens.max(spent.tokens) * 2.0).ceil()),
            )
            .with("spent_tokens", spent.tokens)
            .hint("raise --budget-usd or --budget-tokens; --resume OUT leaves out what is done")
            .fatal();
        if self.counts_dollars() {
            error = error.with("spent_usd", spent.usd).with("budget_usd", self.limits.usd);
        }
        if self.limits.tokens.is_finite() {
            error = error.with("budget_tokens", self.limits.tokens);
        }
        error
    }
}

/// Changes the file's sums under its lock, and returns when the disk has them.
fn change(path: &Path, change: impl FnOnce(&mut Spent)) -> Result<()> {
    let wrong = |e: std::io::Error| Error::io("the budget file", e).in_file(path).fatal();
    let file: File =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path).map_err(wrong)?;
    lock(&file).map_err(|e| e.in_file(path).fatal())?;
    let mut text = vec![0; usize::try_from(file.metadata().map_err(wrong)?.len()).unwrap_or(0).min(4096)];
    file.read_exact_at(&mut text, 0).map_err(wrong)?;
    let mut spent = if text.is_empty() {
        Spent::default()
    } else {
        serde_json::from_slice(&text)
            .map_err(|e| Error::config(format!("not a budget file: {e}")).in_file(path).fatal())?
    };
    change(&mut spent);
    // Always the same length, in one write: a reader never meets half of it.
    let line = format!("{{\"usd\":{:>24.9},\"tokens\":{:>20.1}}}\n", spent.usd.max(0.0), spent.tokens.max(0.0));
    file.write_all_at(line.as_bytes(), 0).and_then(|()| file.sync_data()).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(tokens: u64) -> Usage {
        Usage { input_tokens: tokens, ..Usage::default() }
    }

    #[test]
    fn requests_pass_until_the_limit_is_reached() {
        let budget = Budget::new(None, Some(10), None).unwrap().unwrap();
        for _ in 0..2 {
            budget.admit().unwrap();
            budget.count(&tokens(5));
        }
        let error = budget.admit().unwrap_err();
        assert_eq!((error.code(), error.is_fatal()), (Code::BudgetExhausted, true));
        assert_eq!(error.details()["action"], "raise_budget");
    }

    #[test]
    fn two_processes_share_a_file_and_give_back_what_they_did_not_use() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("budget");
        let share = || Budget::new(None, Some(100), Some(&file)).unwrap().unwrap();
        let (one, two) = (share(), share());
        for budget in [&one, &two] {
            budget.admit().unwrap();
            budget.count(&tokens(45));
        }
        one.settle().unwrap();
        two.admit().unwrap();
        two.count(&tokens(10));
        two.settle().unwrap();
        let spent: Spent = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(spent, Spent { usd: 0.0, tokens: 100.0 });
        assert_eq!(share().admit().unwrap_err().code(), Code::BudgetExhausted);
    }

    #[test]
    fn a_process_that_was_killed_leaves_at_most_a_slice_reserved() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("budget");
        let killed = Budget::new(Some(1.0), None, Some(&file)).unwrap().unwrap();
        killed.admit().unwrap();
        drop(killed);
        let spent: Spent = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        assert_eq!(spent, Spent { usd: 0.02, tokens: 0.0 });
    }

    #[test]
    fn another_file_is_not_taken_for_a_budget() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("notes");
        std::fs::write(&file, "hello").unwrap();
        let budget = Budget::new(None, Some(1), Some(&file)).unwrap().unwrap();
        assert_eq!(budget.admit().unwrap_err().code(), Code::Config);
        assert_eq!(std::fs::read(&file).unwrap(), b"hello");
        assert!(Budget::new(None, None, Some(&file)).is_err());
    }
}
