//! The join of a session: each turn with its evidence, and with the answer of the conversation or the command that it has.

use std::collections::BTreeSet;
use std::path::PathBuf;

use cp_common::Result;
use cp_ledger::format::canonical::hash_value;
use serde_json::{Value, json};

use super::{Command, Round, Session, Turn};
use crate::audit::claim::{Claims, Source, Verdict};

impl Command {
    /// True if a turn may have run the command: the command has this line, precedes the turn, and belongs to no other turn.
    fn is_it(&self, line: &str, turn: &Turn) -> bool {
        let is_before = self.ledger == turn.source.ledger && Some(self.seq) < turn.source.seq;
        !self.is_matched && is_before && self.line == line
    }
}

impl Session {
    /// True if the shell may have been killed after this time, before it could record the rest of the turn.
    fn may_be_killed(&self, ts: &str) -> bool {
        let next = self.marks.iter().find(|(at, _)| at.as_str() > ts);
        let is_later = |turn: &Turn| turn.ts.as_str() > ts && next.is_none_or(|(at, _)| turn.ts < *at);
        !next.is_some_and(|(_, is_end)| *is_end) && !self.turns.values().any(is_later)
    }

    /// The verdict if the counterpart of an entry is absent. `was_read` is true if other entries of its ledger were read.
    fn absent(what: &str, source: &Source, name: &str, file: &str, was_read: bool) -> Verdict {
        let directory = source.ledger.ancestors().skip(1).find(|directory| directory.ends_with(name));
        let is_removed = directory.is_some_and(|directory| !directory.join(file).exists());
        if was_read || is_removed {
            return Verdict::Broken(format!("{what} is not there"));
        }
        Verdict::Unknown(format!("{what} is on no ledger that was read"))
    }

    /// Judges the turns after all entries were read.
    pub(super) fn finish(
        mut self,
        name: &str,
        refused: &BTreeSet<(PathBuf, u64)>,
        claims: &mut Claims<'_>,
    ) -> Result<()> {
        let killed = || Verdict::Unknown("the shell may have been killed before it recorded the rest".to_owned());
        let first = self.turns.keys().next().copied().unwrap_or_default();
        let (mut before, turns, has_evidence) = (None::<Turn>, self.turns.clone(), !self.evidence.is_empty());
        for (number, turn) in turns {
            let evidence = self.evidence.remove(&number);
            let verdict = match &evidence {
                Some(other) => Verdict::when(turn.common == other.common, || {
                    format!("the two ledgers of turn {number} differ: {:?}, {:?}", turn.common, other.common)
                }),
                None if self.may_be_killed(&turn.ts) => killed(),
                None => Self::absent("its evidence", &turn.source, name, "ledger/evidence.jsonl", has_evidence),
            };
            claims.record(turn.source.clone(), "evidence", verdict)?;
            let is_next = number == first || self.turns.contains_key(&(number - 1));
            if !is_next && !self.evidence.contains_key(&(number - 1)) {
                let why = format!("turn {} is on no ledger", number - 1);
                claims.record(turn.source.clone(), "turn", Verdict::Broken(why))?;
            }
            let calls = evidence.as_ref().map(|evidence| evidence.calls.as_slice()).unwrap_or_default();
            let is_redacted = turn.is_redacted || evidence.as_ref().is_some_and(|evidence| evidence.is_redacted);
            let text = |call: &Value, name: &str| call.get(name)?.as_str().map(str::to_owned);
            let command = calls.iter().find_map(|call| text(call, "command"));
            let own = turn.command.strip_prefix(":!").or(turn.command.strip_prefix('!')).map(str::trim);
            let verdict = if let Some(model) = calls.iter().rev().find_map(|call| text(call, "model")) {
                self.judge_answer(&turn, &model, name)
            } else if let Some(command) =
                command.as_ref().filter(|command| is_redacted || own.is_none_or(|own| own == *command))
            {
                self.judge_command(&turn, before.as_ref(), command, is_redacted, refused)
            } else if let Some(own) = own.filter(|own| {
                evidence.is_some()
                    && (turn.is_ok || command.is_some() || self.commands.iter().any(|one| one.is_it(own, &turn)))
            }) {
                Verdict::Broken(format!("its evidence does not have the command `{own}`"))
            } else {
                Verdict::Unknown("its result went to the caller, and is on no ledger".to_owned())
            };
            claims.record(turn.source.clone(), "result_hash", verdict)?;
            before = Some(turn);
        }
        for (_, turn) in std::mem::take(&mut self.evidence) {
            let verdict = Self::absent("its turn", &turn.source, name, "ledger/exec.jsonl", !self.turns.is_empty());
            claims.record(turn.source, "evidence", verdict)?;
        }
        for round in self.rounds.iter().filter(|round| !round.is_matched) {
            let verdict = if self.may_be_killed(&round.ts) {
                killed()
            } else {
                let was_read = !self.turns.is_empty();
                Self::absent("the turn with this answer", &round.source, name, "ledger/exec.jsonl", was_read)
            };
            claims.record(round.source.clone(), "conversation", verdict)?;
        }
        Ok(())
    }

    /// Compares a turn that a model answered with the rounds of the conversation.
    fn judge_answer(&mut self, turn: &Turn, model: &str, name: &str) -> Verdict {
        // A command of the shell may repeat or change a question.
        let is_free = turn.is_redacted || turn.command.starts_with([':', '/']) || turn.command.contains(['\\', '"']);
        let fits = |round: &Round| is_free || round.is_redacted[0] || round.question.starts_with(turn.command.trim());
        let is_answer = |round: &Round| !round.is_matched && Some(&round.output) == turn.output.as_ref();
        let rounds = &mut self.rounds;
        let found = rounds.iter().position(|round| is_answer(round) && fits(round));
        if let Some(found) = found.or_else(|| rounds.iter().position(is_answer)) {
            rounds[found].is_matched = true;
            let round = &rounds[found];
            return match (fits(round), turn.is_ok && round.model.as_deref() == Some(model)) {
                (true, true) => Verdict::Holds,
                (true, false) => Verdict::Broken("the model or the status of this answer is another".to_owned()),
                (false, _) => Verdict::Broken("the question of this answer is another".to_owned()),
            };
        }
        if let Some(redacted) = rounds.iter_mut().find(|round| !round.is_matched && round.is_redacted[1]) {
            redacted.is_matched = true;
            return Verdict::Unknown("a secret was taken out of the answer".to_owned());
        }
        Self::absent("the answer with this hash", &turn.source, name, "session.jsonl", self.has_conversation)
    }

    /// Compares a turn that ran a command with the entries of cp-exec before it.
    fn judge_command(
        &mut self,
        turn: &Turn,
        before: Option<&Turn>,
        line: &str,
        is_redacted: bool,
        refused: &BTreeSet<(PathBuf, u64)>,
    ) -> Verdict {
        let ledger = &turn.source.ledger;
        let seq = |turn: &Turn| turn.source.seq.unwrap_or_default();
        let output = |status: Value| hash_value(&json!({"command": line, "status": status}));
        let mut statuses = (0..=255).map(Value::from).chain([Value::Null]);
        let status = statuses.find(|status| turn.output.as_ref() == Some(&output(status.clone())));
        let mut command = self.commands.iter_mut().rev().find(|command| command.is_it(line, turn));
        if let Some(command) = &mut command {
            command.is_matched = true;
        }
        let after = before.filter(|before| before.source.ledger == *ledger).map(seq).unwrap_or_default();
        let is_refused =
            !turn.is_ok && refused.range((ledger.clone(), after)..(ledger.clone(), seq(turn))).next().is_some();
        match (command, status) {
            (None, _) if !is_refused => Verdict::Broken(format!("the command `{line}` is not recorded before it")),
            (_, None) if is_redacted => Verdict::Unknown("a secret was taken out of the command".to_owned()),
            (_, None) => Verdict::Broken("it is not the hash of the command with any status".to_owned()),
            (None, Some(_)) => Verdict::Holds,
            (Some(command), Some(status)) => match (command.status == status, status == 0 || command.status == 0) {
                (true, _) => Verdict::when(turn.is_ok == (status == 0), || "its status is another".to_owned()),
                (false, true) => {
                    Verdict::Broken(format!("the command ended with {}, the turn says {status}", command.status))
                }
                (false, false) => {
                    Verdict::Unknown(format!("cp-exec ended with {status}, and the command with {}", command.status))
                }
            },
        }
    }
}
