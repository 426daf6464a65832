//! The verbs by which every program describes itself: `reference`, `context`, `doctor`, `changelog`, `completions`.

mod changelog;
mod doctor;

pub use self::changelog::{Newest, number};
pub use self::doctor::report;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use clap::{Arg, Command, Parser};
use serde_json::{Value, json};

use crate::context::Context;
use crate::home::config::SETTINGS;
use crate::program::arguments::command_of;
use crate::program::command::{self, SHARED, Standard};
use crate::program::completion;
use crate::program::identity::{Program, VERSION, VerbDoc};
use crate::wire::error::EXITS;
use crate::wire::record::SCHEMA_VERSION;
use crate::wire::{Built, Code, Error, Result, bytes_of};

/// Runs one of these verbs.
pub(super) fn run<C: Parser>(program: &'static Program, verb: Standard, context: &mut Context) -> Result<()> {
    if matches!(verb, Standard::Context | Standard::Doctor) {
        context.out.notice_of_update(&context.home);
    }
    let answer = match verb {
        Standard::Reference { verb } => reference(program, command_of::<C>(program), verb.as_deref())?,
        Standard::Context => settings(program, context),
        Standard::Doctor => return doctor::doctor(program, context),
        Standard::Changelog { since } => changelog::changelog(program.name, since.as_deref())?,
        Standard::Completions { shell } => {
            let script = completion::script(program.name, &shell);
            Built { text: script.trim_end().to_owned(), data: json!({"shell": shell, "script": script}) }
        }
    };
    context.out.answer(&answer)
}

/// Returns the effective settings, and the availability of credentials, never the credentials.
fn settings(program: &Program, context: &Context) -> Built {
    let home = &context.home;
    let [data, config, state] = home.places().map(Path::display);
    let sources = program.credentials.map(|sources| sources(context));
    let settings: BTreeMap<_, _> =
        SETTINGS.iter().filter_map(|s| Some((s.key, context.config.get(s.key, None)?))).collect();
    let mut lines = vec![
        format!("home = {data} ({})", home.origin),
        format!("configuration = {config}"),
        format!("state = {state}"),
    ];
    lines.extend(
        settings.iter().map(|(key, found)| format!("{key} = {} ({:?})", found.text, found.origin).to_lowercase()),
    );
    lines.extend(sources.iter().flatten().map(|found| format!("{}: key in {}", found.provider, found.source)));
    let settings = settings.iter().map(|(key, found)| (*key, json!({"value": found.text, "origin": found.origin})));
    let data = without_null(json!({
        "version": VERSION,
        "home": data.to_string(),
        "home_bytes": bytes_of(home.root()),
        "home_origin": home.origin,
        "config_directory": config.to_string(),
        "config_directory_bytes": bytes_of(home.places()[1]),
        "state_directory": state.to_string(),
        "state_directory_bytes": bytes_of(home.places()[2]),
        "account": context.agent(None),
        "config": settings.collect::<BTreeMap<_, _>>(),
        "credentials": {
            "configured": sources.as_ref().is_none_or(|sources| !sources.is_empty()),
            // Only a request could tell if a key that was found is valid.
            "valid": sources.as_ref().map_or(Some(true), |sources| sources.is_empty().then_some(false)),
            "expires_at": null,
            "refreshable": false,
            "sources": sources.unwrap_or_default(),
        },
        "notices": context.out.notices(),
    }));
    Built { data, text: lines.join("\n") }
}

/// Removes the members that have no value.
fn without_null(mut data: Value) -> Value {
    data.as_object_mut().into_iter().for_each(|members| members.retain(|_, value| !value.is_null()));
    data
}

/// The output of `scripts/conformance` for a version against a real server; the last line counts.
const LIVE: &str = include_str!("../../../live.jsonl");

/// True if this version passed every check of that run.
fn is_tried_live() -> bool {
    let last = LIVE.lines().last().and_then(|line| serde_json::from_str::<Value>(line).ok());
    last.is_some_and(|last| last["version"] == concat!("cp-llm ", env!("CARGO_PKG_VERSION")) && last["failed"] == 0)
}

/// Returns the readiness for release.
fn readiness() -> Value {
    let mut readiness: Value = serde_json::from_str(include_str!("../../../readiness.json")).unwrap_or_default();
    if is_tried_live() {
        readiness["live_smoke_status"] = "verified".into();
    }
    readiness
}

/// Describes the program; only the verb with these words, or those below it, and the schemas that they use.
fn reference(program: &Program, mut root: Command, verb: Option<&str>) -> Result<Built> {
    root.build();
    let all = command::verbs(&root);
    let is_chosen = |path: &str| match verb {
        None => true,
        Some("") => path.is_empty(),
        Some(verb) => path.strip_prefix(verb).is_some_and(|below| below.is_empty() || below.starts_with(' ')),
    };
    let (mut commands, mut outputs) = (Vec::new(), BTreeSet::new());
    let mut lines = vec![format!("{} {VERSION}: {}", program.name, program.about)];
    for (path, verb) in all.iter().filter(|(path, _)| is_chosen(path)) {
        let doc = program.doc(path);
        let doc = doc.ok_or_else(|| Error::new(Code::Unknown, format!("the verb `{path}` is not described")))?;
        lines.push(format!("  {:<24} {}", [program.name, path].join(" ").trim(), command::about(verb)));
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
    let environment: BTreeMap<_, _> = command::ENVIRONMENT.iter().chain(program.environment).copied().collect();
    let mut data = json!({
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
    if let Some((specification, frameworks)) = program.compliance {
        data["compliance"] = json!({"spec_id": specification, "frameworks": frameworks});
    }
    Ok(Built { data, text: lines.join("\n") })
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
