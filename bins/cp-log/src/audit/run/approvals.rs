//! Approvals: a request shows its action, a grant answers an open request, and the call of the request spends it once, for that action. A start
//! that requires confirmation has an approval or a token.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta};
use cp_common::Result;
use cp_common::program::approval::id_of;
use cp_common::wire::{Action, Approval, How};
use cp_hosts::difference;
use cp_ledger::format::line::Hash;
use cp_ledger::store::blob;
use serde_json::Value;

use super::Run;
use super::effects::leads_to;
use crate::audit::check::{Check, at};
use crate::audit::claim::{Claims, Entry, Source, Verdict};

/// The rules by which the call of a tool requires approval.
const TOOL_RULES: [&str; 4] = ["tool.approve", "tools.approve", "unfinished", "mcp.input"];

/// The requests, grants and tokens of all ledgers so far.
#[derive(Default)]
pub(super) struct Approvals {
    /// The newest request by its ledger and id.
    asked: HashMap<(PathBuf, String), Asked>,
    /// The newest grant by its id.
    granted: HashMap<String, Granted>,
    /// Grants that were spent and whose start is not read yet, in order.
    spent: Vec<Spent>,
    /// Steps that required an approval and have not spent it, by ledger and id.
    steps: HashMap<(PathBuf, String), u64>,
    /// The tokens that were spent, and for what: one token may cover a set, but each member of it once.
    tokens: HashSet<String>,
    /// Grants without a request on their own ledger: the grant with its claim.
    elsewhere: Vec<(Source, String)>,
}

struct Asked {
    approval: Approval,
    is_open: bool,
    is_redacted: bool,
}

struct Granted {
    source: Source,
    hash: String,
    by: Option<String>,
    how: Option<Value>,
    scope: Option<Value>,
    through: Option<String>,
    is_spent: bool,
}

struct Spent {
    source: Source,
    call: Option<String>,
    approval: Approval,
    is_redacted: bool,
}

impl Approvals {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, run: Option<&mut Run>, claims: &mut Claims<'_>) -> Result<()> {
        let verdict = match entry.event.as_str() {
            "approval.asked" => Some(self.ask(entry, run)),
            "approval.granted" => self.grant(entry, run.is_some()),
            "approval.denied" => Some(self.deny(entry, run)),
            "approval.spent" => Some(self.spend(entry, run)),
            "exec.step" => entry.text("approval").map(|id| self.step(entry, id)),
            "exec.intent" => {
                let [requires, confirmed] = ["requires", "confirmed"].map(|name| entry.data.get(name));
                self.start(entry, run.is_some(), entry.text("call"), requires, confirmed)
            }
            "exec.operation" => {
                let what = entry.data.get("what").cloned().unwrap_or_default();
                let first = what.get("writes").and_then(|writes| writes.get(0));
                let replaces = first.filter(|write| write.get("mode").is_some_and(|mode| mode == "overwrite"));
                let call = entry.text("call").or(at(&what, &["call"]).as_str());
                // A call of a run may overwrite a file below the directory of the run, because the run can undo it.
                let base = run.as_ref().filter(|_| call.is_some()).map(|run| Path::new(&run.base));
                let is_below = |path: &str| base.is_some_and(|base| Path::new(path).starts_with(base));
                let replaces = replaces.filter(|write| !at(write, &["path"]).as_str().is_some_and(is_below));
                self.start(entry, run.is_some(), call, replaces, what.get("confirmed"))
            }
            _ => None,
        };
        verdict.map_or(Ok(()), |verdict| claims.record(entry.source(), "approval", verdict))
    }

    /// Judges a request: its id is that of its bindings, and it shows the call.
    fn ask(&mut self, entry: &Entry<'_>, run: Option<&mut Run>) -> Verdict {
        let mut check = Check::of(entry);
        let value = entry.data.get("approval").cloned().unwrap_or_default();
        let Ok(approval) = serde_json::from_value::<Approval>(value) else {
            return Verdict::Broken("the request cannot be parsed".to_owned());
        };
        check.same("id", entry.text("id"), Some(approval.id.as_str()));
        let id = id_of(&approval).unwrap_or_default();
        check.that(approval.id == id || approval.id == id_before_calls(&approval), || {
            format!("the id of this request is {id}, not {}", approval.id)
        });
        let by = &approval.asked_by;
        check.same("call", entry.text("call"), by.call_id.as_deref());
        check.same("run", entry.run.as_ref(), by.run.as_ref());
        check.same("session", entry.session.as_ref(), by.session.as_ref());
        check.same("agent", entry.agent.as_deref(), Some(by.agent.as_str()));
        check.text("message", entry.message.as_deref(), Some(approval.shown.why.as_str()));
        let resume = ["cp-exec", "approve", &approval.id];
        check.same("resume", approval.resume.iter().map(String::as_str).collect::<Vec<_>>(), resume.to_vec());
        let time = |text: &str| DateTime::parse_from_rfc3339(text).ok();
        let lifetime = time(&approval.asked_at).zip(time(&approval.expires_at)).map(|(asked, expires)| expires - asked);
        check.that(lifetime == Some(TimeDelta::days(7)), || "it does not expire a week after it was asked".to_owned());
        check.that(seconds(&approval.asked_at) <= seconds(&entry.ts), || "it was asked after its entry".to_owned());
        if let (Some(run), Some(id)) = (run, by.call_id.as_deref()) {
            let base = PathBuf::from(&run.base);
            match run.call_of(Some(id)) {
                None => drop(check.that(false, || "the message has no such call".to_owned())),
                Some(call) => {
                    check.that(!call.is_answered, || "the call has a result already".to_owned());
                    call.is_denied = false;
                    let shown = &approval.shown;
                    let is_of_loop = by.program == "cp-toolloop"
                        && shown.risk == "medium"
                        && TOOL_RULES.contains(&shown.rule.as_str());
                    check.that(is_of_loop || shown.tool.is_none() || by.program == "cp-mcp", || {
                        "a tool is not asked about so".to_owned()
                    });
                    check.that(shown.tool.is_some() || by.program == "cp-exec", || {
                        "a program of a run is not asked about so".to_owned()
                    });
                    if is_of_loop {
                        check.same("the tool", shown.tool.as_deref(), Some(call.name.as_str()));
                        check.text("the arguments", shown.input.as_ref(), Some(&call.input));
                    }
                    let path =
                        call.input.get("path").or(call.input.get("arguments").and_then(|input| input.get("path")));
                    if let (Some(path), Some(shown)) = (path.and_then(Value::as_str), &shown.path) {
                        let name = path.rsplit('/').next().unwrap_or_default();
                        let asked = base.join(path);
                        if asked != Path::new(shown) && !leads_to(&asked, shown) {
                            let is_possible = shown.ends_with(name) || path.contains("..");
                            check.text("that the path is that of the call", is_possible, true);
                            check
                                .unknown("the path of the call led to the file over a directory that is not there now");
                        }
                    }
                    if let Some(argv) = call.input.get("argv").filter(|_| call.name == "shell") {
                        check.text("argv", serde_json::to_value(&shown.argv).ok().as_ref(), Some(argv));
                    }
                }
            }
        }
        let key = (entry.ledger.to_owned(), approval.id.clone());
        self.asked.insert(key, Asked { approval, is_open: true, is_redacted: entry.is_redacted() });
        check.verdict()
    }

    /// Judges a grant: it answers an open request, by a channel that its level accepts, before it expires. None if the request may be on
    /// another ledger.
    fn grant(&mut self, entry: &Entry<'_>, is_in_run: bool) -> Option<Verdict> {
        let id = entry.text("id").unwrap_or_default().to_owned();
        let (how, scope) = (entry.data.get("how").cloned(), entry.data.get("scope").cloned());
        let granted = Granted {
            source: entry.source(),
            hash: entry.hash.clone(),
            by: entry.text("by").map(str::to_owned),
            how: how.clone(),
            scope: scope.clone(),
            through: entry.text("through").map(str::to_owned),
            is_spent: false,
        };
        self.granted.insert(id.clone(), granted);
        let mut check = Check::of(entry);
        let channel = how.and_then(|how| serde_json::from_value::<How>(how).ok());
        check.that(channel.is_some(), || "the channel of the grant is not one".to_owned());
        check.that(is_grantor(entry, channel), || {
            format!("`{}` did not answer by this channel", entry.text("by").unwrap_or("null"))
        });
        let key = (entry.ledger.to_owned(), id.clone());
        let Some(asked) = self.asked.get_mut(&key) else {
            if !is_in_run {
                self.elsewhere.push((entry.source(), id));
                return None;
            }
            check.that(false, || "nothing was asked before it".to_owned());
            return Some(check.verdict());
        };
        check.that(asked.is_open, || "the request was answered before".to_owned());
        asked.is_open = false;
        let takes = channel.is_none_or(|channel| asked.approval.level.takes(channel));
        check.that(takes, || "the request requires its owner, who did not grant it".to_owned());
        check.that(seconds(&entry.ts) <= seconds(&asked.approval.expires_at), || "the request had expired".to_owned());
        let is_scope = scope.is_some_and(|scope| {
            asked.approval.scopes.iter().any(|one| serde_json::to_value(one).ok().as_ref() == Some(&scope))
        });
        check.that(is_scope, || "the request has no such scope".to_owned());
        check.same("call", entry.text("call"), asked.approval.asked_by.call_id.as_deref());
        judge_subject(entry, asked, &mut check);
        Some(check.verdict())
    }

    /// Judges a denial: it answers an open request, and the call is not started.
    fn deny(&mut self, entry: &Entry<'_>, run: Option<&mut Run>) -> Verdict {
        let mut check = Check::of(entry);
        let call = entry.text("call");
        match self.asked.get_mut(&(entry.ledger.to_owned(), entry.text("id").unwrap_or_default().to_owned())) {
            Some(asked) => {
                check.that(asked.is_open, || "the request was answered before".to_owned());
                asked.is_open = false;
                check.same("call", call, asked.approval.asked_by.call_id.as_deref());
                judge_subject(entry, asked, &mut check);
            }
            None => drop(check.that(run.is_none(), || "nothing was asked before it".to_owned())),
        }
        if let Some(call) = run.and_then(|run| run.call_of(call)) {
            call.is_denied = true;
        }
        check.verdict()
    }

    /// Judges the use of a grant: it is the one of its receipt, it was not spent before, and the call that asked spends it.
    fn spend(&mut self, entry: &Entry<'_>, run: Option<&mut Run>) -> Verdict {
        let mut check = Check::of(entry);
        let id = entry.text("id").unwrap_or_default().to_owned();
        let asked = self.asked.get(&(entry.ledger.to_owned(), id.clone()));
        if let Some(granted) = self.granted.get_mut(&id) {
            let receipt = entry.data.get("receipt").filter(|receipt| !receipt.is_null());
            check.that(receipt.is_none_or(|receipt| at(receipt, &["hash"]) == granted.hash.as_str()), || {
                "its receipt is not that of the grant".to_owned()
            });
            check.same("by", entry.text("by"), granted.by.as_deref());
            check.same("how", entry.data.get("how"), granted.how.as_ref());
            check.same("scope", entry.data.get("scope"), granted.scope.as_ref());
            check.same("through", entry.text("through"), granted.through.as_deref());
            check.that(!granted.is_spent, || "approved once, run again".to_owned());
            granted.is_spent = true;
        } else {
            let is_elsewhere = at(entry.data.get("receipt").unwrap_or(&Value::Null), &["ledger"]).as_str();
            let is_elsewhere = is_elsewhere.is_some_and(|ledger| Some(ledger) != entry.ledger.to_str());
            check.that(is_elsewhere || run.is_none(), || "nothing was granted before it".to_owned());
            check.unknown("the grant is on another ledger, which was not read before");
        }
        let Some(asked) = asked else {
            check.that(run.is_none(), || "nothing was asked before it".to_owned());
            return check.verdict();
        };
        check.same("call", entry.text("call"), asked.approval.asked_by.call_id.as_deref());
        let is_of_loop = asked.approval.asked_by.program == "cp-toolloop";
        if let Some(call) = run.and_then(|run| run.call_of(entry.text("call"))) {
            check.that(!call.is_denied, || "denied, but run".to_owned());
            call.is_approved |= is_of_loop;
        }
        let key = (entry.ledger.to_owned(), id);
        let waits = self.steps.get_mut(&key).filter(|waits| **waits > 0);
        if let Some(waits) = waits {
            *waits -= 1;
        } else if !is_of_loop {
            let call = entry.text("call").map(str::to_owned);
            let (source, approval) = (entry.source(), asked.approval.clone());
            self.spent.push(Spent { source, call, approval, is_redacted: asked.is_redacted });
        }
        check.verdict()
    }

    /// Judges a step that requires approval: the request shows this program.
    fn step(&mut self, entry: &Entry<'_>, id: &str) -> Verdict {
        let mut check = Check::of(entry);
        let key = (entry.ledger.to_owned(), id.to_owned());
        match self.asked.get(&key) {
            Some(Asked { approval, is_redacted, .. }) => {
                check = Check::new(entry.is_redacted() || *is_redacted);
                check.text(
                    "argv",
                    entry.data.get("argv_as_asked"),
                    serde_json::to_value(&approval.shown.argv).ok().as_ref(),
                );
                check.text("cwd", entry.text("cwd"), approval.shown.cwd.as_deref());
                check.same("rule", entry.text("rule"), Some(approval.shown.rule.as_str()));
                check.text("reason", entry.text("reason"), Some(approval.shown.why.as_str()));
                check.same(
                    "the program",
                    at(entry.data.get("exe").unwrap_or(&Value::Null), &["sha256"]).as_str(),
                    approval.binds.program.as_deref(),
                );
                *self.steps.entry(key).or_default() += 1;
            }
            None => drop(check.that(false, || "nothing was asked before it".to_owned())),
        }
        check.verdict()
    }

    /// Judges a start that required confirmation: an approval of this call and this effect was spent for it, or a token that nothing else
    /// has spent. None if it required nothing.
    fn start(
        &mut self,
        entry: &Entry<'_>,
        is_in_run: bool,
        call: Option<&str>,
        requires: Option<&Value>,
        confirmed: Option<&Value>,
    ) -> Option<Verdict> {
        let must_be = requires.is_some_and(|what| !what.is_null());
        let Some(token) = confirmed.and_then(Value::as_str) else {
            return must_be.then(|| Verdict::Broken("required confirmation, run without it".to_owned()));
        };
        let what = ["command_hash", "command_hmac"].iter().find_map(|name| entry.text(name));
        let what = what.map(str::to_owned).or_else(|| entry.data.get("what").map(Value::to_string));
        let stage = entry.number("stage").unwrap_or_default();
        if !self.tokens.insert(format!("{token}\n{stage}\n{}", what.unwrap_or_default())) {
            return Some(Verdict::Broken("its token was spent before".to_owned()));
        }
        let is_command = entry.event == "exec.intent";
        let is_for = |spent: &Spent| {
            let is_change = matches!(spent.approval.action, Action::Write | Action::Edit);
            spent.source.ledger == entry.ledger && spent.call.as_deref() == call && is_change != is_command
        };
        let Some(place) = self.spent.iter().position(is_for) else {
            // A model cannot obtain a token, so that its call has an approval.
            let unapproved = call.filter(|_| is_in_run).map(|call| format!("no approval of {call} was spent for it"));
            return Some(unapproved.map_or(Verdict::Holds, Verdict::Unapproved));
        };
        let spent = self.spent.remove(place);
        let mut check = Check::new(entry.is_redacted() || spent.is_redacted);
        check.that(must_be, || "an approval was spent for a start that required none".to_owned());
        let Approval { shown, binds, action, .. } = &spent.approval;
        if entry.data.contains_key("plan") {
            // The older form has a plan, of which the approval showed the line.
        } else if is_command {
            check.text("argv", entry.data.get("argv"), serde_json::to_value(&shown.argv).ok().as_ref());
            check.text("cwd", entry.text("cwd"), shown.cwd.as_deref());
            check.same("rule", entry.text("rule"), Some(shown.rule.as_str()));
            check.same("risk", entry.text("risk"), Some(shown.risk.as_str()));
            check.text("requires", requires.and_then(Value::as_str), Some(shown.why.as_str()));
            check.same(
                "the program",
                at(entry.data.get("exe").unwrap_or(&Value::Null), &["sha256"]).as_str(),
                binds.program.as_deref(),
            );
            check.same("policy", entry.text("policy"), binds.policy.as_deref());
        } else if let Some(write) = requires {
            judge_change(entry, write, *action, &spent.approval, &mut check);
        }
        Some(check.verdict())
    }

    pub(super) fn finish(self, claims: &mut Claims<'_>) -> Result<()> {
        for (source, id) in self.elsewhere {
            let is_known = self.asked.keys().any(|(_, asked)| *asked == id);
            let why = "what was asked is on no ledger that was read".to_owned();
            claims.record(source, "approval", if is_known { Verdict::Holds } else { Verdict::Unknown(why) })?;
        }
        let mut unused: Vec<Source> =
            self.granted.into_values().filter(|granted| !granted.is_spent).map(|granted| granted.source).collect();
        unused.sort_by(|a, b| (&a.ledger, a.seq).cmp(&(&b.ledger, b.seq)));
        for source in unused {
            claims.record(source, "approval", Verdict::Unknown("approved, never run".to_owned()))?;
        }
        for spent in self.spent {
            let why =
                "the approval was spent, and no start names it: it was killed before, or another program started it"
                    .to_owned();
            claims.record(spent.source, "approval", Verdict::Unknown(why))?;
        }
        Ok(())
    }
}

/// True if the grantor may answer by this channel, with the members that this grantor has.
fn is_grantor(entry: &Entry<'_>, channel: Option<How>) -> bool {
    let (has_terminal, has_name) = (entry.text("tty").is_some(), entry.text("through").is_some());
    match (entry.text("by"), channel) {
        // Older entries have the name `person` for a terminal and for a caller.
        (Some("person"), Some(How::Terminal | How::Resume)) | (Some("caller"), Some(How::Resume)) => {
            !has_terminal && !has_name
        }
        (Some("terminal"), Some(How::Terminal)) => !has_name,
        (Some("terminal"), Some(How::Resume)) => has_terminal && !has_name,
        (Some("host"), Some(How::Resume | How::Approver)) => has_name,
        (Some("approver"), Some(How::Approver | How::OwnerApprover)) => true,
        (Some("terminal" | "caller" | "person") | None, _) => false,
        (Some(_), channel) => channel != Some(How::Terminal),
    }
}

/// Compares the subject of an answer with the request.
fn judge_subject(entry: &Entry<'_>, asked: &Asked, check: &mut Check) {
    if asked.is_redacted || entry.is_redacted() {
        return;
    }
    let shown = &asked.approval.shown;
    // Entries of older versions have no subject.
    if ["path", "command", "diff_sha256"].iter().all(|name| entry.text(name).is_none()) {
        check.that(entry.text("by") == Some("person"), || "it does not name its subject".to_owned());
        return;
    }
    check.same("path", entry.text("path"), shown.path.as_deref());
    let command = shown.path.is_none().then(|| asked.approval.subject());
    check.same("command", entry.text("command"), command.as_deref());
    let hash = shown.diff.as_ref().map(|diff| Hash::of(diff.as_bytes()).to_string());
    check.same("diff_sha256", entry.text("diff_sha256"), hash.as_deref());
}

/// Compares a change with the approval that was spent for it.
fn judge_change(entry: &Entry<'_>, write: &Value, action: Action, approval: &Approval, check: &mut Check) {
    let (shown, binds) = (&approval.shown, &approval.binds);
    let (path, after) = (at(write, &["path"]).as_str(), at(write, &["sha256"]).as_str());
    check.text("path", path, shown.path.as_deref());
    check.same("the rule and the risk", (shown.rule.as_str(), shown.risk.as_str()), ("overwrite", "medium"));
    let before = at(write, &["before", "blob"]).as_str();
    check.same("the content before", before, binds.target.as_deref());
    let request = serde_json::to_vec(&(action, path, after)).unwrap_or_default();
    check.text("the request", Hash::of(&request).to_string().as_str(), binds.request.as_str());
    let load = |hash: Option<&str>| blob::load(entry.ledger, &Hash::parse(hash?)?).ok();
    if let (Some(before), Some(after), Some(path)) = (load(before), load(after), path) {
        check.text("the difference", shown.diff.as_deref(), Some(difference([path; 2], &before, &after).as_str()));
    }
}

/// The id of a request before ids were bound to a run and a call.
fn id_before_calls(approval: &Approval) -> String {
    let bytes = serde_json::to_vec(&(approval.action, approval.level, &approval.binds)).unwrap_or_default();
    format!("APR-{}", Hash::of(&bytes).to_string().trim_start_matches("sha256:").get(..16).unwrap_or_default())
}

/// A time in whole seconds, in which the times of approvals are.
fn seconds(time: &str) -> &str {
    time.get(.."2026-01-01T00:00:00".len()).unwrap_or(time)
}
