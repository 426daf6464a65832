//! `context`: the effective settings and the source of each.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::context::Context;
use crate::home::config::{Origin, SETTINGS};
use crate::output::Notice;
use crate::program::identity::{Credentials, Program, VERSION};
use crate::wire::{Reply, bytes_of};

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
        let mut lines = vec![format!("home = {} ({})", self.home, self.home_origin)];
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

pub(super) fn settings(program: &Program, context: &Context) -> ContextAnswer {
    let in_force = |key: &str| {
        context.config.get(key, None).map(|value| SettingAnswer { value: value.text, origin: value.origin })
    };
    ContextAnswer {
        version: VERSION,
        home: context.home.root().display().to_string(),
        home_bytes: bytes_of(context.home.root()),
        home_origin: context.home.origin().to_owned(),
        account: context.agent(None),
        config: SETTINGS.iter().filter_map(|s| in_force(s.key).map(|answer| (s.key.to_owned(), answer))).collect(),
        credentials: (program.credentials)(context),
        notices: context.out.notices().to_vec(),
    }
}
