//! The steps of a run: each program that it starts is decided about, recorded and let through or refused.
//!
//! A step that requires approval waits while an approver or the terminal is asked. Other steps go on meanwhile, and the waiting time
//! does not count against the run's time limit.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};

use cp_common::program::approval::{self, Answer, Spent, Verdict, at_terminal};
use cp_common::wire::{Approval, DeniedStep, Executable, Grant, How, Level, Receipt, Scope, quoted};
use cp_common::{Code, Error, Result};
use cp_ledger::Entry;
use cp_ledger::format::approval::Said;
use serde_json::Value;

use super::clients::{Answer as Reply, Decided, Message};
use super::journal::Journal;
use super::outcome::StepsReport;
use super::provenance::{Provenance, is_alive, lineage};
use crate::decision::{
    Caller, Hashes, Ruling, StepRuling, StepVerdict, decide_step, line_of, read_string, shell_words,
};
use crate::policy::Policy;
use crate::refusal::refuse;
use crate::request::{Command, Form};
use crate::sandbox::{ExecCall, ExecRequest, Listener, Process, Waiting};

/// The most steps that are recorded one by one.
const RECORDED: u64 = 10_000;
/// Steps that need no sync are written so many at once.
const BATCH: usize = 64;
/// The most refused steps that an answer names.
const NAMED: usize = 100;
/// The most commands that an approval names as run already.
const RAN: usize = 20;
/// Clients above this number are looked through for those that have ended.
const CLIENTS: usize = 256;
/// The most characters of a command in a message.
const SHOWN: usize = 120;

/// Decides about the steps of one run and records them.
pub(crate) struct Steps {
    policy: Policy,
    hashes: Hashes,
    journal: Journal,
    intent: u64,
    /// The environment that the run was started with.
    given: BTreeMap<String, String>,
    /// The words of the planned program, until it was started.
    planned: Option<(String, Vec<String>)>,
    /// The init of the run, once the run has begun.
    init: Option<Process>,
    provenance: Provenance,
    /// The last commands that the line ran.
    ran: VecDeque<String>,
    pending: Vec<Entry>,
    waiting: Vec<Question>,
    /// Decisions that were made by an answer, or were refusals: a signal restarts a call, and a shell that searches PATH repeats it.
    answered: HashMap<(Process, Vec<String>), bool>,
    clients: HashMap<Process, Client>,
    requests: u64,
    report: StepsReport,
}

/// A program inside that asked to run a command.
struct Client {
    /// The shell of its line, until it was started.
    shell: Option<(PathBuf, Vec<String>)>,
    /// The refusals among what it started.
    denied: Vec<DeniedStep>,
    error: Option<Value>,
}

/// A step that waits for an answer.
struct Question {
    call: ExecCall,
    ruling: StepRuling,
    caller: Caller,
    approval: Approval,
    answer: Receiver<Result<(How, Verdict)>>,
}

impl Steps {
    pub(super) fn new(policy: &Policy, hashes: &Hashes, ruling: &Ruling, intent: &Receipt) -> Self {
        let name = ruling.plan.exe.path.display().to_string();
        Self {
            policy: policy.clone(),
            hashes: hashes.clone(),
            journal: Journal::new(policy),
            intent: intent.seq,
            given: ruling.plan.env.iter().cloned().collect(),
            planned: Some((name, ruling.plan.argv.clone())),
            init: None,
            provenance: Provenance::default(),
            ran: VecDeque::new(),
            pending: Vec::new(),
            waiting: Vec::new(),
            answered: HashMap::new(),
            clients: HashMap::new(),
            requests: 0,
            report: StepsReport::default(),
        }
    }

    /// Whether a step waits for an answer.
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Decides about every step that waits. False if no more can come. Messages for the standard error of the run go to `say`.
    pub(super) fn serve(&mut self, listener: &Listener, say: &mut dyn FnMut(&str)) -> bool {
        loop {
            match listener.next() {
                Waiting::Call(call) => self.decide(listener, call, say),
                Waiting::Nothing => break,
                Waiting::End => return false,
            }
        }
        self.take_answers(listener, say);
        true
    }

    /// Writes what is not written yet, and gives the report. Questions that nobody answered stay open.
    pub(super) fn finish(mut self) -> StepsReport {
        self.write_pending();
        self.report
    }

    fn decide(&mut self, listener: &Listener, call: ExecCall, say: &mut dyn FnMut(&str)) {
        if let Some((name, argv)) = self.planned.take() {
            self.provenance.executes(call.process, Caller::Line, &name, &argv);
            self.init = Process::find(call.parent).map(|(init, _)| init);
            listener.allow(&call);
            return;
        }
        let request = match listener.read(&call) {
            Ok(Some(request)) => request,
            // The kernel answers that there is no such file.
            Ok(None) => return listener.allow(&call),
            Err(_) => return listener.deny(&call),
        };
        if self.is_shell_of_client(&call, &request) {
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
                say(&format!("{}: {}", shown(&ruling.argv), text_of(&error)));
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
            self.ran.push_back(shown(&ruling.argv));
            self.ran.drain(..self.ran.len().saturating_sub(RAN));
        }
        listener.allow(call);
    }

    /// Lets a step through that was approved before, asks whoever can be asked, or refuses it until it is approved.
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
        if let Some(question) = self.waiting.iter_mut().find(|question| question.is_about(&call, &ruling)) {
            question.call = call;
            return;
        }
        if let Err(error) = self.journal.approval(Said::Asked, &approval) {
            self.report.failed.get_or_insert(error);
            return listener.deny(&call);
        }
        match question(&self.policy, &approval) {
            Some(answer) => self.waiting.push(Question { call, ruling, caller, approval, answer }),
            None => self.await_approval(listener, &call, &ruling, caller, &approval, None, say),
        }
    }

    fn take_answers(&mut self, listener: &Listener, say: &mut dyn FnMut(&str)) {
        for question in std::mem::take(&mut self.waiting) {
            let answer = match question.answer.try_recv() {
                Err(TryRecvError::Empty) => {
                    self.waiting.push(question);
                    continue;
                }
                Err(TryRecvError::Disconnected) => {
                    Ok((How::Approver, Verdict::Undecided("nobody answered".to_owned())))
                }
                Ok(answer) => answer,
            };
            let Question { call, ruling, caller, approval, .. } = question;
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
                    say(&format!("{}: {}", shown(&ruling.argv), text_of(&error)));
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

    /// Lets an approved step through, once that is on the disk.
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
        say(&format!("{}: needs approval; run cp-exec approve {}", shown(&ruling.argv), approval.id));
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
        // What awaits approval comes before what is refused for good, because somebody can act on it.
        let is_first =
            |known: Option<&Error>| known.is_none_or(|known| known.code() != Code::HumanRequired && id.is_some());
        for process in lineage(call.process, call.parent) {
            let Some(client) = self.clients.get_mut(&process) else { continue };
            if client.denied.len() < NAMED {
                client.denied.push(denied.clone());
            }
            if is_first(client.error.as_ref().map(Error::from_value).as_ref()) {
                client.error = Some(for_client(&error, &denied).to_value());
            }
        }
        if self.report.denied.len() < NAMED {
            self.report.denied.push(denied);
        }
        if is_first(self.report.error.as_ref()) {
            self.report.error = Some(error);
        }
    }

    /// Answers a client inside.
    pub(super) fn answer(&mut self, process: Process, message: &[u8]) -> Vec<u8> {
        let read = || serde_json::from_slice(message).map_err(|e| Error::validation(format!("message: {e}")));
        if !self.is_inside(process) {
            return Vec::new();
        }
        let reply = read().and_then(|message| match message {
            Message::Check(form) => Ok(Reply::Decided(Box::new(self.consider(process, form)?))),
            Message::Run(form) => Ok(Reply::Decided(Box::new(self.accept(process, form)?))),
            Message::Report => {
                let client = self.clients.remove(&process);
                let (denied, error) = client.map(|client| (client.denied, client.error)).unwrap_or_default();
                Ok(Reply::Report { denied, error })
            }
        });
        let reply = reply.unwrap_or_else(|error| Reply::Failed(error.to_value()));
        serde_json::to_vec(&reply).unwrap_or_default()
    }

    /// Whether a process belongs to the run: the number of a client that has ended may belong to a process outside by now.
    fn is_inside(&self, process: Process) -> bool {
        let found = Process::find(process.pid).filter(|(found, _)| *found == process);
        found.is_some_and(|(_, parent)| lineage(process, parent).any(|ancestor| Some(ancestor) == self.init))
    }

    /// The decision about a command of a client. Nothing depends on it: each program is decided about when it is started.
    fn consider(&mut self, process: Process, form: Form) -> Result<Decided> {
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
            // The shell is chosen by this program.
            _ if line.is_some() => ("allow", None),
            StepVerdict::Allow => ("allow", None),
            StepVerdict::Ask(_) => ("ask", Some("request it, then approve it with `cp-exec approve` outside")),
            StepVerdict::Deny(error) => ("deny", error.hint_text()),
        };
        let (rule, reason) = match &line {
            Some(_) => ("line".to_owned(), "each program of the line is decided about when it starts".to_owned()),
            None => (ruling.rule, ruling.reason),
        };
        Ok(Decided {
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

    /// Decides about a command that a client is about to run, and records the request. What the client starts is the line's.
    fn accept(&mut self, process: Process, form: Form) -> Result<Decided> {
        if self.requests >= RECORDED {
            return Err(refuse("requests", format!("a run may contain {RECORDED} requests at most")));
        }
        self.requests += 1;
        let mut decided = self.consider(process, form)?;
        self.write_pending();
        let receipt = self.journal.request(self.intent, &decided)?;
        // The path of the ledger stays outside.
        decided.receipt = Some(Receipt { ledger: String::new(), ledger_bytes: None, ..receipt });
        if self.clients.len() > CLIENTS {
            self.clients.retain(|process, _| is_alive(process));
        }
        let shell = decided.line.is_some().then(|| (decided.file.clone(), decided.argv.clone()));
        self.clients.insert(process, Client { shell, denied: Vec::new(), error: None });
        self.provenance.serves_line(process);
        Ok(decided)
    }

    /// Whether a client, or its child, starts the shell of the line that it asked for.
    fn is_shell_of_client(&mut self, call: &ExecCall, request: &ExecRequest) -> bool {
        lineage(call.process, call.parent).take(2).any(|process| {
            let Some(client) = self.clients.get_mut(&process) else { return false };
            let expected = client.shell.take_if(|(file, argv)| *file == request.file.path && *argv == request.argv);
            expected.is_some()
        })
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

impl Question {
    fn is_about(&self, call: &ExecCall, ruling: &StepRuling) -> bool {
        self.call.process == call.process && self.ruling.argv == ruling.argv
    }
}

/// Asks the approver of the policy, or the terminal, if there is either.
fn question(policy: &Policy, approval: &Approval) -> Option<Receiver<Result<(How, Verdict)>>> {
    let argv = policy.loaded.settings.approval.owner_approver.clone();
    let by_approver = !argv.is_empty() && approval.level == Level::Owner;
    let by_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if !by_approver && !by_terminal {
        return None;
    }
    let (sender, receiver) = channel();
    let approval = Approval { scopes: vec![Scope::Once], ..approval.clone() };
    let asked = std::thread::Builder::new().name("approval".to_owned()).spawn(move || {
        let answer = if by_approver {
            approval::ask(&argv, &approval, None).map(|verdict| (How::OwnerApprover, verdict))
        } else {
            at_terminal(&approval, None).map(|answer| (How::Terminal, answered(answer)))
        };
        // The run may have ended meanwhile.
        drop(sender.send(answer));
    });
    asked.ok().map(|_| receiver)
}

fn answered(answer: Option<Answer>) -> Verdict {
    match answer {
        Some(Answer::Yes(_)) => Verdict::Granted,
        Some(Answer::No) => Verdict::Denied("a person denied it".to_owned()),
        None => Verdict::Undecided("nobody answered".to_owned()),
    }
}

const fn by(how: How) -> &'static str {
    match how {
        How::Terminal | How::Resume => "person",
        How::OwnerApprover => "owner_approver",
        How::Approver => "approver",
    }
}

/// An error for a client, without the paths of the home.
fn for_client(error: &Error, denied: &DeniedStep) -> Error {
    let message = format!("{}: {}", shown(&denied.argv), denied.reason);
    let plain =
        Error::new(error.code(), message).with("rule", denied.rule.clone()).with("reason", denied.reason.clone());
    match (&denied.approval, error.hint_text()) {
        (Some(id), _) => plain
            .with("id", id.clone())
            .hint(format!("run `cp-exec approve {id}` outside of the sandbox, then repeat the command")),
        (None, Some(hint)) => plain.hint(hint),
        (None, None) => plain,
    }
}

/// A line, the words of the shell that runs the line, and the path of the shell.
fn of_shell(line: String, is_pipeline: bool) -> Result<(Option<String>, Vec<String>, PathBuf)> {
    let (shell, argv) = shell_words(&line, is_pipeline)?;
    Ok((Some(line), argv, shell))
}

/// An error in one sentence.
fn text_of(error: &Error) -> String {
    match error.hint_text() {
        Some(hint) => format!("{}; {hint}", error.message()),
        None => error.message().to_owned(),
    }
}

/// The words of a command, for a message of one line.
fn shown(argv: &[String]) -> String {
    let line = argv.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    let line: String = line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}
