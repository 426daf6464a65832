//! `cp-shell init`: creates the home. Only missing files are created, and each is recorded in the ledger.

use cp_common::context::options::AppendOptions;
use cp_common::coprocess;
use cp_common::home::{create_whole, make_directory};
use cp_common::program::{Class, VerbDoc, idempotency};
use cp_common::wire::{Receipt, Reply};
use cp_common::{Context, Error, Result, keys};
use cp_ledger::{Entry, Ledger};
use serde::{Deserialize, Serialize};

pub(crate) const DOC: VerbDoc = VerbDoc {
    examples: &["cp-shell init --dry-run", "cp-shell init"],
    events: &["init.created"],
    ..VerbDoc::new("init", Class::Append, "init")
};

/// Create the home: missing directories and starter files
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    append: AppendOptions,
}

/// The starter files of a home: path, text and purpose.
const STARTERS: [(&str, &str, &str); 9] = [
    ("config/cp.toml", include_str!("../starter/cp.toml"), "settings; flags and environment variables override them"),
    (
        "config/shell.toml",
        include_str!("../starter/shell.toml"),
        "settings of interactive sessions: history, hub, memory",
    ),
    ("config/cp.env", include_str!("../starter/cp.env"), "variables that the scripts use if they are not set"),
    ("config/prices.toml", include_str!("../starter/prices.toml"), "prices of tokens: check them with your provider"),
    ("config/agents.json", include_str!("../starter/agents.json"), "the agents: id, soul and model"),
    ("config/governed_roots.json", include_str!("../starter/governed_roots.json"), "the pristine paths"),
    ("agents/default/soul.md", SOUL, "the system text of the agent `default`"),
    ("governed_prompts/PRM-DEFAULT-SOUL-001.md", SOUL, "the same text as a governed prompt"),
    ("registries/prompts_registry.csv", "", "the registered prompts and their hashes"),
];

/// Returns the starter files for a home. Its governed roots are those of the tree that holds the list.
fn starters(context: &Context) -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let is_tree = context.home.path("config").starts_with(context.home.root());
    STARTERS.into_iter().filter(move |(path, ..)| is_tree || *path != "config/governed_roots.json")
}

const SOUL: &str = include_str!("../starter/soul.md");

const DIRECTORIES: [&str; 4] = ["tools", "memory", "tmp", "output"];

/// The created and existing files.
#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct Made {
    /// The home.
    home: String,
    /// The directory that `config` means in a path.
    #[serde(default)]
    config_directory: String,
    /// The files, in order of creation.
    items: Vec<Item>,
    /// The number of files.
    count: usize,
    /// The receipt of the last file; null if nothing was created.
    receipt: Option<Receipt>,
}

#[derive(Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
struct Item {
    /// The path below the home.
    path: String,
    /// The result for this file.
    action: Action,
    /// The purpose of the file.
    purpose: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
enum Action {
    /// Created, or in a dry run to be created.
    Created,
    /// Kept, because it exists.
    Kept,
}

impl Reply for Made {
    fn text(&self) -> String {
        let line = |item: &Item| {
            let mark = if item.action == Action::Created { "+" } else { "=" };
            format!("{mark} {:<44} {}", item.path, item.purpose)
        };
        self.items
            .iter()
            .map(line)
            .chain([format!("home: {}\nconfig: {}", self.home, self.config_directory)])
            .collect::<Vec<_>>()
            .join("\n")
    }
}

pub(crate) fn run(args: &Args, context: &mut Context) -> Result<()> {
    let made = if args.append.dry_run {
        plan(context)
    } else {
        let home = context.home.root().to_owned();
        idempotency::once(args.append.request_id.as_deref(), &("init", home), context, make)?
    };
    context.out.answer(&made)
}

/// Returns the files that `make` would create.
fn plan(context: &Context) -> Made {
    let item = |path: &str, purpose: &str| {
        let action = if context.home.path(path).exists() { Action::Kept } else { Action::Created };
        Item { path: path.to_owned(), action, purpose: purpose.to_owned() }
    };
    let mut items: Vec<Item> = starters(context).map(|(path, _, purpose)| item(path, purpose)).collect();
    items.push(item("config/policy.toml", POLICY_PURPOSE));
    let [home, config, _] = context.home.places().map(|place| place.display().to_string());
    Made { home, config_directory: config, count: items.len(), items, receipt: None }
}

const POLICY_PURPOSE: &str = "the policy for commands and files (from cp-exec policy init)";

fn make(context: &mut Context) -> Result<Made> {
    // Checked first, because the home would otherwise be left incomplete.
    coprocess::find("cp-exec")?;
    let mut ledger = cp_ledger::effect_ledger(context, "cp-log.jsonl")?;
    for directory in DIRECTORIES {
        make_directory(&context.home.path(directory))?;
    }
    let mut made = plan(context);
    let starters: Vec<_> = starters(context).collect();
    for (path, text, purpose) in starters {
        let registry = registry();
        let text = if path.ends_with("prompts_registry.csv") { registry.as_str() } else { text };
        if create_whole(&context.home.path(path), text.as_bytes())? {
            made.receipt = Some(record(&mut ledger, path, text, purpose)?);
        }
    }
    if !context.home.policy_file().exists() {
        policy(context)?;
        let text =
            std::fs::read_to_string(context.home.policy_file()).map_err(|e| Error::io("reading the new policy", e))?;
        made.receipt = Some(record(&mut ledger, "config/policy.toml", &text, POLICY_PURPOSE)?);
    }
    ledger.sync()?;
    Ok(made)
}

fn record(ledger: &mut Ledger, path: &str, text: &str, purpose: &str) -> Result<Receipt> {
    let entry = Entry::new("init.created")
        .message(path)
        .with("path", path)
        .with("sha256", &keys::hash(text.as_bytes()))
        .with("purpose", purpose);
    ledger.append(entry)
}

/// Returns the registry of governed prompts with the default soul.
fn registry() -> String {
    let day = cp_common::clock::now();
    let day = day.get(..10).unwrap_or_default();
    format!(
        "prompt_id,title,status,hash,created,updated\nPRM-DEFAULT-SOUL-001,Default soul,active,{},{day},{day}\n",
        keys::hash(SOUL.as_bytes())
    )
}

/// Has cp-exec write the starter policy, because it knows the rules.
fn policy(context: &Context) -> Result<()> {
    let home = ["--home".into(), context.home.root().into()];
    coprocess::ask_with("cp-exec", &["policy", "init"], b"", home).map(|_: serde::de::IgnoredAny| ())
}
