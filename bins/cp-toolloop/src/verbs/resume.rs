//! `cp-toolloop resume`: resume a stopped run at the step where it stopped.

use cp_common::program::VerbDoc;
use cp_common::program::approval::approve_line;
use cp_common::wire::{Grant, How, Level, Scope};
use cp_common::{Code, Context, Error, Result};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::run;
use crate::engine::Engine;
use crate::engine::print::Event;
use crate::parts::{Approver, Parts};
use crate::state::conversation::{Call, Conversation};
use crate::state::plan::{Limits, RunFiles};
use crate::state::run::Run;
use crate::state::step::Decision;
use crate::state::tally::Total;

/// The verb's entry in `reference`.
pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "resume",
    examples: &[
        // A run that stops at its limit, and is resumed.
        r#"printf '{"tool_calls":[{"name":"nope"}]}\n' >script; cp-toolloop --backend stub --stub-script script --max-iterations 1 -- hello; cp-toolloop resume RUN- --max-iterations 2"#,
    ],
    input: &[],
    ..run::DOC
};

/// Resume a stopped run
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, its name, or the path of its ledger
    #[arg(id = "named", value_name = "RUN")]
    run: String,
    /// Approve a call (repeatable)
    #[arg(long, value_name = "CALL", help_heading = "Decisions")]
    approve: Vec<String>,
    /// Deny a call (repeatable)
    #[arg(long, value_name = "CALL", help_heading = "Decisions")]
    deny: Vec<String>,
    /// Approve all requests of the same rules for the same programs until the run ends
    #[arg(long, requires = "approve", help_heading = "Decisions")]
    always: bool,
    /// The reason of the denials, for the model
    #[arg(long, value_name = "M", requires = "deny", help_heading = "Decisions")]
    message: Option<String>,
    #[command(flatten)]
    limits: Limits,
    /// Stop when the parent process exits
    #[arg(long, hide = true)]
    row: bool,
    /// The program that approves or denies calls that require approval, by its exit status
    #[arg(long, value_name = "PROGRAM", help_heading = "Decisions")]
    approver: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    if args.row {
        // Another run over the same rows resumes this one.
        set_parent_process_death_signal(Some(Signal::TERM))
            .map_err(|e| Error::io("watching the parent process", e).fatal())?;
    }
    let files = RunFiles::find(&args.run, context)?;
    let mut run = Run::open(&files, context)?;
    let decisions = args.decisions(&run.conversation, context)?;
    let approver = Approver::new(args.approver.as_deref().or(run.plan.approver.as_deref()), context)?;
    run.resume(&files, args.limits.or(run.conversation.limits), context)?;
    for (at, decision) in decisions {
        run.decide(at, decision, &context.home)?;
    }
    context.out.streaming()?;
    (context.options.base, context.options.root) = (Some(run.plan.base.clone()), run.plan.root.clone());
    run.conversation.show_answer_again();
    Event::resumed(&run.plan, &files.ledger, run.conversation.unshown.len()).show(context)?;
    let parts = Parts::new(&run.plan, &run.conversation.limits, approver, None);
    let mut total = Total::default();
    let outcome = Engine::new(run, parts).drive(&mut total, context);
    total.close(context);
    outcome?;
    context.out.item_succeeded();
    Ok(())
}

impl Args {
    /// The decision about an approval request, unless only the owner of the policy can approve it.
    fn checked(&self, call: &Call, decision: Decision, context: &Context) -> Result<Decision> {
        let id = &call.asked.id;
        let Some(approval) = call.approval.as_ref().filter(|_| call.is_asked) else {
            return Err(Error::new(Code::Conflict, format!("nothing is asked about the call {id}")).hint(
                "resume without --approve and --deny: if the call needs an answer, the run stops with the request",
            ));
        };
        if matches!(decision, Decision::Denied { .. }) {
            return Ok(decision);
        }
        if self.always && !approval.scopes.contains(&Scope::Run) {
            let message = format!("the call {id} can only be approved once, not for the whole run");
            return Err(Error::usage(message).hint("leave out --always"));
        }
        if approval.level == Level::Agent {
            return Ok(decision);
        }
        let approve = approve_line(&context.home, &approval.id);
        Err(Error::new(Code::HumanRequired, format!("only the owner of the policy can approve the call {id}"))
            .with("action", "approve_tool_call")
            .with("approve", approve.clone())
            .with("approval", serde_json::to_value(approval).unwrap_or_default())
            .hint(format!("run `{approve}` at a terminal, then resume without --approve")))
    }

    /// The decisions about waiting calls, by index. All are checked before any is recorded.
    fn decisions(&self, conversation: &Conversation, context: &Context) -> Result<Vec<(usize, Decision)>> {
        let reason = self.message.clone().unwrap_or_else(|| "a person denied it".to_owned());
        if let Some(both) = self.approve.iter().find(|id| self.deny.contains(id)) {
            return Err(Error::usage(format!("--approve {both} and --deny {both} contradict each other"))
                .hint("give one of them"));
        }
        let scope = if self.always { Scope::Run } else { Scope::Once };
        let grant = Box::new(Grant::new(How::Resume, scope));
        let approved = self.approve.iter().map(|id| (id, Decision::Approved(grant.clone())));
        let denied = Decision::Denied { why: reason, by: How::Resume.grantor().to_owned() };
        let denied = self.deny.iter().map(|id| (id, denied.clone()));
        let waiting: Vec<(usize, &Call)> =
            (0..).zip(&conversation.calls).filter(|(_, call)| call.result.is_none()).collect();
        let mut decisions = Vec::new();
        for (id, decision) in approved.chain(denied) {
            let Some((at, call)) = waiting.iter().find(|(_, call)| call.asked.id == *id) else {
                let ids: Vec<&str> = waiting.iter().map(|(_, call)| call.asked.id.as_str()).collect();
                return Err(Error::not_found(format!("no call `{id}` waits for approval")).with("waiting", ids));
            };
            decisions.push((*at, self.checked(call, decision, context)?));
        }
        Ok(decisions)
    }
}
