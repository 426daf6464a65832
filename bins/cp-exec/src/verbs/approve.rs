//! `cp-exec approve`: a person at a terminal, or the approver of the policy, approves a pending request.

use cp_common::context::options::AppendOptions;
use cp_common::program::approval::{self, Verdict, command_line};
use cp_common::program::confirm::{fingerprint, recall};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Approval, How, Reply, Scope};
use cp_common::{Code, Context, Error, Result, clock};
use serde::{Deserialize, Serialize};

use crate::run::Engine;
use crate::run::approvals::{deny, grant, owner_approver, person};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "approve",
    class: Class::Append,
    output: "approvals",
    examples: &["{} approve"],
    sort: Some("asked_at, descending"),
    exits: &[9],
    events: &["approval.granted", "approval.denied"],
    ..VerbDoc::EMPTY
};

/// Approve a pending request, or list all pending requests
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The id of the approval; without it, all pending approvals are listed
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// The stored result of an approval under its request id. It never contains the token.
#[derive(Serialize, Deserialize)]
struct Agreed {
    approval: Approval,
    /// When the token expires, in seconds since 1970.
    expires: u64,
    /// The keyed hash of the token.
    token: String,
}

/// Pending approvals.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "approvals"))]
pub(crate) struct Approvals {
    /// The pending approvals, newest first.
    items: Vec<Approval>,
    /// The number of pending approvals.
    count: usize,
    /// The token of the approval that was granted now.
    confirm_token: Option<String>,
    /// When the token expires.
    expires_at: Option<String>,
}

impl Reply for Approvals {
    fn text(&self) -> String {
        if self.items.is_empty() {
            return "no approval is pending".to_owned();
        }
        let lines = self.items.iter().map(|item| format!("{}  {}  ({})", item.id, item.subject(), item.shown.why));
        lines.chain(self.confirm_token.iter().map(|token| format!("--confirm {token}"))).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let home = context.home.clone();
    let listed = |items: Vec<Approval>| Approvals { count: items.len(), items, confirm_token: None, expires_at: None };
    let Some(id) = &args.id else { return context.out.answer(&listed(approval::waiting(&home))) };
    if args.append.dry_run {
        return context.out.answer(&listed(vec![approval::find(&home, id)?]));
    }
    let agreed = idempotency::once(args.append.request_id.as_deref(), &("approve", id), context, |context| {
        agree(&approval::find(&home, id)?, context)
    })?;
    let confirm_token = recall(&home, agreed.expires, &agreed.token, &approval::bound(&agreed.approval)?)?;
    let expires_at = Some(clock::from_unix_seconds(agreed.expires));
    context.out.answer(&Approvals { confirm_token, expires_at, ..listed(vec![agreed.approval]) })
}

/// Asks for a decision, and keeps the grant for the next start of the same request.
fn agree(approval: &Approval, context: &mut Context) -> Result<Agreed> {
    let mut engine = Engine::new(context, &[])?;
    // An approval here is valid for one start. Longer approvals are offered by the run.
    let asked = Approval { scopes: vec![Scope::Once], ..approval.clone() };
    let (how, answer) = match person(&asked)? {
        Some(verdict) => (How::Terminal, verdict),
        None => match owner_approver(&engine.policy, approval)? {
            Some(verdict) => (How::OwnerApprover, verdict),
            None => (How::Terminal, Verdict::Undecided("approval requires a person at a terminal".to_owned())),
        },
    };
    let Engine { journal, policy, .. } = &mut engine;
    match answer {
        Verdict::Granted => {
            let (token, expires) = grant(journal, policy, approval, how)?;
            let token = fingerprint(&context.home, &token)?;
            Ok(Agreed { approval: approval.clone(), expires, token })
        }
        Verdict::Denied(why) => Err(deny(journal, policy, approval, how, &why)?),
        Verdict::Undecided(why) => Err(Error::new(Code::HumanRequired, why)
            .with("action", "approve_command")
            .with("resume", command_line(&context.home, &approval.resume))),
    }
}
