//! Tables of endpoints, of users and of `providers.toml`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use cp_common::home::config::variable;
use cp_common::{Error, Result};
use cp_http::client::address;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::price::Price;
use super::secret::Source;
use super::server::header;

/// The wire API of an endpoint, which the configuration calls its dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum ApiName {
    /// Anthropic Messages.
    Anthropic,
    /// Chat Completions.
    Openai,
    /// Responses.
    OpenaiResponses,
    /// Gemini generateContent.
    Gemini,
    /// Records on the standard streams of a program.
    Program,
    /// The stream of a coding agent, converted to records by an adaptor.
    Agent,
    /// The stub.
    Stub,
}

impl ApiName {
    /// The name in configuration and records.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Program => "program",
            Self::Agent => "agent",
            Self::Stub => "stub",
        }
    }

    /// True for the API of a server.
    pub(super) const fn is_server(self) -> bool {
        matches!(self, Self::Anthropic | Self::Openai | Self::OpenaiResponses | Self::Gemini)
    }
}

/// A table `[endpoints.NAME]` of a user, or a table of `providers.toml`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Table {
    pub(super) dialect: Option<ApiName>,
    pub(super) base_url: Option<String>,
    pub(super) key_env: Option<String>,
    pub(super) key_file: Option<PathBuf>,
    pub(super) key_command: Option<String>,
    /// The model of requests that name none.
    pub(super) model: Option<String>,
    /// How the names of its models begin. Such models need no endpoint before their name.
    pub(super) models: Vec<String>,
    /// Headers for each request.
    pub(super) headers: BTreeMap<String, String>,
    /// Default parameters of requests.
    pub params: Map<String, Value>,
    /// The price of tokens for all its models.
    pub price: Option<Price>,
    /// The path of the program, and the arguments of the program or agent.
    pub(super) command: Option<String>,
    pub(super) arguments: Vec<String>,
    /// The script of the stub.
    pub(super) script: Option<PathBuf>,
}

impl Table {
    /// Checks the members that a user wrote for a dialect.
    pub(super) fn checked(mut self, api: ApiName) -> Result<Self> {
        if self.keys() > 1 {
            return Err(Error::config("more than one key").hint("keep one of key_env, key_file and key_command"));
        }
        let is_server = api.is_server();
        let foreign: [(&str, bool); 5] = [
            ("base_url", !is_server && self.base_url.is_some()),
            ("key_env, key_file and key_command", !is_server && self.keys() > 0),
            ("command", api != ApiName::Program && self.command.is_some()),
            ("arguments", !matches!(api, ApiName::Program | ApiName::Agent) && !self.arguments.is_empty()),
            ("script", api != ApiName::Stub && self.script.is_some()),
        ];
        if let Some((member, _)) = foreign.iter().find(|(_, is_foreign)| *is_foreign) {
            return Err(Error::config(format!("the dialect {} does not use {member}", api.name())));
        }
        if api == ApiName::Program && self.command.is_none() {
            return Err(Error::config("no command").hint("write command = \"PATH\", the path of an executable"));
        }
        if self.price.is_some_and(|price| !price.is_sound()) {
            return Err(Error::config("the price is not a valid amount"));
        }
        self.headers = self.headers.iter().map(|(name, value)| header(name, value)).collect::<Result<_>>()?;
        self.base_url.as_deref().map(address).transpose()?;
        Ok(self)
    }

    /// True if it names a key, which is for this base URL.
    pub(super) fn has_key_for(&self, base: Option<&str>) -> bool {
        self.key_env.is_some() && self.base_url.as_deref() == base
    }

    /// True if a model is one of its own.
    pub(super) fn has_model(&self, model: &str) -> bool {
        self.models.iter().any(|start| model.starts_with(start))
    }

    /// The number of its keys.
    pub(super) fn keys(&self) -> usize {
        [self.key_env.is_some(), self.key_file.is_some(), self.key_command.is_some()].into_iter().map(usize::from).sum()
    }

    /// The source of its key, if it has a key.
    pub(super) fn key_source(&self) -> Option<Source> {
        let file = || Some(Source::File("key_file".to_owned(), self.key_file.clone()?));
        let command = || Some(Source::Command("key_command".to_owned(), self.key_command.clone()?));
        let variables = self.key_env.as_ref().and_then(|name| Source::of_variables(name, variable));
        variables.or_else(file).or_else(command)
    }
}
