//! Which endpoint is meant: the one that is named, by a model's name, an option or a setting, else the one that is configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use cp_common::home::config::{Config, Origin, Value};
use cp_common::{Error, Result};

use super::endpoint::{DialectName, Endpoint, Target};
use super::provider::{PROVIDERS, Provider};
use super::tables;

/// Every endpoint, and what the names of models mean.
pub(crate) struct Endpoints {
    /// Those of `config/cp.toml`.
    configured: BTreeMap<String, Arc<Endpoint>>,
    aliases: BTreeMap<String, String>,
    /// The name of the default endpoint, where one is named.
    named: Option<Value>,
    /// The model of prompts that name none.
    model: Option<Value>,
}

impl Endpoints {
    /// The endpoints of a home. The flag names the default one.
    pub(crate) fn load(config: &Config, flag: Option<&str>) -> Result<Self> {
        let (configured, aliases) = tables::read(config)?;
        Ok(Self { configured, aliases, named: config.get("backend", flag), model: config.get("model", None) })
    }

    /// The same with a default endpoint, where none is named.
    pub(crate) fn or_default(mut self, name: impl FnOnce() -> Result<String>) -> Result<Self> {
        if self.default_for(None).is_err() {
            self.named = Some(Value { text: name()?, origin: Origin::Default });
        }
        Ok(self)
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
        let error = Error::config(format!("there is no backend `{name}`")).with("known", known.clone()).fatal();
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
        if let [only] = providers.as_slice() {
            return self.named(only.name);
        }
        let has_model =
            |provider: &&&Provider| model.is_some_and(|m| provider.models.iter().any(|prefix| m.starts_with(prefix)));
        if let Some(provider) = providers.iter().find(has_model) {
            return self.named(provider.name);
        }
        let own = || self.configured.keys().map(String::as_str);
        let names: Vec<&str> =
            if providers.is_empty() { own().collect() } else { providers.iter().map(|p| p.name).collect() };
        match names.as_slice() {
            [] => Err(Error::config("no backend is configured")
                .with("reason", "no_backend")
                .hint("set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY (or OPENAI_BASE_URL for a server of your own), or give --backend stub to try without one")
                .fatal()),
            [only] => self.named(only),
            _ => Err(Error::config(format!("more than one backend is configured: {}", names.join(", ")))
                .hint("choose with -m NAME/MODEL, --backend or CP_BACKEND")
                .fatal()),
        }
    }

    /// Whether `config/cp.toml` or the environment names it.
    fn is_configured(&self, provider: &Provider) -> bool {
        self.configured.contains_key(provider.name) || provider.is_configured()
    }

    /// What a name means: an alias, a model of an endpoint as `NAME/MODEL`, else a model of the default endpoint.
    pub(crate) fn target(&self, name: &str) -> Result<Target> {
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

    /// What is asked where neither an option nor the prompt names a model: the setting's, unless the endpoint was named closer to the
    /// command line and has a model of its own.
    pub(crate) fn fallback(&self) -> Result<Target> {
        let Some(model) = &self.model else { return own_model(self.default_for(None)?) };
        if let Some(named) = self.named.as_ref().filter(|named| rank(named.origin) < rank(model.origin))
            && let endpoint = self.named(&named.text)?
            && endpoint.model.is_some()
        {
            return own_model(endpoint);
        }
        self.target(&model.text)
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
