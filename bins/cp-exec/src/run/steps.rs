//! The steps of a run: each program that it starts is decided about, recorded, and allowed or refused.
//!
//! A step that requires approval waits while the terminal is asked. Other steps continue, and the
//! waiting time does not count against the time limit of the run.
//!
//! The [`Provenance`] of a process says if a program is started by the command line itself or by a program that the
//! line started.

use std::collections::{HashMap, VecDeque};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::program::approval::{self, Spent};
use cp_common::wire::quoted;
use cp_common::{Code, Error, Result};
use cp_ledger::format::approval::Said;
use serde_json::json;

use super::approvals::{self, Question, Questions};
use super::clients::ToolCall;
use super::journal::{Journal, Recorder};
use super::result::StepsReport;
use crate::decision::{Caller, HashCache, Ruling, StepRules, StepRuling, decide_step};
use crate::exec_result::DeniedStep;
use crate::policy::{Access, Policy};
use crate::refusal::refuse;
use crate::rules::{Arguments, is_shell, is_wrapper};
use crate::sandbox::plan::{Profile, TMP};
use crate::sandbox::{ExecCall, ExecRequest, Listener, Process, executed_for};
use crate::tools::executable;

/// The most preceding commands that an approval lists.
const RAN: usize = 20;
/// The number of steps whose repetition is known.
const ANSWERED: usize = 256;
/// The most refused steps that an answer lists.
const NAMED: usize = 100;
/// The most characters of a command line in a message.
const SHOWN: usize = 120;

/// Decides about the steps of one run and records them.
pub(crate) struct Steps {
    pub(super) rules: StepRules,
    pub recorder: Recorder,
    /// The kind of the planned program and its arguments, until it was started.
    planned: Option<(Caller, String, Vec<String>)>,
    provenance: Provenance,
    /// The last commands that the line ran.
    ran: VecDeque<String>,
    questions: Questions,
    /// The approvals that the line used.
    spent: Vec<Spent>,
    /// True if the run is that of an agent, to which the terminal belongs.
    pub is_agent: bool,
    /// Messages for the standard error of the run.
    pub messages: Vec<String>,
    /// The last steps that were refused or decided by an answer, because a signal restarts a call, and a shell repeats
    /// it for each directory of PATH.
    answered: HashMap<(Process, Vec<String>), bool>,
    /// The file that a process executed before its last allowed start, and the file that was decided about.
    started: HashMap<Process, [(u64, u64); 2]>,
    /// True after a process executed another file than the one that was decided about, so that the run must end.
    pub is_evaded: bool,
    report: StepsReport,
}

impl Steps {
    pub(crate) fn new(policy: &Policy, hashes: &HashCache, ruling: &mut Ruling, intent: u64) -> Self {
        let name = ruling.plan.exe.path.display().to_string();
        Self {
            rules: StepRules {
                policy: policy.clone(),
                hashes: hashes.clone(),
                given: ruling.plan.env.iter().cloned().collect(),
                is_alone: ruling.plan.profile == Profile::Strict && ruling.decision.command.line.is_none(),
                git: std::mem::take(&mut ruling.git),
            },
            recorder: Recorder::new(policy, intent),
            planned: Some((ruling.decision.caller, name, ruling.plan.argv.clone())),
            provenance: Provenance::default(),
            ran: VecDeque::new(),
            questions: Questions::default(),
            spent: Vec::new(),
            is_agent: ruling.decision.caller != Caller::Line,
            messages: Vec::new(),
            answered: HashMap::new(),
            started: HashMap::new(),
            is_evaded: false,
            report: StepsReport::default(),
        }
    }

    /// True if a step waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Decides about every waiting step. Fails if there can be no more.
    pub(super) fn serve(&mut self, listener: &Arc<Listener>) -> std::io::Result<()> {
        self.compare_started();
        while let Some(call) = listener.next()? {
            self.decide(call);
        }
        self.take_answers();
        Ok(())
    }

    /// The report. Unanswered questions stay open. A line that waits for an answer starts again from its beginning, so
    /// that its steps stay approved until then.
    pub(super) fn finish(mut self) -> StepsReport {
        let is_waiting = self.report.error.as_ref().is_some_and(|error| approvals::paused(error).is_some());
        for spent in self.spent.iter().filter(|_| is_waiting && !self.is_agent) {
            if let Err(error) = approval::grant(&self.rules.policy.cp_home, &spent.approval, &spent.grant) {
                self.recorder.failed.get_or_insert(error);
            }
        }
        StepsReport { failed: self.recorder.failed, ..self.report }
    }

    fn decide(&mut self, call: ExecCall) {
        let Some((caller, name, argv)) = self.planned.take() else { return self.decide_call(call) };
        self.provenance.executes(call.process, caller, &name, &argv, Path::new(&name).ends_with("git"));
        self.warn_of_lacking(&argv);
        call.allow();
    }

    /// Decides about a start and about each program that the kernel starts for it.
    fn decide_call(&mut self, call: ExecCall) {
        self.compare_started();
        if self.is_evaded {
            return call.deny();
        }
        let starts = match call.read() {
            Ok(starts) => starts,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let pid = call.process.pid;
                self.explain(&call, format!("a program of process {pid} was refused: it cannot be looked up: {error}"));
                return call.deny();
            }
            Err(error) => return call.answer(Some(error.raw_os_error().unwrap_or(libc::EPERM))),
        };
        let caller = self.provenance.of(call.process, call.parent);
        let mut rulings = Vec::new();
        for request in &starts {
            let (ruling, verdict) = decide_step(&mut self.rules, caller, request);
            match (self.answered.get(&(call.process, ruling.argv.clone())), verdict) {
                (Some(false), _) => return call.deny(),
                (Some(true), _) => rulings.push((ruling, true)),
                (None, Ok(None)) => rulings.push((ruling, false)),
                (None, Err(error)) => return self.deny(&call, &ruling, error),
                (None, Ok(Some(mut approval))) => {
                    approval.shown.ran = self.ran.iter().cloned().collect();
                    return self.ask(Question { call, ruling, approval: *approval });
                }
            }
        }
        for (ruling, _) in rulings.iter().filter(|(_, is_recorded)| !is_recorded) {
            self.record(ruling, "allow", None);
        }
        self.warn_of_lacking(&rulings[0].0.argv);
        self.allow(&call, &rulings[0].0, &starts);
    }

    /// Says once what the owner's git would do and a run does not.
    fn warn_of_lacking(&mut self, argv: &[String]) {
        self.messages.extend(self.rules.git.lacking(argv).into_iter().map(str::to_owned));
    }

    fn allow(&mut self, call: &ExecCall, ruling: &StepRuling, starts: &[ExecRequest]) {
        if self.recorder.failed.is_some() {
            return call.deny();
        }
        let file = &starts[0].file.path;
        let is_writable = self.rules.policy.bounds.lists(Access::Write, file) || file.starts_with(TMP);
        let is_git = !is_writable && file.ends_with("git");
        self.provenance.executes(call.process, ruling.caller, &ruling.argv[0], &starts[0].argv, is_git);
        if ruling.caller == Caller::Line {
            self.ran.push_back(command_text(&ruling.argv));
            self.ran.drain(..self.ran.len().saturating_sub(RAN));
        }
        if let (Some(before), Some(decided)) = (call.process.executed(), executed_for(starts)) {
            self.started.insert(call.process, [before, decided]);
        }
        call.allow();
    }

    /// Compares the files that processes execute with those that were decided about, because a program can change its
    /// memory or a link after the decision.
    fn compare_started(&mut self) {
        let mut evaded = Vec::new();
        self.started.retain(|process, [before, decided]| match process.executed() {
            // The call was not continued yet, or it failed.
            Some(executed) if executed == *before => true,
            Some(executed) if executed != *decided => {
                evaded.push(*process);
                false
            }
            _ => false,
        });
        for process in evaded {
            let file = std::fs::read_link(format!("/proc/{}/exe", process.pid)).unwrap_or_default();
            let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let words = words.split(|byte| *byte == 0).filter(|word| !word.is_empty());
            let argv = words.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
            let reason = format!("{} was executed instead of the program that was decided about", file.display());
            let error = refuse("evaded", &reason).hint("the run was ended; check what changes programs or links in it");
            self.messages.push(text_of(&error));
            let (caller, rule, cwd) = (Caller::Program, "evaded".to_owned(), PathBuf::new());
            self.record(&StepRuling { caller, argv, cwd, file, sha256: None, rule, reason }, "deny", None);
            self.report.error = Some(error);
            self.is_evaded = true;
        }
    }

    /// Allows a step that was approved before, asks at the terminal, or refuses it until it is approved.
    fn ask(&mut self, question: Question) {
        match approval::take(&self.rules.policy.cp_home, &question.approval) {
            Ok(None) => {}
            outcome => return self.settle(question, outcome),
        }
        let Some(question) = self.questions.restart(question) else { return };
        if let Err(error) = self.recorder.charge(&question.approval) {
            return self.deny(&question.call, &question.ruling, error);
        }
        if !self.recorder.approval(Said::Asked, &question.approval) {
            return question.call.deny();
        }
        // The terminal is that of the agent.
        let unasked = if self.is_agent { Some(question) } else { self.questions.ask(question) };
        if let Some(question) = unasked {
            self.settle(question, Ok(None));
        }
    }

    fn take_answers(&mut self) {
        for (question, answer) in self.questions.answered() {
            let (policy, approval) = (&self.rules.policy, &question.approval);
            let unanswered = || approval::pause(&policy.cp_home, approval).unwrap_or_else(|error| error);
            let spent = answer
                .and_then(|given| approvals::settle(&mut self.recorder.journal, policy, approval, given, unanswered))
                .and_then(|()| approval::take(&policy.cp_home, approval));
            self.settle(question, spent);
        }
    }

    /// Allows a step whose approval was spent, after the approval is synced. Otherwise refuses the step.
    fn settle(&mut self, question: Question, outcome: Result<Option<Spent>>) {
        let Question { call, ruling, approval } = question;
        let error = match outcome {
            Ok(Some(spent)) => {
                self.record(&ruling, "ask", Some(&spent.approval.id));
                self.recorder.approval(Said::Spent(&spent.grant), &spent.approval);
                self.remember(call.process, &ruling.argv, true);
                self.spent.push(spent);
                // The programs that the kernel starts for it are not decided yet.
                return self.decide_call(call);
            }
            Ok(None) => approval::pause(&self.rules.policy.cp_home, &approval).unwrap_or_else(|error| error),
            Err(error) => error,
        };
        self.deny(&call, &ruling, error);
    }

    /// Refuses a step, records that, and explains why on the standard error of its caller. The one program of the
    /// profile `strict` was promised no other, so the run does not fail by that.
    fn deny(&mut self, call: &ExecCall, ruling: &StepRuling, error: Error) {
        let approval = approvals::paused(&error).map(|approval| approval.id);
        let id = approval.as_deref();
        let why = id.map_or_else(|| text_of(&error), |id| format!("needs approval; run cp-exec approve {id}"));
        self.explain(call, format!("{}: {why}", command_text(&ruling.argv)));
        self.remember(call.process, &ruling.argv, false);
        let is_recorded = self.record(ruling, if id.is_some() { "ask" } else { "deny" }, id);
        if error.is_fatal() {
            self.recorder.failed.get_or_insert(error);
        } else if !self.rules.is_alone {
            self.report.denied_count += u64::from(is_recorded);
            // A person can act on a pending approval, and so it comes before a final refusal.
            let comes_first = |known: &Error| known.code() != Code::HumanRequired && id.is_some();
            if self.report.error.as_ref().is_none_or(comes_first) {
                self.report.error = Some(error);
            }
            if self.report.denied.len() < NAMED {
                let (argv, rule, reason) = (ruling.argv.clone(), ruling.rule.clone(), ruling.reason.clone());
                self.report.denied.push(DeniedStep { argv, rule, reason, approval });
            }
        }
        call.deny();
    }

    /// Writes the reason of a refusal where the refused program would have written, and to the person of the run.
    fn explain(&mut self, call: &ExecCall, text: String) {
        if !call.tell(&format!("cp-exec: {text}\n")) {
            self.messages.push(text);
        }
    }

    fn remember(&mut self, process: Process, argv: &[String], is_allowed: bool) {
        if self.answered.len() >= ANSWERED {
            self.answered.clear();
        }
        self.answered.insert((process, argv.to_vec()), is_allowed);
    }

    /// Records a tool call of an agent inside. The sandbox contains its effects; the list of tools decides about a tool
    /// whose input names neither a command nor a file.
    pub(super) fn tool_call(&mut self, asked: ToolCall) -> Result<()> {
        if !self.is_agent {
            return Err(refuse("requests", "tool calls are only recorded for an agent that cp-exec started")
                .hint("start the agent with `cp-exec agent`"));
        }
        self.recorder.charge(&asked)?;
        let ToolCall { host_call, tool, by_default, data } = asked;
        let mut policy = self.rules.policy.clone();
        policy.actor.call = Some(host_call.call.clone());
        policy.actor.host = Some(host_call);
        let mut journal = Journal::new(&policy);
        self.report.calls += 1;
        let ruling = match by_default {
            Some(_) if executable::requires_approval(&policy, &tool) => {
                Err(refuse("tools.approve", format!("`{tool}` needs an approval, which a hook inside cannot wait for"))
                    .hint(policy.setting_hint("tools.approve without this tool")))
            }
            Some(by_default) => executable::permitted(&policy, &tool, by_default),
            None => Ok(()),
        };
        if let Err(error) = ruling {
            self.report.calls_denied += 1;
            journal.refused(&data, &error)?;
            return Err(error);
        }
        let data = json!({ "tool": tool, "decision": "pass", "rule": "inside", "intent": self.recorder.intent, "reported": data });
        journal.synced(journal.entry("host.intent").data(&data).with("policy", policy.sha256())).map(drop)
    }

    /// Records a step if the budget allows it. False if it is only counted.
    fn record(&mut self, ruling: &StepRuling, decision: &str, approval: Option<&str>) -> bool {
        let report = &mut self.report;
        let number = report.line + report.programs;
        let (by, count) = match ruling.caller {
            Caller::Line => ("line", &mut report.line),
            Caller::Program | Caller::Git => ("program", &mut report.programs),
        };
        *count += 1;
        let said = ruling.argv.iter().map(String::len).sum::<usize>() + ruling.reason.len();
        // What an approval belongs to is always recorded, and its question was charged.
        if !self.recorder.take(said) && approval.is_none() {
            report.unrecorded += 1;
            return false;
        }
        // The arguments as read from the caller's memory. Another thread may have changed them afterwards.
        self.recorder.add(
            "exec.step",
            &json!({
                "step": number,
                "by": by,
                "argv_as_asked": ruling.argv,
                "cwd": ruling.cwd.display().to_string(),
                "exe": { "path": ruling.file.display().to_string(), "sha256": ruling.sha256 },
                "decision": decision,
                "rule": ruling.rule,
                "reason": (decision != "allow").then_some(&ruling.reason),
                "approval": approval,
            }),
        );
        true
    }
}

/// The words of a command as one line of a message.
fn command_text(argv: &[String]) -> String {
    let line = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// The text of an error, with its hint.
fn text_of(error: &Error) -> String {
    let hint = error.hint_text().map(|hint| format!("; {hint}"));
    format!("{}{}", error.message(), hint.unwrap_or_default())
}

/// Above this number of known processes, those that have ended are removed.
const MANY: usize = 4096;

/// The most ancestors that are searched.
const GENERATIONS: usize = 64;

/// The kind of program in each process that has executed one.
#[derive(Default)]
struct Provenance {
    known: HashMap<Process, Caller>,
}

impl Provenance {
    /// The kind of program in a process: the last one that it executed, or that of the process from which it was
    /// forked. Unknown ones count as programs.
    fn of(&self, process: Process, parent: i32) -> Caller {
        let processes = std::iter::successors(Some((process, parent)), |(_, parent)| Process::find(*parent));
        let mut known = processes.take(GENERATIONS).filter_map(|(process, _)| self.known.get(&process).copied());
        known.next().unwrap_or(Caller::Program)
    }

    /// Records that a process executes a program. `is_git` is true for a git that the run cannot write.
    fn executes(&mut self, process: Process, caller: Caller, name: &str, argv: &[String], is_git: bool) {
        if self.known.len() > MANY {
            self.known.retain(|process, _| Process::find(process.pid).is_some_and(|(found, _)| found == *process));
        }
        if caller == Caller::Line {
            // Processes that the line forked from this process before still belong to the line.
            for child in children(process.pid) {
                self.known.entry(child).or_insert(Caller::Line);
            }
        }
        let name = Path::new(name).file_name().unwrap_or_default().to_string_lossy();
        let becomes = match caller {
            Caller::Line if starts_others(&name, argv) => Caller::Line,
            _ if is_git => Caller::Git,
            _ => Caller::Program,
        };
        self.known.insert(process, becomes);
    }
}

/// The children of a process that is waiting for a decision, so that it cannot create more of them now.
fn children(pid: i32) -> Vec<Process> {
    let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    listed.split_ascii_whitespace().filter_map(|pid| Some(Process::find(pid.parse().ok()?)?.0)).collect()
}

/// True if the line determines which programs a program starts: for a wrapper, or for a shell without a script, which
/// has a line after `-c` or on its standard input.
fn starts_others(name: &str, argv: &[String]) -> bool {
    is_wrapper(name) || (is_shell(name) && !has_script(name, argv))
}

/// True if a shell has a script as an operand. The caller can set any `argv[0]`.
fn has_script(name: &str, argv: &[String]) -> bool {
    let argv: Vec<String> = std::iter::once(name.to_owned()).chain(argv.iter().skip(1).cloned()).collect();
    Arguments::read(&argv).script().is_some_and(|(script, after)| {
        // A word such as `+o` unsets an option, and the next one may be its name.
        let unsets = argv[..argv.len() - after.len()].iter().any(|word| word.starts_with('+'));
        script != "-" && !unsets
    })
}
