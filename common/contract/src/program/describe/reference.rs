//! `reference`: the machine-readable description of a program.

use std::collections::{BTreeMap, BTreeSet};

use clap::{Arg, Command};
use serde_json::{Value, json};

use super::without_null;
use crate::program::identity::{Program, VERSION, VerbDoc};
use crate::program::{command, standard};
use crate::wire::error::EXITS;
use crate::wire::record::SCHEMA_VERSION;
use crate::wire::schemas::SHARED;
use crate::wire::{Built, Code, Error, Result};

/// The output of `scripts/conformance` for a version against a real server; the last line counts.
const LIVE: &str = include_str!("../../../live.jsonl");

/// True if this version passed every check of that run.
fn is_tried_live() -> bool {
    let last = LIVE.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    last.is_some_and(|last| last["version"] == concat!("cp-llm ", env!("CARGO_PKG_VERSION")) && last["failed"] == 0)
}

/// Returns the readiness for release.
pub(super) fn readiness() -> Value {
    let mut readiness: Value = serde_json::from_str(include_str!("../../../readiness.json")).unwrap_or_default();
    if is_tried_live() {
        readiness["live_smoke_status"] = "verified".into();
    }
    readiness
}

/// Describes the program; only the verb with these words, or those below it, and the schemas that they use.
pub(super) fn reference(program: &Program, mut root: Command, verb: Option<&str>) -> Result<Built> {
    root.build();
    let all = command::verbs(&root);
    let is_chosen = |path: &str| match verb {
        None => true,
        Some("") => path.is_empty(),
        Some(verb) => path.strip_prefix(verb).is_some_and(|below| below.is_empty() || below.starts_with(' ')),
    };
    let (mut commands, mut outputs) = (Vec::new(), BTreeSet::new());
    let mut text = format!("{} {VERSION}: {}", program.name, program.about);
    for (path, verb) in all.iter().filter(|(path, _)| is_chosen(path)) {
        let doc = program.doc(path);
        let doc = doc.ok_or_else(|| Error::new(Code::Unknown, format!("the verb `{path}` is not described")))?;
        text += &format!("\n  {:<24} {}", [program.name, path].join(" ").trim(), command::about(verb));
        outputs.extend(doc.outputs());
        commands.push(command(program, doc, verb));
    }
    if commands.is_empty() {
        let (verb, known) = (verb.unwrap_or_default(), all.iter().map(|(path, _)| path.as_str()));
        let error = Error::not_found(format!("{} has no verb `{verb}`", program.name));
        let error = error.with("verbs", known.clone().collect::<Vec<_>>());
        return Err(error.nearest(verb, known, &format!("`{} --help` lists them", program.name)));
    }
    let schemas = program.schemas.iter().chain(SHARED).filter(|(name, _)| outputs.contains(name));
    let environment: BTreeMap<_, _> = standard::ENVIRONMENT.iter().chain(program.environment).copied().collect();
    let data = json!({
        "tool": program.name,
        "version": VERSION,
        "schema_version": SCHEMA_VERSION,
        "about": program.about,
        "risk_tier": program.risk_tier,
        "release_readiness": readiness(),
        "commands": commands,
        "environment": environment,
        "schemas": schemas.map(|(name, text)| (*name, schema(text))).collect::<BTreeMap<_, _>>(),
        "exit_codes": EXITS.iter().map(|(exit, meaning)| (exit.to_string(), *meaning)).collect::<BTreeMap<_, _>>(),
        "error_codes": Code::ROWS
            .iter()
            .map(|row| (row.name, json!({"exit": row.exit, "retryable": row.retryable})))
            .collect::<BTreeMap<_, _>>(),
    });
    Ok(Built { data, text })
}

fn command(program: &Program, doc: &VerbDoc, verb: &Command) -> Value {
    let shown = |argument: &&Arg| !argument.is_hide_set() && !matches!(argument.get_id().as_str(), "help" | "version");
    json!({
        "path": doc.path,
        "type": doc.class,
        "output_schema": doc.output,
        "dangerous": doc.dangerous,
        "stdin": doc.input,
        "default_sort": doc.sort,
        "events": doc.events,
        "description": command::about(verb),
        "params": verb.get_arguments().filter(shown).map(parameter).collect::<Vec<_>>(),
        "outputs": doc.outputs(),
        "examples": doc.examples.iter().map(|example| example.replace("{}", program.name)).collect::<Vec<_>>(),
        "exit_codes": doc.all_exits(),
    })
}

fn parameter(argument: &Arg) -> Value {
    let takes_value = argument.get_action().takes_values();
    let values: Vec<String> = argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect();
    let defaults = argument.get_default_values().iter().filter(|_| takes_value).map(|value| value.to_string_lossy());
    without_null(json!({
        "name": command::name(argument),
        "short": argument.get_long().and(argument.get_short()).map(|short| format!("-{short}")),
        "default": defaults.map(String::from).reduce(|all, value| all + "," + &value),
        "type": match values.join("|") {
            _ if !takes_value => "flag".to_owned(),
            none if none.is_empty() => "string".to_owned(),
            values => values,
        },
        "required": argument.is_required_set(),
        "multiple": command::is_multiple(argument),
        "description": argument.get_help().map(ToString::to_string).unwrap_or_default(),
    }))
}

fn schema(text: &str) -> Value {
    let schema: Value = serde_json::from_str(text).unwrap_or_default();
    let untrusted = schema.get("x-untrusted").cloned().unwrap_or_else(|| json!([]));
    json!({"untrusted_fields": untrusted, "json_schema": schema})
}
