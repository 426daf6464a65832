//! Agents: the run that a call began has this run as its parent, the task as its question and its answer as the result of the call; and the
//! tally of a run includes those of its agents.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use cp_common::Result;
use serde_json::Value;

use super::Run;
use super::budget::Budget;
use super::calls::text_of;
use crate::audit::check::{Check, at};
use crate::audit::claim::{Claims, Entry, Source, Verdict};

/// The runs that were begun by calls, and what is known of them.
#[derive(Default)]
pub(super) struct Links {
    /// By the run that made the call.
    calls: BTreeMap<String, Vec<Link>>,
    runs: HashMap<String, Known>,
    /// Tallies that include agents, which are judged after all ledgers were read.
    tallies: Vec<(Source, Value, Budget, Vec<String>)>,
}

/// A call of an agent.
struct Link {
    source: Source,
    call: String,
    run: String,
    task: String,
    is_redacted: bool,
    /// The result of the call.
    result: Option<(Source, String, bool)>,
}

/// The run of an agent.
#[derive(Default)]
struct Known {
    parent: Option<String>,
    question: String,
    answer: String,
    is_redacted: bool,
    has_ended: bool,
    tally: Value,
}

impl Links {
    pub(super) fn begin(&mut self, run: &str, entry: &Entry<'_>) {
        let parent = entry.text("parent").map(str::to_owned);
        let known =
            Known { parent, question: text_of(&entry.content), is_redacted: entry.is_redacted(), ..Known::default() };
        self.runs.insert(run.to_owned(), known);
    }

    /// Judges the start of an agent, and returns the place of its ledger.
    pub(super) fn start(
        &mut self,
        parent: &str,
        run: &mut Run,
        entry: &Entry<'_>,
        claims: &mut Claims<'_>,
    ) -> Result<Option<PathBuf>> {
        let mut check = Check::of(entry);
        let name = entry.text("run_id").unwrap_or_default().to_owned();
        // Any other name could lead out of the directory.
        let is_run = name.starts_with("RUN-") && !name.contains('/');
        check.that(is_run, || format!("`{name}` is not a run"));
        let mut task = String::new();
        match run.call_of(entry.text("call")) {
            Some(call) => {
                check.same("the tool", call.name.as_str(), "agent");
                check.that(!call.is_answered, || "the call has a result already".to_owned());
                check.that(call.agent.is_none(), || "the call has an agent already".to_owned());
                (task, call.agent) = (text_of(at(&call.input, &["task"])), Some(name.clone()));
            }
            None => drop(check.that(false, || "the message has no such call".to_owned())),
        }
        claims.record(entry.source(), "agent", check.verdict())?;
        let call = entry.text("call").unwrap_or_default().to_owned();
        let (source, is_redacted) = (entry.source(), entry.is_redacted());
        let path = is_run.then(|| entry.ledger.with_file_name(format!("{name}.jsonl")));
        let link = Link { source, call, run: name, task, is_redacted, result: None };
        self.calls.entry(parent.to_owned()).or_default().push(link);
        Ok(path)
    }

    /// Takes the answer and the tally of a run, and the result of a call of an agent.
    pub(super) fn follow(&mut self, run: &str, entry: &Entry<'_>) {
        if let Some(known) = self.runs.get_mut(run) {
            match entry.event.as_str() {
                "message" => {
                    known.answer = text_of(&entry.content);
                    known.is_redacted |= entry.is_redacted();
                }
                "run_end" => known.has_ended = entry.text("status") == Some("completed"),
                _ => {}
            }
            if let Some(tally) = entry.data.get("tally") {
                known.tally = tally.clone();
            }
        }
        if entry.event == "tool_result" {
            let mut links = self.calls.get_mut(run).into_iter().flatten().rev();
            let link = links.find(|link| Some(link.call.as_str()) == entry.text("id") && link.result.is_none());
            if let Some(link) = link {
                let is_error = entry.data.get("is_error") == Some(&Value::Bool(true));
                link.result = Some((entry.source(), text_of(&entry.content), is_error));
            }
        }
    }

    /// The verdict on a tally; none if it includes agents, so that it is judged at the end.
    pub(super) fn tally(&mut self, run: &str, entry: &Entry<'_>, tally: &Value, sum: Budget) -> Option<Verdict> {
        let counted = self.calls.get(run).into_iter().flatten().filter(|link| link.result.is_some());
        let agents: Vec<String> = counted.map(|link| link.run.clone()).collect();
        if agents.is_empty() {
            return Some(sum.judge(tally, true));
        }
        self.tallies.push((entry.source(), tally.clone(), sum, agents));
        None
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for (parent, link) in self.calls.iter().flat_map(|(parent, links)| links.iter().map(move |link| (parent, link)))
        {
            let Some(known) = self.runs.get(&link.run) else {
                let why = format!("the ledger of {} is not there", link.run);
                claims.record(link.source.clone(), "agent", Verdict::Unknown(why))?;
                continue;
            };
            let mut check = Check::new(link.is_redacted || known.is_redacted);
            check.same("the parent", known.parent.as_deref(), Some(parent.as_str()));
            check.text("the question", known.question.as_str(), link.task.as_str());
            claims.record(link.source.clone(), "agent", check.verdict())?;
            if let Some((source, text, is_error)) = &link.result {
                let mut check = Check::new(known.is_redacted);
                check.that(known.has_ended || *is_error, || format!("{} has not ended", link.run));
                if !is_error {
                    let is_cut = text.contains(" bytes are left out here, the whole is sha256:");
                    let holds = text.starts_with(&known.answer) || is_cut;
                    check.text("that the result is the answer of the agent", holds, true);
                }
                claims.record(source.clone(), "agent", check.verdict())?;
            }
        }
        for (source, tally, mut sum, agents) in self.tallies {
            let mut has_all = true;
            for agent in agents {
                match self.runs.get(&agent) {
                    Some(known) => sum.delegate(&known.tally),
                    None => has_all = false,
                }
            }
            claims.record(source, "budget", sum.judge(&tally, has_all))?;
        }
        Ok(())
    }
}
