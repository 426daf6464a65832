//! `cp-shell reset`: ends the current session of an agent, so that the next turn starts a new one. The conversation is
//! kept.

use std::path::Path;

use cp_common::context::options::WriteOptions;
use cp_common::program::confirm::{self, Change, Plan};
use cp_common::program::{Class, VerbDoc};
use cp_common::wire::Receipt;
use cp_common::wire::Reply;
use cp_common::{Context, Error, Result};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::ask;

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "reset",
    class: Class::Write,
    output: "reset",
    examples: &[
        "export CP_SESSION=$(cp-session start --format text); T=$(cp-shell reset --dry-run | jq -r .data.confirm_token); cp-shell reset --confirm \"$T\"",
    ],
    ..VerbDoc::EMPTY
};

/// End the current session of an agent, so that the next turn starts a new one
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The agent: an id in config/agents.json, or default
    #[arg(long, value_name = "ID")]
    agent: Option<String>,
    #[command(flatten)]
    write: WriteOptions,
}

/// The result of `reset`.
#[derive(Debug, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Reset {
    /// The session.
    session_id: String,
    /// The number of turns.
    turns: u64,
    /// The link from the agent to its current session, if it was removed.
    link_removed: Option<String>,
    /// The receipt of its end.
    receipt: Option<Receipt>,
}

impl Reply for Reset {
    fn text(&self) -> String {
        format!("{} ended after {} turns; the next session begins fresh", self.session_id, self.turns)
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let agent = context.agent(args.agent.as_deref());
    let arguments = (&agent, context.session());
    confirm::write(&DOC, &arguments, &args.write, context, |context| plan(&agent, context))
}

fn plan(agent: &str, context: &mut Context) -> Result<Plan<'static, Reset>> {
    let link = context.home.path("agents").join(agent).join("sessions/current.jsonl");
    let current = link.read_link().ok().map(|target| link.with_file_name(target));
    let session = context.session().or_else(|| Some(current.as_ref()?.parent()?.display().to_string()));
    context.options.session = Some(session.ok_or_else(|| {
        Error::not_found(format!("the agent `{agent}` has no current session"))
            .with("agent", agent)
            .hint("name one with --session; `cp-session list` shows them")
    })?);
    let shown = ask(context, "cp-session", &["show"])?;
    let id = shown["session_id"].as_str().unwrap_or_default().to_owned();
    let is_current = current.as_ref().is_some_and(|file| names(file, &id));
    let before = json!({"path": shown["path"], "turns": shown["turns"], "last_seq": shown["last_seq"]});
    let mut changes = vec![Change::new("end", "session", &id, before)];
    if is_current {
        changes.push(Change::new("remove", "link", link.display().to_string(), json!({"session_id": id})));
    }
    Plan::changes(changes, move |context| {
        let ended = ask(context, "cp-session", &["end"])?;
        let link_removed = is_current.then_some(link);
        if let Some(link) = &link_removed {
            std::fs::remove_file(link).map_err(|e| Error::io("removing the link", e).in_file(link))?;
        }
        Ok(Reset {
            session_id: id,
            turns: ended["turns"].as_u64().unwrap_or_default(),
            link_removed: link_removed.map(|link| link.display().to_string()),
            receipt: serde_json::from_value(ended["receipt"].clone()).unwrap_or_default(),
        })
    })
}

/// True if a file belongs to this session.
fn names(file: &Path, id: &str) -> bool {
    file.parent().and_then(Path::file_name).is_some_and(|name| name == id)
}
