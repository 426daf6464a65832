//! Endpoints: a name for a server, a program or the stub, with its key and settings.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cp_common::home::config::variable;
use cp_common::{Code, Context, Error, Result};
use cp_http::client::{Client, Timeouts};

use super::Backend;
use super::program::ExternalBackend;
use super::provider::{PROVIDERS, base_of_environment};
use super::secret::{Secret, Source};
use super::server::{Server, base_of};
use super::stub::Stub;
use super::table::{ApiName, Table};
use crate::wire_api::{anthropic, gemini, openai, responses};

/// A named destination of requests.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The name, as in `NAME/MODEL`.
    pub name: String,
    /// The wire API.
    pub api: ApiName,
    /// True if a table, the environment or a stored key configures it.
    pub(super) is_configured: bool,
    /// Its settings.
    pub table: Table,
}

impl Endpoint {
    /// Makes an endpoint from its table in `config/cp.toml`. A table with the name of a provider inherits the settings
    /// of the provider, which are all it has if the user wrote no table.
    pub(super) fn new(name: &str, own: Option<Table>, context: &Context) -> Result<Self> {
        let row = PROVIDERS.get(name);
        let has_table = own.is_some();
        let mut table = own.unwrap_or_default();
        let Some(api) = table.dialect.or(row.and_then(|row| row.dialect)) else {
            return Err(Error::config("no dialect")
                .hint("write dialect = \"openai\" (or anthropic, openai-responses, gemini, program, stub)"));
        };
        // Users rely on the name of a program or the stub never sending a request to a server.
        if row.and_then(|row| row.dialect).is_some_and(|own| !own.is_server() && own != api) {
            return Err(Error::config(format!("not a name for the dialect {}", api.name())).hint("choose another name"));
        }
        table = table.checked(api)?;
        let place = |file: PathBuf| context.config.file().with_file_name(file);
        table.key_file = table.key_file.map(place);
        table.command = table.command.map(|command| place(command.into()).display().to_string());
        table.script = table.script.map(place);

        let same = row.filter(|row| row.dialect == Some(api));
        if let Some(row) = same.filter(|_| table.models.is_empty()) {
            table.models.clone_from(&row.models);
        }
        let moved = same.and_then(|row| base_of_environment(name, row)).filter(|_| table.base_url.is_none());
        let usual = same.or_else(|| PROVIDERS.get(api.name())).and_then(|row| row.base_url.clone());
        let (is_moved, base) = (moved.is_some(), table.base_url.or(moved).or(usual));
        table.base_url = base.map(|base| base.trim_end_matches('/').to_owned());
        // The key of a provider is sent only to the address of the provider, or to the one that a variable names, which
        // may need no key.
        let is_home = row.is_some_and(|row| row.has_key_for(table.base_url.as_deref()));
        let is_set = |key: &String| Source::of_variables(key, variable).is_some();
        if table.keys() == 0 {
            let key = same.and_then(|row| row.key_env.clone());
            table.key_env = key.filter(|key| is_home || is_moved && is_set(key));
        }
        let stored = context.home.keys().join("api").join(stored_name(name));
        if api.is_server() && (is_home || row.is_none()) && table.key_source().is_none() && stored.is_file() {
            (table.key_env, table.key_file) = (None, Some(stored));
        }
        let is_set = !table.models.is_empty() && (is_moved || table.key_source().is_some());
        Ok(Self { name: name.to_owned(), api, is_configured: has_table || is_set, table })
    }

    /// The program at a path.
    pub(super) fn program_at(path: &str) -> Self {
        Self { name: path.to_owned(), api: ApiName::Program, is_configured: false, table: Table::default() }
    }

    /// The base URL; `None` without a server.
    pub(crate) fn base(&self) -> Option<&str> {
        self.table.base_url.as_deref()
    }

    /// The model of requests that name none.
    pub(super) fn own_model(&self) -> Option<&str> {
        let usual = match self.api {
            ApiName::Stub => Some("stub"),
            // An empty name leaves the choice to the program.
            ApiName::Program | ApiName::Agent => Some(""),
            // A server in the place of a provider has models of its own.
            _ => {
                let provider = PROVIDERS.get(&self.name).filter(|provider| provider.has_key_for(self.base()));
                provider.and_then(|provider| provider.model.as_deref())
            }
        };
        self.table.model.as_deref().or(usual)
    }

    /// Makes the backend that answers for it.
    pub(super) fn backend(&self, options: &BackendOptions) -> Result<Arc<dyn Backend>> {
        let (limit, arguments) = (options.timeouts.total, &self.table.arguments);
        let api = match self.api {
            ApiName::Anthropic => anthropic::API,
            ApiName::Openai if PROVIDERS["openai"].has_key_for(self.base()) => openai::ORIGINAL,
            ApiName::Openai => openai::COMPATIBLE,
            ApiName::OpenaiResponses => responses::API,
            ApiName::Gemini => gemini::API,
            ApiName::Program => {
                let path = self.table.command.as_ref().unwrap_or(&self.name);
                return Ok(Arc::new(ExternalBackend::at(path, arguments, limit)?));
            }
            ApiName::Agent => return Ok(Arc::new(ExternalBackend::agent(&self.name, arguments, limit)?)),
            ApiName::Stub => {
                let script = self.table.script.as_deref().or(options.stub_script.as_deref());
                return Ok(Arc::new(script.map(Stub::with_script).transpose()?.unwrap_or_default()));
            }
        };
        let base = base_of(&api, self.base().unwrap_or_default());
        let key = if options.needs_key { self.secret()? } else { None };
        let client = Client::new("cp-llm", &base, options.timeouts, options.connections, variable)?;
        let (endpoint, headers) = (self.name.clone(), self.table.headers.clone().into_iter().collect());
        let key_hint = self.key_hint();
        Ok(Arc::new(Server { endpoint, name: self.api.name(), api, base, key, key_hint, headers, client }))
    }

    /// Reads the key. A missing key is an error if one is required.
    fn secret(&self) -> Result<Option<Secret>> {
        if let Some(source) = self.table.key_source() {
            return source.key().map(Some);
        }
        // A missing key is an error if the table names one, or if the server is the one of a provider that needs one and
        // the table has no header, which may hold it.
        let is_needed = || PROVIDERS.values().any(|row| row.has_key_for(self.base()));
        if self.table.keys() == 0 && (!self.table.headers.is_empty() || !is_needed()) {
            return Ok(None);
        }
        Err(Error::new(Code::Auth, format!("{}: no key is set", self.name))
            .with("backend", self.api.name())
            .with("endpoint", self.name.as_str())
            .with("missing", self.table.key_env.as_deref().unwrap_or("key_env"))
            .hint(self.key_hint())
            .fatal())
    }

    /// What to do if a key is missing. A stored key is sent only to the server of its provider.
    fn key_hint(&self) -> String {
        let provider = PROVIDERS.get(&self.name);
        let Some(name) = self.table.key_env.as_ref().or_else(|| provider?.key_env.as_ref()) else {
            return format!("add key_env, key_file or key_command to [endpoints.{}]", self.name);
        };
        let set = format!("set {name}, or {name}_FILE to a file that holds it");
        if !provider.is_some_and(|row| row.has_key_for(self.base())) {
            return set;
        }
        format!("{set}, or store it with `cp-ask keys set {}`; --backend stub needs none", stored_name(&self.name))
    }
}

/// The name of the stored key of an endpoint. The two wire APIs of a provider have one.
fn stored_name(name: &str) -> &str {
    if name == "openai-responses" { "openai" } else { name }
}

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
    /// The reason that permits the use of the network, for the ledger; `None` if nothing is sent. An error is that of
    /// each backend that uses the network.
    pub network: Result<Option<&'static str>>,
}

impl BackendOptions {
    /// Options for requests with keys, without streaming, over one connection.
    pub(crate) fn new(total: Duration, permission: Result<&'static str>) -> Self {
        Self {
            timeouts: Timeouts { total, idle: None },
            connections: 1,
            needs_key: true,
            stub_script: None,
            network: permission.map(Some),
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
