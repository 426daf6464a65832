//! Endpoints: a name for a server, a program or the stub, with its key and settings.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Timeouts};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Backend;
use super::price::Price;
use super::program::ExternalBackend;
use super::secret::{self, Secret};
use super::server::{Server, base_of};
use super::stub::Stub;
use crate::variable;
use crate::wire_api::WireApi;
use crate::wire_api::anthropic::Anthropic;
use crate::wire_api::gemini::Gemini;
use crate::wire_api::openai::OpenAi;
use crate::wire_api::responses::Responses;

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

/// The server of the provider that defined Chat Completions. Others take its older parameters.
pub(super) const OPENAI: &str = "https://api.openai.com/v1";

/// A table `[endpoints.NAME]`, as a user or a provider's row has it.
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

/// A named destination of requests.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The name, as in `NAME/MODEL`.
    pub name: String,
    /// The wire API.
    pub api: ApiName,
    /// True if a missing key is an error.
    pub(super) needs_key: bool,
    /// True if a table, the environment or a stored key configures it.
    pub(super) is_configured: bool,
    /// Its settings.
    pub table: Table,
}

impl Endpoint {
    /// An endpoint with default settings.
    pub(crate) fn of(name: &str, api: ApiName) -> Self {
        Self { name: name.to_owned(), api, needs_key: false, is_configured: false, table: Table::default() }
    }

    /// The base URL; `None` without a server.
    pub(crate) fn base(&self) -> Option<&str> {
        self.table.base_url.as_deref()
    }

    /// The path of its program.
    pub(crate) fn program(&self) -> &str {
        self.table.command.as_deref().unwrap_or(&self.name)
    }

    /// The name of the server in cache keys.
    pub(crate) fn cache_scope(&self) -> &str {
        self.base().unwrap_or(&self.name)
    }

    /// The model of requests that name none.
    pub(super) fn own_model(&self) -> Option<&str> {
        let usual = match self.api {
            ApiName::Stub => Some("stub"),
            // An empty name leaves the choice to the program.
            ApiName::Program | ApiName::Agent => Some(""),
            _ => None,
        };
        self.table.model.as_deref().or(usual)
    }

    /// The name of the source of its key, if it has a key. A command is not run to find out.
    pub(super) fn key_source(&self) -> Option<String> {
        let Table { key_env, key_file, key_command, .. } = &self.table;
        match key_env {
            Some(name) => secret::source_of(name, variable),
            None if key_file.is_some() => Some("key_file".to_owned()),
            None => key_command.as_ref().map(|_| "key_command".to_owned()),
        }
    }

    /// Makes the backend that answers for it.
    pub(super) fn backend(&self, options: &BackendOptions) -> Result<Arc<dyn Backend>> {
        let (limit, arguments) = (options.timeouts.total, &self.table.arguments);
        let api: Box<dyn WireApi> = match self.api {
            ApiName::Anthropic => Box::new(Anthropic),
            ApiName::Openai => Box::new(OpenAi { original: self.base() == Some(OPENAI) }),
            ApiName::OpenaiResponses => Box::new(Responses),
            ApiName::Gemini => Box::new(Gemini),
            ApiName::Program => return Ok(Arc::new(ExternalBackend::at(self.program(), arguments, limit)?)),
            ApiName::Agent => return Ok(Arc::new(ExternalBackend::agent(&self.name, arguments, limit)?)),
            ApiName::Stub => {
                let script = self.table.script.as_deref().or(options.stub_script.as_deref());
                return Ok(Arc::new(script.map(Stub::with_script).transpose()?.unwrap_or_default()));
            }
        };
        let base = base_of(api.as_ref(), self.base().unwrap_or_default());
        let key = if options.needs_key { self.secret()? } else { None };
        let client = Client::new("cp-llm", &base, options.timeouts, options.connections, variable)?;
        let (endpoint, headers) = (self.name.clone(), self.table.headers.clone().into_iter().collect());
        Ok(Arc::new(Server { endpoint, name: self.api.name(), api, base, key, headers, client }))
    }

    /// Reads the key. A missing key is an error if one is required.
    fn secret(&self) -> Result<Option<Secret>> {
        let Table { key_env, key_file, key_command, .. } = &self.table;
        let (key, missing, hint) = match (key_env, key_file, key_command) {
            (_, Some(file), _) => return secret::from_file("key_file", file).map(Some),
            (.., Some(command)) => return secret::from_command("key_command", command).map(Some),
            (None, ..) => {
                (None, "key_env", format!("add key_env, key_file or key_command to [endpoints.{}]", self.name))
            }
            (Some(name), ..) => {
                let hint = format!(
                    "set {name}, or {name}_FILE to a file that holds it, or store it with `cp-ask keys set`; --backend stub needs none"
                );
                (secret::key(name, variable)?, name.as_str(), hint)
            }
        };
        if key.is_some() || !self.needs_key {
            return Ok(key);
        }
        Err(Error::new(Code::Auth, format!("{}: no key is set", self.name))
            .with("backend", self.api.name())
            .with("endpoint", self.name.as_str())
            .with("missing", missing)
            .hint(hint)
            .fatal())
    }
}

/// The reason that permits the use of the network, for the ledger. Fails if policy does not permit it; `None` if
/// nothing is sent.
pub(crate) type Permission = Box<dyn Fn() -> Result<Option<&'static str>> + Send + Sync>;

/// Options of backends.
pub(crate) struct BackendOptions {
    /// Timeouts of requests.
    pub timeouts: Timeouts,
    /// The number of connections to keep open.
    pub connections: usize,
    /// True if keys are read, and a missing key is an error.
    pub needs_key: bool,
    /// The script of the stub.
    pub stub_script: Option<PathBuf>,
    /// Called before a backend that uses the network is made.
    pub network: Permission,
}

impl BackendOptions {
    /// Options for requests with keys, without streaming, over one connection.
    pub(crate) fn new(total: Duration, permission: impl Fn() -> Result<&'static str> + Send + Sync + 'static) -> Self {
        Self {
            timeouts: Timeouts { total, idle: None },
            connections: 1,
            needs_key: true,
            stub_script: None,
            network: Box::new(move || permission().map(Some)),
        }
    }
}

/// A model of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The endpoint.
    pub endpoint: Arc<Endpoint>,
    /// The model; empty to let a program choose.
    pub model: String,
}

impl Target {
    /// The name, as `-m` takes it.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.endpoint.name, self.model)
    }
}
