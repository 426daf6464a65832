//! `cp-exec approve`: a person at a terminal approves a pending request.

use cp_common::context::options::AppendOptions;
use cp_common::program::{Class, VerbDoc, approval, idempotency};
use cp_common::wire::{Approval, Reply};
use cp_common::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::run::Engine;
use crate::run::approvals::{ask, settle};

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["{} approve"],
    sort: Some("asked_at, descending"),
    exits: &[9],
    events: &["approval.granted", "approval.denied"],
    ..VerbDoc::new("approve", Class::Append, "approvals")
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

/// Pending approvals, or the one that was granted now.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "approvals"))]
pub(crate) struct Approvals {
    /// The approvals, newest first.
    items: Vec<Approval>,
    /// The number of approvals.
    count: usize,
    /// True if the approval was granted now, for the next start of its request.
    granted: bool,
}

impl Reply for Approvals {
    fn text(&self) -> String {
        if self.items.is_empty() {
            return "no approval is pending".to_owned();
        }
        let granted = if self.granted { "granted " } else { "" };
        let line = |item: &Approval| format!("{granted}{}  {}  ({})", item.id, item.subject(), item.shown.why);
        self.items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let home = context.home.clone();
    let listed = |items: Vec<Approval>, granted| Approvals { count: items.len(), items, granted };
    let Some(id) = &args.id else { return context.out.answer(&listed(approval::waiting(&home), false)) };
    let find = || approval::find(&home, id);
    let preview = || Ok(listed(vec![find()?], false));
    idempotency::answer(&args.append, &("approve", id), context, preview, |context| {
        let approval = find()?;
        agree(&approval, context)?;
        Ok(listed(vec![approval], true))
    })
}

/// Asks for a decision of a person, and keeps a grant for the next start.
fn agree(approval: &Approval, context: &Context) -> Result<()> {
    let Engine { mut journal, policy, .. } = Engine::new(context, &[])?;
    let unanswered = approval::pause(&context.home, approval)?;
    settle(&mut journal, &policy, approval, ask(approval)?, || unanswered)
}
