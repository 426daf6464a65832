//! The calls of transcripts: each must have been decided by the hook of its host, with the same input, and a call that was refused must not
//! have a successful result.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;

use chrono::{DateTime, TimeDelta};
use cp_common::Result;
use cp_hosts::Host;
use serde_json::Value;

use super::claim::{Claims, Entry, Source};
use super::input::is_same_input;
use super::judged_call::{CallState, JudgedCall};
use crate::transcript::{Call, Item, Outcome, Status, hash_of};

/// The events of tool calls of other agents.
pub(super) const EVENTS: [&str; 6] =
    ["host.intent", "host.result", "exec.refused", "exec.intent", "exec.result", "approval.asked"];

/// The decision of the hook about a call.
struct Decision {
    source: Source,
    host: String,
    session: String,
    call: String,
    tool: String,
    /// The decision of `host.intent`; `refused` or `asked` for other entries.
    name: String,
    /// Not in the entry of a question to a person.
    input_hash: Option<String>,
    /// The hash of the command line, if the entry has it whole.
    command_hash: Option<String>,
    ts: String,
    is_matched: bool,
}

/// The entries of one call after its decision.
#[derive(Default)]
struct Run {
    intent: Option<u64>,
    result: Option<u64>,
    output: Option<(u64, String)>,
}

/// A call of the transcript that waits for its result.
struct Pending {
    judged: JudgedCall,
    /// The place of the decision, and true if its input is that of the call.
    decision: Option<(usize, bool)>,
    order: u64,
}

/// The decisions of all ledgers, and the calls of the transcripts so far.
#[derive(Default)]
pub(super) struct Calls {
    decisions: Vec<Decision>,
    /// The decisions by host and call.
    keys: HashMap<String, Vec<usize>>,
    /// The decisions by host, session, tool and input, for hosts whose hook receives no id.
    inputs: HashMap<String, VecDeque<usize>>,
    /// Entries after a decision by host, session and call, in order.
    runs: HashMap<String, VecDeque<Run>>,
    seen: HashSet<String>,
    sessions: HashSet<String>,
    pending: HashMap<String, Pending>,
    count: u64,
}

impl Calls {
    /// Collects an entry about a call of another agent.
    pub(super) fn gather(&mut self, entry: &Entry<'_>, ts: &str) {
        let text = |name: &str| entry.text(name).unwrap_or_default().to_owned();
        let (host, session, call) = (text("host"), text("host_session"), text("host_call"));
        if host.is_empty() || call.is_empty() {
            return;
        }
        let asked = entry.data.get("asked").and_then(Value::as_object);
        // The hook inside of an agent reports its input.
        let reported = entry.data.get("reported").and_then(Value::as_object);
        let input_text = |name: &str| {
            let reported = reported.and_then(|reported| reported.get(name)?.as_str());
            entry.text(name).or(reported).map(str::to_owned)
        };
        let asked_text = |name: &str| asked.and_then(|asked| asked.get(name)?.as_str()).map(str::to_owned);
        let runs = self.runs.entry(key(&[&host, &session, &call])).or_default();
        let mut decide = |name: String, tool: Option<String>, input_hash: Option<String>, command: Option<String>| {
            let tool = tool.unwrap_or_default();
            self.keys.entry(key(&[&host, &call])).or_default().push(self.decisions.len());
            if let Some(hash) = &input_hash {
                let place = key(&[&host, &session, &tool, hash]);
                self.inputs.entry(place).or_default().push_back(self.decisions.len());
            }
            self.decisions.push(Decision {
                source: entry.source(),
                host: host.clone(),
                session: session.clone(),
                call: call.clone(),
                tool,
                name,
                input_hash,
                command_hash: command.filter(|_| !entry.is_redacted()).map(|command| hash_of(&command.into())),
                ts: ts.to_owned(),
                is_matched: false,
            });
        };
        match entry.event.as_str() {
            "host.intent" => decide(
                text("decision"),
                Some(text("tool")),
                Some(input_text("input_hash").unwrap_or_default()),
                input_text("command"),
            ),
            // A refusal by the run itself has another form, and counts as a start.
            "exec.refused" if asked_text("input_hash").is_some() => {
                decide("refused".to_owned(), asked_text("tool"), asked_text("input_hash"), asked_text("command"));
            }
            "approval.asked" => decide("asked".to_owned(), None, None, None),
            "exec.refused" | "exec.intent" => runs.push_back(Run { intent: Some(entry.seq), ..Run::default() }),
            "exec.result" => {
                if let Some(run) = runs.iter_mut().find(|run| run.intent == entry.number("intent")) {
                    run.result = Some(entry.seq);
                }
            }
            "host.result" => {
                let hash = entry.data.get("output").and_then(|output| output.get("sha256")?.as_str());
                let output = Some((entry.seq, hash.unwrap_or_default().to_owned()));
                match runs.iter_mut().find(|run| run.output.is_none()) {
                    Some(run) => run.output = output,
                    None => runs.push_back(Run { output, ..Run::default() }),
                }
            }
            _ => {}
        }
    }

    /// Takes the next part of a transcript.
    pub(super) fn judge(&mut self, path: &Path, host: Host, item: Item, claims: &mut Claims<'_>) -> Result<()> {
        match item {
            Item::Call(call) => self.call(path, host, call, claims),
            Item::Outcome(outcome) => match self.pending.remove(&key(&[host.name(), &outcome.session, &outcome.id])) {
                Some(pending) => self.settle(pending, Some(&outcome), claims),
                None => Ok(()),
            },
        }
    }

    fn call(&mut self, path: &Path, host: Host, call: Call, claims: &mut Claims<'_>) -> Result<()> {
        let input_hash = hash_of(&Value::Object(call.input.clone()));
        let ts = call.ts.clone().unwrap_or_default();
        self.sessions.insert(key(&[host.name(), &call.session]));
        // A resumed or forked session repeats its history.
        if !self.seen.insert(key(&[host.name(), &call.id, &input_hash, &ts])) {
            return Ok(());
        }
        let decision = if call.has_id {
            self.decision_of(host, &call, &input_hash)
        } else {
            let place = key(&[host.name(), &call.session, &call.tool, &input_hash]);
            self.inputs.get_mut(&place).and_then(VecDeque::pop_front).map(|index| (index, true))
        };
        if let Some((index, _)) = decision {
            self.decisions[index].is_matched = true;
        }
        self.count += 1;
        let place = key(&[host.name(), &call.session, &call.id]);
        let judged = JudgedCall {
            session: call.session,
            call: call.id,
            tool: call.tool,
            transcript: Some(path.display().to_string()),
            place: Some(call.place),
            ..JudgedCall::of(host.name(), CallState::Unseen)
        };
        let before = self.pending.insert(place, Pending { judged, decision, order: self.count });
        before.map_or(Ok(()), |before| self.settle(before, None, claims))
    }

    /// The decision about a call whose id the hook received, and true if its input is the same.
    fn decision_of(&self, host: Host, call: &Call, input_hash: &str) -> Option<(usize, bool)> {
        let found = self.keys.get(&key(&[host.name(), &call.id]))?;
        let near = found.iter().copied().filter(|index| {
            let decision = &self.decisions[*index];
            decision.session == call.session || is_soon_after(call.ts.as_deref(), &decision.ts)
        });
        let judged = near.map(|index| (index, self.decisions[index].is_about(call, input_hash)));
        // The newest decision about this input, in its own session if there is one.
        judged.max_by_key(|(index, is_same)| (*is_same, self.decisions[*index].session == call.session, *index))
    }

    fn settle(&mut self, pending: Pending, outcome: Option<&Outcome>, claims: &mut Claims<'_>) -> Result<()> {
        let Pending { mut judged, decision, .. } = pending;
        let status = outcome.map(|outcome| outcome.status);
        let Some((index, is_same)) = decision else {
            (judged.state, judged.holds, judged.why) = match status {
                Some(Status::Rejected) => {
                    (CallState::Rejected, None, Some("the host rejected the call before it asked its hook"))
                }
                _ => (CallState::Unseen, Some(false), Some("no entry decides about the call")),
            };
            return claims.call(&judged);
        };
        let decision = &self.decisions[index];
        decision.describe(&mut judged);
        let runs = self.runs.get_mut(&key(&[&decision.host, &decision.session, &decision.call]));
        let run = runs.and_then(VecDeque::pop_front).unwrap_or_default();
        (judged.run, judged.ended) = (run.intent, run.result);
        if let Some((seq, hash)) = run.output {
            judged.same_result = outcome.and_then(|outcome| outcome.hash.as_ref()).map(|found| *found == hash);
            (judged.result, judged.result_hash) = (Some(seq), Some(hash));
        }
        (judged.state, judged.holds, judged.why) = match (is_same, decision.is_refusal(), status) {
            (false, ..) => (CallState::Contradicted, Some(false), Some("the entry is about another tool or input")),
            (true, true, Some(Status::Succeeded)) => (
                CallState::Contradicted,
                Some(false),
                Some("the entry does not allow the call, but the transcript has a successful result"),
            ),
            (true, true, _) => (CallState::Refused, Some(true), None),
            (true, false, Some(Status::Succeeded)) if decision.name == "rewrite" && run.intent.is_none() => (
                CallState::Decided,
                None,
                Some("the command was to run in the sandbox, but no run has the id of the call"),
            ),
            (true, false, _) => (CallState::Decided, Some(true), None),
        };
        claims.call(&judged)
    }

    /// Judges calls without a result, and decisions without a call.
    pub(super) fn finish(mut self, claims: &mut Claims<'_>) -> Result<()> {
        let mut pending: Vec<_> = std::mem::take(&mut self.pending).into_values().collect();
        pending.sort_by_key(|pending| pending.order);
        pending.into_iter().try_for_each(|pending| self.settle(pending, None, claims))?;
        for decision in self.decisions.iter().filter(|decision| !decision.is_matched) {
            if decision.name == "asked" || !self.sessions.contains(&key(&[&decision.host, &decision.session])) {
                continue;
            }
            let mut absent = JudgedCall {
                session: decision.session.clone(),
                call: decision.call.clone(),
                tool: decision.tool.clone(),
                why: Some("the transcripts do not have the call"),
                ..JudgedCall::of(&decision.host, CallState::Absent)
            };
            decision.describe(&mut absent);
            claims.call(&absent)?;
        }
        Ok(())
    }
}

impl Decision {
    fn describe(&self, judged: &mut JudgedCall) {
        judged.ledger = Some(self.source.ledger.display().to_string());
        (judged.seq, judged.decision) = (self.source.seq, Some(self.name.clone()));
    }

    fn is_refusal(&self) -> bool {
        ["refused", "asked", "deny", "defer"].contains(&self.name.as_str())
    }

    /// True if the decision is about the tool and the input of a call.
    fn is_about(&self, call: &Call, input_hash: &str) -> bool {
        let Some(hash) = &self.input_hash else { return true };
        if self.tool != call.tool {
            return false;
        }
        let command = call.input.get("command").filter(|_| self.command_hash.is_some()).map(hash_of);
        hash == input_hash || (command.is_some() && command == self.command_hash) || is_same_input(call, hash)
    }
}

/// True if a decision in another session may be about a call that a fork copied: it was made within a minute of the call.
fn is_soon_after(call: Option<&str>, decision: &str) -> bool {
    let time = |text: &str| DateTime::parse_from_rfc3339(text).ok();
    let (Some(call), Some(decision)) = (call.and_then(time), time(decision)) else { return false };
    (decision - call).abs() <= TimeDelta::minutes(1)
}

fn key(parts: &[&str]) -> String {
    parts.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn call(input: Value) -> Call {
        let Value::Object(input) = input else { unreachable!() };
        Call { input, cwd: Some("/work".into()), ..Call::default() }
    }

    proptest! {
        #[test]
        fn input_in_another_order_is_same_and_with_another_value_differs(
            names in proptest::collection::hash_set("[a-z]{1,4}", 1..6),
            seed in any::<u64>(),
        ) {
            let members: Vec<_> = names.iter().map(|name| (name.clone(), json!(format!("{name}{seed}")))).collect();
            let own = call(Value::Object(members.iter().cloned().collect()));
            let mut turned = members;
            turned.rotate_left(usize::try_from(seed % 7).unwrap() % names.len());
            let hash = |members: &[(String, Value)]| hash_of(&Value::Object(members.iter().cloned().collect()));
            prop_assert!(is_same_input(&own, &hash(&turned)));
            turned[0].1 = json!("another");
            prop_assert!(!is_same_input(&own, &hash(&turned)));
        }
    }

    #[test]
    fn input_with_relative_path_or_default_is_same() {
        let hash = |value: Value| hash_of(&value);
        let own = call(json!({"path": "f", "all": false}));
        assert!(is_same_input(&own, &hash(json!({"path": "/work/f"}))));
        assert!(!is_same_input(&own, &hash(json!({"path": "/other/f"}))));
        assert!(!is_same_input(&call(json!({"path": "f", "all": true})), &hash(json!({"path": "/work/f"}))));
    }
}
