//! `cp-shell register`: registers the hash of a prompt. Shows the changed lines, asks for confirmation, and writes the
//! file and its row in the registry.

use std::fs::File;
use std::path::{Path, PathBuf};

use cp_common::context::options::WriteOptions;
use cp_common::home::{Home, lock, write_whole};
use cp_common::program::confirm::{self, Change, Plan};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result, clock, keys};
use cp_ledger::Entry;
use cp_policy::prompts::{Prompts, check_id, is_hash, read};
use cp_policy::{Row, Table};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};

use crate::agent::{Agents, soul_prompt};

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-shell init >/dev/null; echo 'Be brief.' > review.md; cp-shell register --yes ./review.md"],
    events: &["prompt.registered"],
    ..VerbDoc::new("register", Class::Write, "registered")
};

/// Register the text of a prompt, or of an agent as it is now
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Skip the confirmation
    #[arg(long, conflicts_with_all = ["dry_run", "confirm"])]
    yes: bool,
    #[command(flatten)]
    write: WriteOptions,
    /// A prompt id, an agent, or a text file, named with a `/`
    #[arg(value_name = "PROMPT|AGENT|FILE")]
    target: String,
}

/// The result of a registration.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Registered {
    /// The new and changed prompts; none if all are registered already.
    items: Vec<Item>,
    /// The receipt of the last registration.
    receipt: Option<Receipt>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Item {
    /// Its id.
    prompt_id: String,
    /// The file of the text.
    file: String,
    /// The hash of its text.
    hash: String,
    /// The removed lines after `-`, and the added lines after `+`.
    difference: String,
    #[serde(skip)]
    text: String,
    /// The current registration.
    #[serde(skip)]
    before: Value,
}

impl Reply for Registered {
    fn text(&self) -> String {
        let lines =
            self.items.iter().map(|item| format!("{}registered {} ({})", item.difference, item.prompt_id, item.hash));
        let lines = lines.collect::<Vec<_>>().join("\n");
        if lines.is_empty() { "nothing to do: everything is registered already".to_owned() } else { lines }
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let target = if args.target.contains('/') {
        std::path::absolute(&args.target)?.display().to_string()
    } else {
        args.target.clone()
    };
    let plan = |context: &mut Context| pending(&target, &context.home);
    if args.yes {
        let id = args.write.request_id.as_deref();
        let registered =
            idempotency::once(id, &(DOC.path, &target), context, |context| register(plan(context)?, context))?;
        return context.out.answer(&registered);
    }
    confirm::write(&DOC, &target, &args.write, context, |context| {
        let pending = plan(context)?;
        if pending.is_empty() {
            return Plan::nothing(Registered { items: pending, receipt: None });
        }
        Plan::changes(pending.iter().map(change).collect::<Vec<_>>(), |context| register(pending, context))
    })
}

/// Returns the prompts that a target selects and that differ from their registration.
fn pending(target: &str, home: &Home) -> Result<Vec<Item>> {
    let prompts = Prompts::below(home.root())?;
    let agents: Agents = home.agents()?;
    let directory = home.path("agents").join(target);
    let sources: Vec<(String, PathBuf)> = if target.contains('/') {
        let file = Path::new(target);
        let stem = name_of(file);
        vec![(if stem.starts_with("PRM-") { stem } else { format!("PRM-{stem}-001") }, file.to_owned())]
    } else if target.starts_with("PRM-") {
        vec![(target.to_owned(), prompts.file(target))]
    } else if target == "default" || agents.contains_key(target) || directory.is_dir() {
        let soul = agents.get(target).and_then(|agent| agent.get("soul")?.as_str());
        let soul = soul.map_or_else(|| directory.join("soul.md"), |soul| home.path(soul));
        let mut context: Vec<PathBuf> = std::fs::read_dir(directory.join("context"))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        context.retain(|file| file.extension().is_some_and(|kind| kind == "md"));
        context.sort();
        let context =
            context.into_iter().map(|file| (format!("PRM-{}-{}-001", target.to_uppercase(), name_of(&file)), file));
        std::iter::once((soul_prompt(target, &agents), soul)).chain(context).collect()
    } else {
        let error = home.unknown_agent(target, agents.keys());
        let is_near = error.details().contains_key("nearest");
        return Err(if is_near {
            error
        } else {
            error.hint("name a prompt (PRM-…), an agent, or a file with a `/`")
        });
    };
    let mut pending = Vec::new();
    for (prompt_id, source) in sources {
        check_id(&prompt_id)?;
        let text = read(&source).map_err(|e| e.hint("write the text to this file, then register it"))?;
        let (file, hash) = (prompts.file(&prompt_id), keys::hash(text.as_bytes()));
        let row = prompts.table.rows.iter().find(|row| row.get("prompt_id") == prompt_id);
        let old = read(&file).ok();
        let is_so = |row: &Row| row.get("status") == "active" && is_hash(row.get("hash"), &hash);
        if row.is_some_and(is_so) && old.as_ref() == Some(&text) {
            continue;
        }
        let before = row.map(|row| json!({"hash": row.get("hash"), "status": row.get("status"), "text": old}));
        let difference = difference(old.as_deref().unwrap_or_default(), &text);
        let (file, before) = (file.display().to_string(), before.unwrap_or_default());
        pending.push(Item { prompt_id, file, hash, difference, text, before });
    }
    Ok(pending)
}

/// Returns the name of a file as a part of a prompt id.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().unwrap_or_default().to_string_lossy().to_uppercase();
    stem.chars().map(|letter| if letter.is_ascii_alphanumeric() || letter == '_' { letter } else { '-' }).collect()
}

fn change(item: &Item) -> Change {
    let Item { hash, text, difference, before, .. } = item;
    let action = if before.is_null() { "add" } else { "change" };
    let after = json!({"hash": hash, "status": "active", "text": text, "difference": difference});
    Change { after, ..Change::new(action, "prompt", &item.prompt_id, before.clone()) }
}

/// Writes the texts, and then all their rows at once. Between the two steps a prompt with a new text is refused.
fn register(items: Vec<Item>, context: &mut Context) -> Result<Registered> {
    let mut receipt = None;
    if !items.is_empty() {
        let mut ledger = cp_ledger::effect_ledger(context, "cp-log.jsonl")?;
        let registries = context.home.path("registries");
        let directory = File::open(&registries).map_err(|e| Error::io("opening", e).in_file(&registries))?;
        lock(&directory)?;
        let prompts = Prompts::below(context.home.root())?;
        let day = clock::now().get(..10).unwrap_or_default().to_owned();
        let (mut table, mut registry) = (prompts.table.clone(), String::new());
        for Item { prompt_id, file, hash, text, before, .. } in &items {
            write_whole(Path::new(file), text.as_bytes())?;
            let mut cells =
                vec![("prompt_id", prompt_id.as_str()), ("status", "active"), ("hash", hash), ("updated", &day)];
            if before.is_null() {
                cells.extend([("title", prompt_id.as_str()), ("created", &day)]);
            }
            registry = table.with(&cells);
            table = Table::parse(&registry)?;
        }
        write_whole(&prompts.registry, registry.as_bytes())?;
        for Item { prompt_id, hash, .. } in &items {
            let entry = Entry::new("prompt.registered").message(prompt_id).with("prompt_id", prompt_id);
            receipt = Some(ledger.append(entry.with("hash", hash))?);
        }
        ledger.sync()?;
    }
    Ok(Registered { items, receipt })
}

/// Returns the removed and added lines.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    let diff = TextDiff::from_slices(&old, &new);
    let changes = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    changes.fold(String::new(), |text, change| text + &format!("{}{}\n", change.tag(), change.value()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn difference_lists_removed_and_added_lines() {
        assert_eq!(difference("a\nb\nc\n", "a\nx\ny\nc\n"), "-b\n+x\n+y\n");
        assert_eq!(difference("a\na\n", "a\n") + &difference("", "a"), "-a\n+a\n");
    }
}
