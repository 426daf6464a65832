//! Approval of a call: its request, the answer, and the pause of the run if there is none.

use cp_common::output::Format;
use cp_common::program::approval::{self, Verdict};
use cp_common::program::grant::policy_hash;
use cp_common::wire::{Action, Approval, AskedBy, Binds, Grant, How, Level, Scope, Shown, ToolCall};
use cp_common::{Code, Context, Error, Result, keys};
use serde_json::{Value, json};

use super::Engine;
use crate::state::conversation::{Call, OURS, UNFINISHED};
use crate::state::step::{Decision, Step};
use crate::tools::tool::{Origin, Tool};

impl Engine {
    /// The approval record of a call that requires approval by this rule.
    pub(super) fn asked(
        &self,
        call: &ToolCall,
        tool: &Tool,
        rule: &str,
        why: String,
        context: &Context,
    ) -> Result<Approval> {
        let plan = &self.run.plan;
        let (action, program) = match &tool.origin {
            Origin::Builtin => (Action::Tool, None),
            Origin::Executable(file) => (Action::Tool, Some(file.sha256.clone())),
            Origin::Mcp { .. } => (Action::Server, None),
        };
        let shown = Shown {
            tool: Some(call.name.clone()),
            input: serde_json::from_str(call.input.get()).ok(),
            cwd: Some(plan.base.display().to_string()),
            risk: "medium".to_owned(),
            rule: rule.to_owned(),
            why,
            ..Shown::default()
        };
        let request = json!([call.name, call.input.get(), rule]).to_string();
        let binds = Binds { request: keys::hash(request.as_bytes()), program, policy: policy_hash(&context.home)? };
        let asked_by = AskedBy {
            program: OURS.to_owned(),
            agent: context.agent(plan.prompt.agent.as_deref()),
            run: Some(plan.run.clone()),
            session: plan.prompt.session_id.clone(),
            call_id: Some(call.id.clone()),
        };
        // An unfinished call needs a check by a person each time.
        let scopes: &[Scope] = if rule == UNFINISHED { &[Scope::Once] } else { &[Scope::Once, Scope::Run] };
        approval::new(asked_by, action, Level::Agent, scopes, shown, binds)
    }

    /// Requests an answer about a call. Without an answer, the error pauses the run.
    pub(super) fn decide(&mut self, at: usize, approval: &Approval, context: &mut Context) -> Result<()> {
        let home = context.home.clone();
        let before = self.run.conversation.calls[at].approval.clone();
        if let Some(before) = before.filter(|before| before.id != approval.id) {
            approval::answered(&home, &before.id)?;
        }
        self.run.record(Step::Asked(at, Box::new(approval.clone())))?;
        self.run.sync()?;
        let mut error = approval::pause(&home, approval)?;
        if Call::is_asked_here(approval)
            && let Some(spent) = approval::take(&home, approval)?
        {
            return self.run.record(Step::Decided(at, Decision::Approved(Box::new(spent.grant))));
        }
        if let Some(before) = self.run.conversation.run_grant(approval).cloned() {
            return self.granted(at, Grant { receipt: None, ..before }, context);
        }
        let until = self.run.deadline;
        let takes_program = approval.level == Level::Agent && approval.shown.rule != UNFINISHED;
        if takes_program && let Some(verdict) = self.parts.approver.ask(approval, until)? {
            match verdict {
                Verdict::Granted(_) => return self.granted(at, self.parts.approver.grant(), context),
                Verdict::Denied(why) => return self.denied(at, why, "approver", context),
                Verdict::Undecided(why) => {
                    self.run.time_left()?;
                    error = error.with("approver", why);
                }
            }
        }
        if context.out.format() == Format::Text {
            let verdict = approval::at_terminal(approval, until)?;
            self.run.time_left()?;
            match verdict {
                Some(Verdict::Granted(scope)) => return self.granted(at, Grant::new(How::Terminal, scope), context),
                Some(Verdict::Denied(why)) => return self.denied(at, why, "terminal", context),
                Some(Verdict::Undecided(_)) | None => {}
            }
        }
        Err(self.paused(at, approval, &error, context))
    }

    fn granted(&mut self, at: usize, grant: Grant, context: &Context) -> Result<()> {
        self.run.decide(at, Decision::Approved(Box::new(grant)), &context.home)
    }

    fn denied(&mut self, at: usize, why: String, by: &str, context: &Context) -> Result<()> {
        self.run.decide(at, Decision::Denied { why, by: by.to_owned() }, &context.home)
    }

    /// The approval record of a call that was started and has no result, because only a person can find out if it had
    /// its effect. It includes the earlier request of an executor, so that one approval is enough.
    pub(super) fn unfinished(&self, at: usize, tool: &Tool, context: &Context) -> Result<Approval> {
        let call = &self.run.conversation.calls[at];
        let why = format!("{} was started, and whether it finished is not known", call.asked.name);
        match call.approval.clone().filter(|before| before.asked_by.program != OURS) {
            Some(before) => {
                let shown = Shown { rule: UNFINISHED.to_owned(), why, ..before.shown };
                Ok(Approval { scopes: vec![Scope::Once], shown, ..*before })
            }
            None => self.asked(&call.asked, tool, UNFINISHED, why, context),
        }
    }

    /// The error of a run that waits for an approval.
    fn paused(&self, at: usize, approval: &Approval, error: &Error, context: &Context) -> Error {
        let call = &self.run.conversation.calls[at].asked;
        let (id, Shown { rule, why, .. }) = (&call.id, &approval.shown);
        let is_unfinished = rule == UNFINISHED;
        let action = if is_unfinished { "resolve_unfinished_call" } else { "approve_tool_call" };
        let message = format!("{}, call {id}: {}: {why}", self.run.plan.run, approval.subject());
        let approve = approval::approve_line(&context.home, &approval.id);
        let owner = format!("only the owner of the policy can approve it: `{approve}` at a terminal, then resume");
        let hint = match approval.level {
            Level::Owner => owner.as_str(),
            Level::Agent if is_unfinished => {
                "check whether it had its effect: --approve runs it again, --deny continues without it"
            }
            Level::Agent => "--approve runs it, --deny refuses it and tells the model so",
        };
        let is_owner = approval.level == Level::Owner;
        let yes = if is_owner { String::new() } else { format!(" --approve {id}") };
        let input: Value = serde_json::from_str(call.input.get()).unwrap_or_default();
        let [yes, no] = [yes, format!(" --deny {id} --message no")].map(|words| self.run.resume_line(&words));
        let paused = Error::new(Code::HumanRequired, message)
            .with("action", action)
            .with("call", json!({"id": id, "name": call.name, "input": input}))
            .with("_untrusted", json!(["/call", "/approval/shown"]))
            .with("resume", yes.as_str())
            .with("otherwise", no.as_str())
            .hint(format!("{hint}\n  yes: {yes}\n  no:  {no}"));
        let approve = is_owner.then(|| ("approve", approve.into()));
        let details = error.details();
        let known = ["id", "approver"].into_iter().filter_map(|name| Some((name, details.get(name)?.clone())));
        approve
            .into_iter()
            .chain(known)
            .fold(paused, |paused, (name, value)| paused.with(name, value))
            .with("approval", serde_json::to_value(approval).unwrap_or_default())
    }
}
