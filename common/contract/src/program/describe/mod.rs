//! The verbs by which every program describes itself: `reference`, `context`, `doctor`, `changelog`, `completions`.

mod changelog;
mod doctor;
mod reference;

pub use self::changelog::{Newest, number};
pub use self::doctor::report;

use std::collections::BTreeMap;
use std::path::Path;

use clap::Parser;
use serde_json::{Value, json};

use crate::context::Context;
use crate::home::config::SETTINGS;
use crate::program::arguments::command_of;
use crate::program::completion;
use crate::program::identity::{Program, VERSION};
use crate::program::standard::Standard;
use crate::wire::{Built, Result, bytes_of};

/// Runs one of these verbs.
pub(super) fn run<C: Parser>(program: &'static Program, verb: Standard, context: &mut Context) -> Result<()> {
    if matches!(verb, Standard::Context | Standard::Doctor) {
        context.out.notice_of_update(&context.home);
    }
    let answer = match verb {
        Standard::Reference { verb } => reference::reference(program, command_of::<C>(program), verb.as_deref())?,
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
    let credentials = (program.credentials)(context);
    let settings: Vec<_> = SETTINGS.iter().filter_map(|s| Some((s.key, context.config.get(s.key, None)?))).collect();
    let mut lines = vec![
        format!("home = {data} ({})", home.origin()),
        format!("configuration = {config}"),
        format!("state = {state}"),
    ];
    lines.extend(
        settings.iter().map(|(key, found)| format!("{key} = {} ({:?})", found.text, found.origin).to_lowercase()),
    );
    lines.extend(credentials.sources.iter().map(|found| format!("{}: key in {}", found.provider, found.source)));
    let settings = settings.iter().map(|(key, found)| (*key, json!({"value": found.text, "origin": found.origin})));
    let data = without_null(json!({
        "version": VERSION,
        "home": data.to_string(),
        "home_bytes": bytes_of(home.root()),
        "home_origin": home.origin(),
        "config_directory": config.to_string(),
        "state_directory": state.to_string(),
        "account": context.agent(None),
        "config": settings.collect::<BTreeMap<_, _>>(),
        "credentials": credentials,
        "notices": context.out.notices(),
    }));
    Built { data, text: lines.join("\n") }
}

/// Removes the members that have no value.
fn without_null(mut data: Value) -> Value {
    data.as_object_mut().into_iter().for_each(|members| members.retain(|_, value| !value.is_null()));
    data
}
