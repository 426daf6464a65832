//! An endpoint: who is asked, by its name, and with what.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cp_common::{Code, Error, Result};
use cp_http::client::{Client, Timeouts};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Backend;
use super::llm::Llm;
use super::price::Price;
use super::program::ExternalBackend;
use super::secret::{self, Secret};
use super::server::Server;
use super::stub::{Stub, StubVectors};
use crate::dialect::Dialect;
use crate::dialect::anthropic::Anthropic;
use crate::dialect::embeddings::{Embeddings, Format};
use crate::dialect::gemini::Gemini;
use crate::dialect::openai::OpenAi;
use crate::dialect::responses::Responses;
use crate::variable;

/// How an endpoint is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DialectName {
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
    /// Not at all: the stub answers.
    Stub,
    /// The llm program.
    #[serde(skip_deserializing)]
    Llm,
}

impl DialectName {
    /// The name of the dialect.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Openai => "openai",
            Self::OpenaiResponses => "openai-responses",
            Self::Gemini => "gemini",
            Self::Program => "program",
            Self::Stub => "stub",
            Self::Llm => "llm",
        }
    }

    /// The base URL of the provider whose dialect it is.
    pub(super) const fn provider(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("https://api.anthropic.com"),
            Self::Openai | Self::OpenaiResponses => Some("https://api.openai.com/v1"),
            Self::Gemini => Some("https://generativelanguage.googleapis.com/v1beta"),
            Self::Program | Self::Stub | Self::Llm => None,
        }
    }

    /// The model of an endpoint that names none.
    const fn default_model(self) -> Option<&'static str> {
        match self {
            Self::Stub => Some("stub"),
            // A program has a model of its own; an empty name asks for it.
            Self::Program | Self::Llm => Some(""),
            Self::Anthropic | Self::Openai | Self::OpenaiResponses | Self::Gemini => None,
        }
    }
}

/// Where a key is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum KeySource {
    /// No key is needed.
    #[default]
    None,
    /// In the variable, or where the variables with `_FILE` or `_COMMAND` added to its name say.
    Variable(String),
    /// In a file.
    File(PathBuf),
    /// What a command prints.
    Command(String),
}

/// Who is asked, by its name, and with what.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The name that it is chosen by.
    pub name: String,
    /// How it is asked.
    pub dialect: DialectName,
    /// The base URL, where it is not the provider's.
    pub(super) base: Option<String>,
    pub(super) key: KeySource,
    /// Whether a missing key is a failure.
    pub(super) needs_key: bool,
    /// The model where none is named.
    pub model: Option<String>,
    /// The headers of each request.
    pub(super) headers: Vec<(String, String)>,
    /// The params of each request, below those that it has.
    pub params: Map<String, Value>,
    /// What its tokens cost, whatever the model.
    pub price: Option<Price>,
    /// What its answers are kept under in the cache, where it is not the base URL.
    pub(super) cache_scope: Option<String>,
    /// The path of the program.
    pub(super) command: Option<String>,
    /// The script of the stub.
    pub(super) script: Option<PathBuf>,
}

impl Endpoint {
    /// An endpoint of which nothing else is known.
    pub(crate) fn of(name: &str, dialect: DialectName) -> Self {
        Self {
            name: name.to_owned(),
            dialect,
            base: None,
            key: KeySource::None,
            needs_key: false,
            model: None,
            headers: Vec::new(),
            params: Map::new(),
            price: None,
            cache_scope: None,
            command: None,
            script: None,
        }
    }

    /// The base URL; none for what has no server.
    pub(crate) fn base(&self) -> Option<&str> {
        self.base.as_deref().or(self.dialect.provider())
    }

    /// The path of its program.
    pub(crate) fn program(&self) -> &str {
        self.command.as_deref().unwrap_or(&self.name)
    }

    /// What its answers are kept under in the cache.
    pub(crate) fn cache_scope(&self) -> &str {
        self.cache_scope.as_deref().or(self.base()).unwrap_or(&self.name)
    }

    /// Whether it is the provider, or has no server.
    pub(crate) fn is_plain(&self) -> bool {
        self.base.is_none() && self.cache_scope.is_none()
    }

    /// The model where none is named.
    pub(super) fn own_model(&self) -> Option<&str> {
        self.model.as_deref().or(self.dialect.default_model())
    }

    /// Where its key is, if it is anywhere. A command is not run for it.
    pub(super) fn key_source(&self) -> Option<String> {
        match &self.key {
            KeySource::None => None,
            KeySource::Variable(name) => secret::source_of(name, variable),
            KeySource::File(_) => Some("key_file".to_owned()),
            KeySource::Command(_) => Some("key_command".to_owned()),
        }
    }

    /// What answers for it.
    pub(super) fn backend(&self, setup: &Setup) -> Result<Arc<dyn Backend>> {
        if setup.embeds {
            return self.embedder(setup);
        }
        let limit = setup.timeouts.total;
        if let Some(dialect) = self.protocol() {
            return Ok(Arc::new(self.server(dialect, setup)?));
        }
        Ok(match self.dialect {
            DialectName::Stub => {
                let script = self.script.as_deref().or(setup.stub_script.as_deref());
                Arc::new(script.map(Stub::with_script).transpose()?.unwrap_or_default())
            }
            DialectName::Llm => Arc::new(Llm::on_path(limit)?),
            _ => Arc::new(ExternalBackend::at(self.program(), limit)?),
        })
    }

    /// How its server is spoken to; none where it has none.
    fn protocol(&self) -> Option<Box<dyn Dialect>> {
        match self.dialect {
            DialectName::Anthropic => Some(Box::new(Anthropic)),
            DialectName::Openai => Some(Box::new(OpenAi { original: self.base() == self.dialect.provider() })),
            DialectName::OpenaiResponses => Some(Box::new(Responses)),
            DialectName::Gemini => Some(Box::new(Gemini)),
            DialectName::Program | DialectName::Stub | DialectName::Llm => None,
        }
    }

    /// What answers for it with vectors.
    fn embedder(&self, setup: &Setup) -> Result<Arc<dyn Backend>> {
        if self.dialect == DialectName::Stub {
            return Ok(Arc::new(StubVectors::default()));
        }
        let protocol = self.protocol().and_then(|chat| Some((chat.embeddings()?, chat)));
        let (format, chat) = protocol.ok_or_else(|| {
            Error::config(format!("the backend {} has no embeddings", self.name))
                .hint("name one of openai, gemini, stub, or a server of your own: -m NAME/MODEL, --backend NAME")
                .fatal()
        })?;
        let format = match format {
            // Ollama's own protocol, as its documentation gives the base.
            Format::OpenAi if self.base().is_some_and(|base| base.ends_with("/api")) => Format::Ollama,
            format => format,
        };
        Ok(Arc::new(self.server(Box::new(Embeddings { format, chat }), setup)?))
    }

    /// Its server, ready to be asked.
    fn server(&self, dialect: Box<dyn Dialect>, setup: &Setup) -> Result<Server> {
        let base = dialect.base(self.base().unwrap_or_default()).to_owned();
        let key = if setup.needs_key { self.secret()? } else { None };
        let client = Client::new("cp-llm", &base, setup.timeouts, setup.connections, variable, None)?;
        let (headers, given) = (self.headers.clone(), setup.headers.clone());
        Ok(Server {
            endpoint: self.name.clone(),
            name: self.dialect.name(),
            dialect,
            base,
            key,
            headers,
            given,
            client,
        })
    }

    /// The key. A missing one is a failure where one is needed.
    fn secret(&self) -> Result<Option<Secret>> {
        let (key, missing, hint) = match &self.key {
            KeySource::File(file) => return secret::in_file("key_file", file).map(Some),
            KeySource::Command(command) => return secret::printed_by("key_command", command).map(Some),
            KeySource::None => {
                (None, "key_env", format!("add key_env, key_file or key_command to [endpoints.{}]", self.name))
            }
            KeySource::Variable(name) => {
                let hint = format!("set {name}, or {name}_FILE to a file that holds it; --backend stub needs none");
                (secret::key(name, variable)?, name.as_str(), hint)
            }
        };
        if key.is_some() || !self.needs_key {
            return Ok(key);
        }
        Err(Error::new(Code::Auth, format!("{}: no key is set", self.name))
            .with("backend", self.dialect.name())
            .with("endpoint", self.name.as_str())
            .with("missing", missing)
            .hint(hint)
            .fatal())
    }
}

/// Why the network may be used, for the ledger. Fails where it may not; says nothing where nothing is sent.
pub(crate) type Permission = Box<dyn Fn() -> Result<Option<&'static str>> + Send + Sync>;

/// What backends are made with.
pub(crate) struct Setup {
    /// How long to wait for answers.
    pub timeouts: Timeouts,
    /// How many connections to keep.
    pub connections: usize,
    /// Whether the answers are vectors.
    pub embeds: bool,
    /// The headers that the command line adds to each request.
    pub headers: Vec<(String, String)>,
    /// Whether keys are read, and a missing one is a failure.
    pub needs_key: bool,
    /// The file with the stub's answers.
    pub stub_script: Option<PathBuf>,
    /// Asked before a backend is made that may use the network.
    pub network: Permission,
}

impl Setup {
    /// What reads keys and asks for whole answers, over one connection.
    pub(crate) fn new(total: Duration, permission: impl Fn() -> Result<&'static str> + Send + Sync + 'static) -> Self {
        Self {
            timeouts: Timeouts { total, idle: None },
            connections: 1,
            embeds: false,
            headers: Vec::new(),
            needs_key: true,
            stub_script: None,
            network: Box::new(move || permission().map(Some)),
        }
    }
}

/// A model of an endpoint.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// Who is asked.
    pub endpoint: Arc<Endpoint>,
    /// For which model; empty for a program's own.
    pub model: String,
}

impl Target {
    /// Its name, as `-m` takes it.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.endpoint.name, self.model)
    }
}
