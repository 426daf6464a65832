//! The verbs by which every program describes itself: `reference`, `context`, `doctor`, `changelog`, `completions`.

mod changelog;
mod doctor;
mod reference;

pub use self::changelog::{Changelog, Newest, Release, number};
pub use self::doctor::Doctor;
pub use self::reference::Reference;

pub use crate::program::completion::Completions;

use std::collections::BTreeMap;

use clap::Parser;
use serde::Serialize;

use crate::context::Context;
use crate::home::config::{Origin, SETTINGS};
use crate::output::Notice;
use crate::program::arguments::command_of;
use crate::program::completion;
use crate::program::identity::{Credentials, Program, VERSION};
use crate::program::standard::Standard;
use crate::wire::{Reply, Result, bytes_of};

/// Runs one of these verbs.
pub(super) fn run<C: Parser>(program: &'static Program, verb: Standard, context: &mut Context) -> Result<()> {
    if matches!(verb, Standard::Context | Standard::Doctor) {
        context.out.notice_of_update(&context.home);
    }
    match verb {
        Standard::Reference { verb } => {
            let whole = reference::reference(program, command_of::<C>(program))?;
            context.out.answer(&whole.narrowed(verb.as_deref())?)
        }
        Standard::Context => {
            let answer = settings(program, context);
            context.out.answer(&answer)
        }
        Standard::Doctor => doctor::doctor(program, context)?.report(context),
        Standard::Changelog { since } => context.out.answer(&changelog::changelog(program.name, since)?),
        Standard::Completions { shell } => context.out.answer(&completion::script(program.name, &shell)),
    }
}

/// The effective settings.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ContextAnswer {
    /// The program's version.
    pub version: &'static str,
    /// The home directory.
    pub home: String,
    /// Base64 of the path, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub home_bytes: Option<String>,
    /// The source of the home directory.
    pub home_origin: String,
    /// The directory of the configuration.
    pub config_directory: String,
    /// The directory of the state.
    pub state_directory: String,
    /// The agent.
    pub account: String,
    /// The settings that have a value.
    pub config: BTreeMap<String, SettingAnswer>,
    /// The availability of credentials, never the credentials.
    pub credentials: Credentials,
    /// Notices about these settings.
    pub notices: Vec<Notice>,
}

/// An effective setting.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingAnswer {
    /// Its value.
    pub value: String,
    /// The source of the value.
    pub origin: Origin,
}

impl Reply for ContextAnswer {
    fn text(&self) -> String {
        let mut lines = vec![
            format!("home = {} ({})", self.home, self.home_origin),
            format!("configuration = {}", self.config_directory),
            format!("state = {}", self.state_directory),
        ];
        lines.extend(
            self.config
                .iter()
                .map(|(key, setting)| format!("{key} = {} ({:?})", setting.value, setting.origin).to_lowercase()),
        );
        lines.extend(
            self.credentials.sources.iter().map(|found| format!("{}: key in {}", found.provider, found.source)),
        );
        lines.join("\n")
    }
}

fn settings(program: &Program, context: &Context) -> ContextAnswer {
    let in_force = |key: &str| {
        context.config.get(key, None).map(|value| SettingAnswer { value: value.text, origin: value.origin })
    };
    ContextAnswer {
        version: VERSION,
        home: context.home.root().display().to_string(),
        home_bytes: bytes_of(context.home.root()),
        home_origin: context.home.origin().to_owned(),
        config_directory: context.home.path("config").display().to_string(),
        state_directory: context.home.path("state").display().to_string(),
        account: context.agent(None),
        config: SETTINGS.iter().filter_map(|s| in_force(s.key).map(|answer| (s.key.to_owned(), answer))).collect(),
        credentials: (program.credentials)(context),
        notices: context.out.notices(),
    }
}
