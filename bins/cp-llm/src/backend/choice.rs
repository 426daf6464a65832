//! Which endpoint is meant: the one that is named, by a model's name, an option or a setting, else the one that is configured.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cp_common::home::config::{Config, Origin, Value};
use cp_common::program::{CredentialSource, Credentials};
use cp_common::{Context, Error, Result};

use super::endpoint::{DialectName, Endpoint, Target};
use super::provider::{self, Found, PROVIDERS, Provider};
use super::tables;

/// How long an error may look for servers of this machine.
const LOOK: Duration = Duration::from_millis(200);

/// Every endpoint, and what the names of models mean.
pub(crate) struct Endpoints {
    /// Those of `config/cp.toml`.
    configured: BTreeMap<String, Arc<Endpoint>>,
    aliases: BTreeMap<String, String>,
    /// The name of the default endpoint, where one is named.
    named: Option<Value>,
    /// The model of prompts that name none.
    model: Option<Value>,
    /// Whether servers of this machine may be asked, to say which of them answers.
    may_look: bool,
}

impl Endpoints {
    /// The endpoints of a home. The flag names the default one.
    pub(crate) fn load(config: &Config, flag: Option<&str>) -> Result<Self> {
        let (configured, aliases) = tables::read(config)?;
        Ok(Self {
            configured,
            aliases,
            named: config.get("backend", flag),
            model: config.get("model", None),
            may_look: false,
        })
    }

    /// The same with a default endpoint, where none is named.
    pub(crate) fn or_default(mut self, name: impl FnOnce() -> Result<String>) -> Result<Self> {
        if self.named.is_none() && self.default_for(None).is_err() {
            self.named = Some(Value { text: name()?, origin: Origin::Default });
        }
        Ok(self)
    }

    /// The same, which looks for servers of this machine where nothing is configured, if it may.
    pub(crate) fn looking(self, may_look: bool) -> Self {
        Self { may_look, ..self }
    }

    /// Those that are configured, by `config/cp.toml` or the environment.
    pub(crate) fn configured(&self) -> Vec<Arc<Endpoint>> {
        let others = PROVIDERS.iter().filter(|provider| !self.configured.contains_key(provider.name));
        let providers = others.filter(|provider| !provider.only_by_name && provider.is_configured());
        self.configured.values().cloned().chain(providers.map(|provider| Arc::new(provider.endpoint()))).collect()
    }

    /// The endpoint that is meant, or where several are configured and none is named, each of them.
    pub(crate) fn meant(&self) -> Result<Vec<Arc<Endpoint>>> {
        match (self.default_for(None), self.configured()) {
            (Ok(only), _) => Ok(vec![only]),
            (Err(_), several) if self.named.is_none() && several.len() > 1 => Ok(several),
            (Err(e), _) => Err(e),
        }
    }

    /// The endpoint of this name, if there is one.
    fn find(&self, name: &str) -> Option<Arc<Endpoint>> {
        if let Some(endpoint) = self.configured.get(name) {
            return Some(Arc::clone(endpoint));
        }
        let endpoint = match name {
            "stub" => Endpoint::of(name, DialectName::Stub),
            "llm" => Endpoint::of(name, DialectName::Llm),
            _ => PROVIDERS.iter().find(|provider| provider.name == name)?.endpoint(),
        };
        Some(Arc::new(endpoint))
    }

    /// The endpoint of this name, or the program at this path.
    fn named(&self, name: &str) -> Result<Arc<Endpoint>> {
        match self.find(name) {
            Some(endpoint) => Ok(endpoint),
            None if name.contains('/') => Ok(Arc::new(Endpoint::of(name, DialectName::Program))),
            None => Err(self.unknown(name)),
        }
    }

    fn unknown(&self, name: &str) -> Error {
        let built_in = PROVIDERS.iter().map(|provider| provider.name).chain(["llm", "stub"]);
        let own =
            self.configured.keys().map(String::as_str).filter(|name| !built_in.clone().any(|known| known == *name));
        let known: Vec<&str> = own.chain(built_in.clone()).collect();
        let error = Error::config(format!("no backend `{name}`")).with("known", known.clone()).fatal();
        match cp_common::spelling::nearest(name, known.iter().copied()) {
            Some(nearest) => error.hint(format!("did you mean `{nearest}`?")),
            None => error.hint(format!("choose one of {}, or the path of an executable", known.join(", "))),
        }
    }

    /// The endpoint of a model that names none: the one that is named, else the one that is configured.
    pub(crate) fn default_for(&self, model: Option<&str>) -> Result<Arc<Endpoint>> {
        if let Some(named) = &self.named {
            return self.named(&named.text);
        }
        let providers: Vec<&Provider> =
            PROVIDERS.iter().filter(|provider| !provider.only_by_name && self.is_configured(provider)).collect();
        let has_model =
            |provider: &&&Provider| model.is_some_and(|m| provider.models.iter().any(|prefix| m.starts_with(prefix)));
        if let Some(provider) = providers.iter().find(has_model) {
            return self.named(provider.name);
        }
        let names: Vec<&str> = match providers.as_slice() {
            [] => self.configured.keys().map(String::as_str).collect(),
            several => several.iter().map(|provider| provider.name).collect(),
        };
        match names.as_slice() {
            [] => Err(self.nothing_configured()),
            [only] => self.named(only),
            _ => Err(Error::config(format!("more than one backend is configured: {}", names.join(", ")))
                .hint("choose with -m NAME/MODEL, --backend or CP_BACKEND")
                .fatal()),
        }
    }

    /// What a newcomer sees first: a server of this machine that answers needs nothing but its name.
    fn nothing_configured(&self) -> Error {
        let keys = "set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY and give -m MODEL";
        let found = if self.may_look { provider::answering(LOOK) } else { Vec::new() };
        let models: Vec<String> = found.iter().filter_map(Found::model).collect();
        let hint = match (models.is_empty(), found.first()) {
            (false, _) => format!("give -m {} for the model that runs here, or {keys}", models.join(" or -m ")),
            (true, Some(found)) => format!("{} answers but has no model: load one, or {keys}", found.name),
            (true, None) => {
                format!("{keys}, or run one here: `ollama serve`, then `ollama pull MODEL` and -m ollama/MODEL")
            }
        };
        let offline = "without any of them `cp-ask --backend stub hi` works: the stub answers offline";
        Error::config("no backend is configured").hint(format!("{hint}\n{offline}")).fatal()
    }

    /// Whether `config/cp.toml` or the environment names it.
    fn is_configured(&self, provider: &Provider) -> bool {
        self.configured.contains_key(provider.name) || provider.is_configured()
    }

    /// What a name means: an alias, a model of an endpoint as `NAME/MODEL`, else a model of the default endpoint.
    pub(crate) fn target(&self, name: &str) -> Result<Target> {
        // Whoever asks for the stub by an option wants nobody else to be asked, whatever a prompt or a setting names.
        if let Some(Value { text, origin: Origin::Flag }) = &self.named
            && text == "stub"
        {
            return Ok(Target { endpoint: self.named(text)?, model: name.to_owned() });
        }
        let name = self.aliases.get(name).map_or(name, String::as_str);
        if let Some((endpoint, model)) = name.split_once('/')
            && let Some(endpoint) = self.find(endpoint)
        {
            return if model.is_empty() {
                own_model(endpoint)
            } else {
                Ok(Target { endpoint, model: model.to_owned() })
            };
        }
        Ok(Target { endpoint: self.default_for(Some(name))?, model: name.to_owned() })
    }

    /// Who is asked for vectors where no model of them is named: only the stub has one of its own.
    pub(crate) fn embedder(&self) -> Result<Target> {
        let endpoint = self.default_for(None)?;
        match endpoint.dialect {
            DialectName::Stub => own_model(endpoint),
            _ => Err(Error::config("no embedding model is named")
                .hint("give -m MODEL, or set embedding_model in config/cp.toml; `cp-llm models` lists what the backend has")
                .fatal()),
        }
    }

    /// What is asked where neither an option nor the prompt names a model: the setting's, unless the endpoint was named closer to the
    /// command line and has a model of its own, or the setting's model is of another endpoint.
    pub(crate) fn fallback(&self) -> Result<Target> {
        let Some(model) = &self.model else { return own_model(self.default_for(None)?) };
        let target = self.target(&model.text)?;
        let Some(named) = self.named.as_ref().filter(|named| rank(named.origin) < rank(model.origin)) else {
            return Ok(target);
        };
        let endpoint = self.named(&named.text)?;
        if endpoint.model.is_some() || target.endpoint.name != endpoint.name { own_model(endpoint) } else { Ok(target) }
    }
}

fn own_model(endpoint: Arc<Endpoint>) -> Result<Target> {
    match endpoint.own_model().map(str::to_owned) {
        Some(model) => Ok(Target { endpoint, model }),
        None => Err(Error::config("no model is named")
            .with("endpoint", endpoint.name.as_str())
            .hint("give -m MODEL, or set CP_MODEL; `cp-llm models` lists what the backend has")
            .fatal()),
    }
}

/// How far from the command line a setting was made.
const fn rank(origin: Origin) -> u8 {
    match origin {
        Origin::Flag => 0,
        Origin::Environment => 1,
        Origin::File => 2,
        Origin::Default => 3,
    }
}

/// Which keys are there, and where; never what they are. What cannot be read is said by whoever uses it.
pub(crate) fn credentials(context: &Context) -> Credentials {
    let endpoints = Endpoints::load(&context.config, None).map(|endpoints| endpoints.configured()).unwrap_or_default();
    let sources = endpoints.iter().filter_map(|endpoint| {
        Some(CredentialSource { provider: endpoint.name.clone(), source: endpoint.key_source()? })
    });
    Credentials::found(sources.collect::<Vec<_>>())
}
