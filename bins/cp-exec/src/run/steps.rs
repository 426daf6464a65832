//! The steps of a run: each program that it starts is decided about, recorded, and allowed or refused.
//!
//! A step that requires approval waits while an approver or the terminal is asked. Other steps continue, and the
//! waiting time does not count against the time limit of the run.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;

use cp_common::program::approval::{self, Spent, Verdict};
use cp_common::wire::{Approval, DeniedStep, Executable, Grant, How, Receipt, Scope};
use cp_common::{Error, Result};
use cp_ledger::Entry;
use cp_ledger::format::approval::Said;

use super::clients::{Answer, ClientDecision, Message, NAMED, NestedClients, comes_first, command_text};
use super::journal::Journal;
use super::provenance::Provenance;
use super::questions::{Question, Questions};
use super::result::StepsReport;
use crate::decision::{
    Caller, HashCache, Ruling, StepRuling, StepVerdict, decide_step, line_of, read_string, shell_words,
};
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::request::{Command, Form};
use crate::sandbox::{ExecCall, ExecRequest, Listener, Pending, Process};

/// The most steps that are recorded individually.
const RECORDED: u64 = 10_000;
/// The batch size of entries that need no sync.
const BATCH: usize = 64;
/// The most preceding commands that an approval lists.
const RAN: usize = 20;

/// Decides about the steps of one run and records them.
pub(crate) struct Steps {
    policy: Policy,
    hashes: HashCache,
    journal: Journal,
    intent: u64,
    /// The environment of the run.
    given: BTreeMap<String, String>,
    /// The arguments of the planned program, until it was started.
    planned: Option<(String, Vec<String>)>,
    provenance: Provenance,
    /// The last commands that the line ran.
    ran: VecDeque<String>,
    pending: Vec<Entry>,
    questions: Questions,
    /// Steps that were refused or decided by an answer, because a signal restarts a call, and a shell repeats it for
    /// each directory of PATH.
    answered: HashMap<(Process, Vec<String>), bool>,
    inside: NestedClients,
    report: StepsReport,
}

impl Steps {
    pub(super) fn new(policy: &Policy, hashes: &HashCache, ruling: &Ruling, intent: &Receipt) -> Self {
        let name = ruling.plan.exe.path.display().to_string();
        Self {
            policy: policy.clone(),
            hashes: hashes.clone(),
            journal: Journal::new(policy),
            intent: intent.seq,
            given: ruling.plan.env.iter().cloned().collect(),
            planned: Some((name, ruling.plan.argv.clone())),
            provenance: Provenance::default(),
            ran: VecDeque::new(),
            pending: Vec::new(),
            questions: Questions::default(),
            answered: HashMap::new(),
            inside: NestedClients::default(),
            report: StepsReport::default(),
        }
    }

    /// True if a step waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.questions.is_empty()
    }

    /// Decides about every waiting step. False if there can be no more. `say` writes to the standard error of the
    /// run.
    pub(super) fn serve(&mut self, listener: &Listener, say: &mut dyn FnMut(&str)) -> bool {
        loop {
            match listener.next() {
                Pending::Call(call) => self.decide(listener, call, say),
                Pending::Nothing => break,
                Pending::End => return false,
            }
        }
        self.take_answers(listener, say);
        true
    }

    /// Writes pending entries, and returns the report. Unanswered questions stay open.
    pub(super) fn finish(mut self) -> StepsReport {
        self.write_pending();
        self.report
    }

    fn decide(&mut self, listener: &Listener, call: ExecCall, say: &mut dyn FnMut(&str)) {
        if let Some((name, argv)) = self.planned.take() {
            self.provenance.executes(call.process, Caller::Line, &name, &argv);
            self.inside.begin(call.parent);
            listener.allow(&call);
            return;
        }
        let request = match listener.read(&call) {
            Ok(Some(request)) => request,
            // The kernel reports that the file does not exist.
            Ok(None) => return listener.allow(&call),
            Err(_) => return listener.deny(&call),
        };
        if self.inside.starts_shell(&call, &request) {
            self.provenance.executes(call.process, Caller::Line, &request.named.display().to_string(), &request.argv);
            return listener.allow(&call);
        }
        let caller = self.provenance.of(call.process, call.parent);
        let (ruling, verdict) = decide_step(&self.policy, &mut self.hashes, caller, &request, &self.given);
        if let Some(allowed) = self.answered.get(&(call.process, ruling.argv.clone())) {
            return if *allowed { self.allow(listener, &call, &ruling, caller) } else { listener.deny(&call) };
        }
        match verdict {
            StepVerdict::Allow => {
                self.record(&ruling, caller, "allow", None);
                self.allow(listener, &call, &ruling, caller);
            }
            StepVerdict::Deny(error) => {
                say(&format!("{}: {}", command_text(&ruling.argv), text_of(&error)));
                self.refuse(&ruling, &call, caller, None, error);
                listener.deny(&call);
            }
            StepVerdict::Ask(mut approval) => {
                approval.shown.ran = self.ran.iter().cloned().collect();
                self.ask(listener, call, ruling, caller, *approval, say);
            }
        }
    }

    fn allow(&mut self, listener: &Listener, call: &ExecCall, ruling: &StepRuling, caller: Caller) {
        if self.report.failed.is_some() {
            return listener.deny(call);
        }
        self.provenance.executes(call.process, caller, &ruling.argv[0], &ruling.argv);
        if caller == Caller::Line {
            self.ran.push_back(command_text(&ruling.argv));
            self.ran.drain(..self.ran.len().saturating_sub(RAN));
        }
        listener.allow(call);
    }

    /// Allows a step that was approved before, asks the approver or terminal, or refuses it until it is approved.
    fn ask(
        &mut self,
        listener: &Listener,
        call: ExecCall,
        ruling: StepRuling,
        caller: Caller,
        approval: Approval,
        say: &mut dyn FnMut(&str),
    ) {
        match approval::take(&self.policy.cp_home, &approval) {
            Ok(Some(spent)) => return self.approved(listener, &call, &ruling, caller, &spent),
            Ok(None) => {}
            Err(error) => return self.await_approval(listener, &call, &ruling, caller, &approval, Some(error), say),
        }
        let Some(call) = self.questions.restart(call, &ruling.argv) else { return };
        if let Err(error) = self.journal.approval(Said::Asked, &approval) {
            self.report.failed.get_or_insert(error);
            return listener.deny(&call);
        }
        let question = Question { call, ruling, caller, approval };
        if let Some(Question { call, ruling, caller, approval }) = self.questions.ask(&self.policy, question) {
            self.await_approval(listener, &call, &ruling, caller, &approval, None, say);
        }
    }

    fn take_answers(&mut self, listener: &Listener, say: &mut dyn FnMut(&str)) {
        for (Question { call, ruling, caller, approval }, answer) in self.questions.answered() {
            match answer {
                Ok((how, Verdict::Granted)) => match self.grant(&approval, how) {
                    Ok(Some(spent)) => self.approved(listener, &call, &ruling, caller, &spent),
                    Ok(None) => self.await_approval(listener, &call, &ruling, caller, &approval, None, say),
                    Err(error) => self.await_approval(listener, &call, &ruling, caller, &approval, Some(error), say),
                },
                Ok((how, Verdict::Denied(why))) => {
                    let said = Said::Denied { by: by(how), why: &why };
                    if let Err(error) = self.journal.approval(said, &approval) {
                        self.report.failed.get_or_insert(error);
                    }
                    let error = refuse("approval", format!("not approved: {why}"));
                    say(&format!("{}: {}", command_text(&ruling.argv), text_of(&error)));
                    self.refuse(&ruling, &call, caller, None, error);
                    listener.deny(&call);
                }
                Ok((_, Verdict::Undecided(_))) => {
                    self.await_approval(listener, &call, &ruling, caller, &approval, None, say);
                }
                Err(error) => self.await_approval(listener, &call, &ruling, caller, &approval, Some(error), say),
            }
        }
    }

    /// Records a grant and spends it for this step.
    fn grant(&mut self, approval: &Approval, how: How) -> Result<Option<Spent>> {
        let mut grant = Grant { by: by(how).to_owned(), how, scope: Scope::Once, receipt: None };
        grant.receipt = Some(self.journal.approval(Said::Granted(&grant), approval)?);
        approval::grant(&self.policy.cp_home, approval, &grant)?;
        approval::take(&self.policy.cp_home, approval)
    }

    /// Allows an approved step after the approval is synced.
    fn approved(&mut self, listener: &Listener, call: &ExecCall, ruling: &StepRuling, caller: Caller, spent: &Spent) {
        self.record(ruling, caller, "ask", Some(&spent.approval.id));
        self.write_pending();
        if let Err(error) = self.journal.approval(Said::Spent(&spent.grant), &spent.approval) {
            self.report.failed.get_or_insert(error);
        }
        self.answered.insert((call.process, ruling.argv.clone()), true);
        self.allow(listener, call, ruling, caller);
    }

    /// Refuses a step until it is approved.
    #[expect(clippy::too_many_arguments, reason = "the parts of one question")]
    fn await_approval(
        &mut self,
        listener: &Listener,
        call: &ExecCall,
        ruling: &StepRuling,
        caller: Caller,
        approval: &Approval,
        failed: Option<Error>,
        say: &mut dyn FnMut(&str),
    ) {
        let error = failed.map_or_else(|| approval::pause(&self.policy.cp_home, approval), Err);
        let error = error.unwrap_or_else(|error| error);
        say(&format!("{}: needs approval; run cp-exec approve {}", command_text(&ruling.argv), approval.id));
        self.refuse(ruling, call, caller, Some(approval), error);
        self.write_pending();
        listener.deny(call);
    }

    fn refuse(
        &mut self,
        ruling: &StepRuling,
        call: &ExecCall,
        caller: Caller,
        approval: Option<&Approval>,
        error: Error,
    ) {
        self.answered.insert((call.process, ruling.argv.clone()), false);
        let id = approval.map(|approval| approval.id.as_str());
        self.record(ruling, caller, if id.is_some() { "ask" } else { "deny" }, id);
        self.report.denied_count += 1;
        let denied = DeniedStep {
            argv: ruling.argv.clone(),
            rule: ruling.rule.clone(),
            reason: ruling.reason.clone(),
            approval: id.map(str::to_owned),
        };
        self.inside.refused(call, &error, &denied);
        if comes_first(self.report.error.as_ref(), &denied) {
            self.report.error = Some(error);
        }
        if self.report.denied.len() < NAMED {
            self.report.denied.push(denied);
        }
    }

    /// Answers a message of a client.
    pub(super) fn answer(&mut self, process: Process, message: &[u8]) -> Vec<u8> {
        let read = || serde_json::from_slice(message).map_err(|e| Error::validation(format!("message: {e}")));
        if !self.inside.contains(process) {
            return Vec::new();
        }
        let reply = read().and_then(|message| match message {
            Message::Check(form) => Ok(Answer::ClientDecision(Box::new(self.assess(process, form)?))),
            Message::Run(form) => Ok(Answer::ClientDecision(Box::new(self.accept(process, form)?))),
            Message::Report => {
                let (denied, error) = self.inside.take_refusals(process);
                Ok(Answer::Report { denied, error })
            }
        });
        let reply = reply.unwrap_or_else(|error| Answer::Failed(error.to_value()));
        serde_json::to_vec(&reply).unwrap_or_default()
    }

    /// The decision about the command of a client. It is only informative, because each program is decided about when
    /// it starts.
    fn assess(&mut self, process: Process, form: Form) -> Result<ClientDecision> {
        let (line, argv, name) = match read_string(&self.policy, Command { form, ..Command::default() })?.form {
            Form::Words(argv) => (None, argv.clone(), PathBuf::from(&argv[0])),
            Form::Pipeline(stages) => of_shell(line_of(&stages), true)?,
            Form::Strict(line) | Form::Line(line) => of_shell(line, false)?,
        };
        let request = ExecRequest::find(process, &name, argv).map_err(|e| Error::io("looking up a program", e))?;
        let Some(request) = request else {
            return Err(Error::not_found(format!("no program `{}` in the sandbox", name.display())));
        };
        let (ruling, verdict) = decide_step(&self.policy, &mut self.hashes, Caller::Line, &request, &self.given);
        let (decision, hint) = match &verdict {
            // This program selects the shell.
            _ if line.is_some() => ("allow", None),
            StepVerdict::Allow => ("allow", None),
            StepVerdict::Ask(_) => ("ask", Some("request it, then approve it with `cp-exec approve` outside")),
            StepVerdict::Deny(error) => ("deny", error.hint_text()),
        };
        let (rule, reason) = match &line {
            Some(_) => ("line".to_owned(), "each program of the line is decided about when it starts".to_owned()),
            None => (ruling.rule, ruling.reason),
        };
        Ok(ClientDecision {
            argv: request.argv,
            line,
            cwd: request.cwd.display().to_string(),
            file: request.named,
            exe: Executable { path: ruling.file.display().to_string(), sha256: ruling.sha256.unwrap_or_default() },
            decision: decision.to_owned(),
            rule,
            reason,
            hint: hint.map(str::to_owned),
            policy: self.policy.sha256().to_owned(),
            receipt: None,
        })
    }

    /// Records the request of a client that is about to run a command. Programs that the client starts count as
    /// started by the line.
    fn accept(&mut self, process: Process, form: Form) -> Result<ClientDecision> {
        self.inside.count_request()?;
        let mut decided = self.assess(process, form)?;
        self.write_pending();
        let receipt = self.journal.request(self.intent, &decided)?;
        // The path of the ledger is not revealed to the client.
        decided.receipt = Some(Receipt { ledger: String::new(), ledger_bytes: None, ..receipt });
        self.inside.accept(process, decided.line.is_some().then(|| (decided.file.clone(), decided.argv.clone())));
        self.provenance.serves_line(process);
        Ok(decided)
    }

    fn record(&mut self, ruling: &StepRuling, caller: Caller, decision: &str, approval: Option<&str>) {
        let number = self.report.line + self.report.programs;
        let by = match caller {
            Caller::Line => {
                self.report.line += 1;
                "line"
            }
            Caller::Program | Caller::Git => {
                self.report.programs += 1;
                "program"
            }
        };
        if number >= RECORDED && decision == "allow" {
            self.report.unrecorded += 1;
            return;
        }
        self.pending.push(self.journal.step(self.intent, number, by, ruling, decision, approval));
        if self.pending.len() >= BATCH {
            self.write_pending();
        }
    }

    fn write_pending(&mut self) {
        let entries = std::mem::take(&mut self.pending);
        if let Err(error) = self.journal.append_all(entries) {
            self.report.failed.get_or_insert(error);
        }
    }
}

const fn by(how: How) -> &'static str {
    match how {
        How::Terminal | How::Resume => "person",
        How::OwnerApprover => "owner_approver",
        How::Approver => "approver",
    }
}

/// A command line, the arguments of its shell, and the path of the shell.
fn of_shell(line: String, is_pipeline: bool) -> Result<(Option<String>, Vec<String>, PathBuf)> {
    let (shell, argv) = shell_words(&line, is_pipeline)?;
    Ok((Some(line), argv, shell))
}

/// The text of an error, with its hint.
fn text_of(error: &Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    }
}
