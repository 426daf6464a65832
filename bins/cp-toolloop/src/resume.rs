//! `cp-toolloop resume`: go on with a run that stopped, at exactly the step where it stopped.

use cp_common::{Context, Error, Result};

use crate::approval::Approver;
use crate::book::Book;
use crate::conversation::Conversation;
use crate::engine::{Engine, Trace};
use crate::event::Event;
use crate::journal::{Decision, Journal, Step};
use crate::plan::Limits;
use crate::run::{positive, within};
use crate::{journal, place};

/// Go on with a run that stopped
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The run: an id, a unique beginning of one, or the path of its ledger
    #[arg(value_name = "RUN")]
    run: String,
    /// A call that may run; give it once for each
    #[arg(long, value_name = "CALL")]
    approve: Vec<String>,
    /// A call that must not run; give it once for each
    #[arg(long, value_name = "CALL")]
    deny: Vec<String>,
    /// What to tell the model about the calls that are denied
    #[arg(long, value_name = "M", requires = "deny")]
    message: Option<String>,
    /// The most turns of the model, those before the stop counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_iterations: Option<u64>,
    /// The most tokens, those before the stop counted
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    budget_tokens: Option<u64>,
    /// The most dollars, those before the stop counted
    #[arg(long, value_name = "X", value_parser = positive)]
    budget_usd: Option<f64>,
    /// The most seconds from now on
    #[arg(long, value_name = "S", value_parser = positive)]
    deadline: Option<f64>,
    /// The program that decides about calls which need a word, by its exit status
    #[arg(long, value_name = "PROGRAM")]
    approver: Option<String>,
}

/// Runs the verb.
pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let place = place::find(&args.run, context)?;
    let (mut journal, steps) = Journal::open(&journal::path_of(&place.ledger), &context.home)?;
    let (plan, mut conversation) = Conversation::of_steps(steps)?;
    let decisions = args.decisions(&conversation)?;
    let limits = args.limits(conversation.limits);
    let approver = Approver::new(args.approver.as_deref().or(plan.approver.as_deref()), context)?;
    let agent = context.agent(plan.prompt.agent.as_deref());
    let mut book = Book::open(&place.ledger, &plan.run, &agent, plan.prompt.session_id.as_deref())?;
    book.resumed(&limits)?;
    if limits != conversation.limits {
        journal.append(&Step::Limits(limits))?;
        conversation.take(Step::Limits(limits))?;
    }
    for (at, decision) in decisions {
        let (is_approved, words) = match &decision {
            Decision::Approved => (true, ""),
            Decision::Denied(words) => (false, words.as_str()),
        };
        book.decision(&conversation.calls[at].asked.id, is_approved, "person", words)?;
        let step = Step::Decided(at, decision);
        journal.append(&step)?;
        conversation.take(step)?;
    }
    context.out.streaming()?;
    context.options.base = Some(plan.base.clone());
    let names = plan.tools.iter().map(|tool| tool.name.clone()).collect();
    Event::start("run_resumed", &plan.run, place.ledger.display().to_string(), names).show(context)?;
    within(&place.ledger, &plan.run.clone(), context, |context| {
        Engine::new(plan, conversation, Some(Trace { journal, book }), approver).drive(context)
    })?;
    context.out.item_succeeded();
    Ok(())
}

impl Args {
    /// The limits of the run, with what this command line says.
    fn limits(&self, before: Limits) -> Limits {
        Limits {
            max_iterations: self.max_iterations.unwrap_or(before.max_iterations),
            tokens: self.budget_tokens.or(before.tokens),
            usd: self.budget_usd.or(before.usd),
            deadline: self.deadline.or(before.deadline),
        }
    }

    /// What was decided about which waiting call. All are checked before anything is written down.
    fn decisions(&self, conversation: &Conversation) -> Result<Vec<(usize, Decision)>> {
        let words = self.message.clone().unwrap_or_else(|| "a person said no".to_owned());
        let approved = self.approve.iter().map(|id| (id, Decision::Approved));
        let denied = self.deny.iter().map(|id| (id, Decision::Denied(words.clone())));
        approved.chain(denied).map(|(id, decision)| Ok((waiting(id, conversation)?, decision))).collect()
    }
}

/// The call that waits under this id.
fn waiting(id: &str, conversation: &Conversation) -> Result<usize> {
    let found = conversation.calls.iter().position(|call| call.asked.id == id && call.result.is_none());
    found.ok_or_else(|| {
        let waiting = conversation.calls.iter().filter(|call| call.result.is_none());
        let ids: Vec<&str> = waiting.map(|call| call.asked.id.as_str()).collect();
        Error::not_found(format!("no call `{id}` waits for a word")).with("waiting", ids)
    })
}
