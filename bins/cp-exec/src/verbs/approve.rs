//! `cp-exec approve`: a person agrees to one command, on a terminal.

use std::io::{BufRead, BufReader, IsTerminal, Write};
use std::path::Path;

use cp_common::context::options::AppendOptions;
use cp_common::output::printable;
use cp_common::program::confirm::{fingerprint, issue, recall};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::Reply;
use cp_common::{Code, Context, Error, Result, clock};
use serde::{Deserialize, Serialize};

use crate::decision::confirm::{Approved, Pending, approved_file, bound_to, pending_directory};

pub(crate) const DOC: VerbDoc = VerbDoc {
    path: "approve",
    class: Class::Append,
    output: "approvals",
    examples: &["{} approve"],
    exits: &[9],
    ..VerbDoc::EMPTY
};

/// Approve a command that waits for a person, or list all that wait
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The command's id; without it, all waiting commands are listed
    #[arg(value_name = "ID")]
    id: Option<String>,
    #[command(flatten)]
    append: AppendOptions,
}

/// What is kept of an approval under its request id: never the token.
#[derive(Serialize, Deserialize)]
struct Agreed {
    pending: Pending,
    approved: Approved,
}

/// What waits for a person.
#[derive(Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[cfg_attr(test, schemars(rename = "approvals"))]
pub(crate) struct Approvals {
    /// The commands.
    items: Vec<Pending>,
    /// How many there are.
    count: usize,
    /// The token of the one that was approved now.
    confirm_token: Option<String>,
    /// When the token expires.
    expires_at: Option<String>,
}

impl Reply for Approvals {
    fn text(&self) -> String {
        let lines = self.items.iter().map(|item| format!("{}  {}  ({})", item.id, item.argv.join(" "), item.reason));
        lines.chain(self.confirm_token.iter().map(|token| format!("--confirm {token}"))).collect::<Vec<_>>().join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let directory = pending_directory(context.home.root());
    let Some(id) = &args.id else {
        let mut items: Vec<Pending> = std::fs::read_dir(&directory)
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
            .collect();
        items.sort_by(|a, b| a.asked_at.cmp(&b.asked_at));
        let count = items.len();
        return context.out.answer(&Approvals { items, count, confirm_token: None, expires_at: None });
    };
    if args.append.dry_run {
        let items = vec![waiting(&directory, id)?];
        return context.out.answer(&Approvals { items, count: 1, confirm_token: None, expires_at: None });
    }
    let home = context.home.root().to_owned();
    let asked = ("approve", id);
    let Agreed { pending, approved } =
        idempotency::once(args.append.request_id.as_deref(), &asked, context, |_| agree(&home, id))?;
    let bound = bound_to(&pending.argv, &pending.cwd, &pending.binding)?;
    let confirm_token = recall(&home, approved.expires, &approved.token, &bound)?;
    let expires_at = Some(clock::from_unix_seconds(approved.expires));
    context.out.answer(&Approvals { items: vec![pending], count: 1, confirm_token, expires_at })
}

/// The command that waits under an id.
fn waiting(directory: &Path, id: &str) -> Result<Pending> {
    let plain = !id.is_empty() && id.bytes().all(|c| c.is_ascii_hexdigit());
    let file = directory.join(format!("{id}.json"));
    let bytes = std::fs::read(&file).ok().filter(|_| plain).ok_or_else(|| {
        Error::not_found(format!("no command waits for approval under the id `{id}`"))
            .hint("`cp-exec approve` lists the ids")
    })?;
    serde_json::from_slice(&bytes)
        .map_err(|e| Error::new(Code::Integrity, format!("cannot be read: {e}")).in_file(&file))
}

/// Asks the person, and leaves word that the command may run.
fn agree(home: &Path, id: &str) -> Result<Agreed> {
    let directory = pending_directory(home);
    let pending = waiting(&directory, id)?;
    if !agreed(&pending)? {
        return Err(Error::new(Code::Forbidden, "not approved").with("rule", "approval"));
    }
    let (token, expires) = issue(home, &bound_to(&pending.argv, &pending.cwd, &pending.binding)?)?;
    let approved = Approved { expires, token: fingerprint(home, &token)? };
    // Whoever asks for the same again need not know the token.
    let bytes = serde_json::to_vec(&approved).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
    cp_common::home::write_whole(&approved_file(home, id), &bytes)?;
    let file = directory.join(format!("{id}.json"));
    std::fs::remove_file(&file).map_err(|e| Error::io("cannot be removed", e).in_file(&file))?;
    Ok(Agreed { pending, approved })
}

/// Asks on the terminal itself: a pipe has no person at its end.
fn agreed(pending: &Pending) -> Result<bool> {
    let no_terminal = |_| {
        Error::new(Code::HumanRequired, "approval requires a person at a terminal")
            .with("action", "approve_command")
            .with("resume", format!("cp-exec approve {}", pending.id))
    };
    if !std::io::stdin().is_terminal() {
        return Err(no_terminal(std::io::ErrorKind::NotFound.into()));
    }
    let mut terminal = std::fs::OpenOptions::new().read(true).write(true).open("/dev/tty").map_err(no_terminal)?;
    let variables = match pending.variables.as_slice() {
        [] => String::new(),
        names => format!("\n  with {} set, to values that are not shown", names.join(", ")),
    };
    // Debug quoting shows where a word ends; controls of every kind are made visible on the way out.
    let question = format!(
        "{:?}\n  in {:?}{variables}\n  asked by {:?} at {}\n  {}",
        pending.argv, pending.cwd, pending.agent, pending.asked_at, pending.reason
    );
    terminal.write_all(printable(&question).as_bytes())?;
    terminal.write_all(b"\nType `yes` to approve: ")?;
    let mut answer = String::new();
    BufReader::new(terminal).read_line(&mut answer)?;
    Ok(answer.trim() == "yes")
}
