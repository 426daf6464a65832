//! The endpoints of a home: the tables `[endpoints.NAME]` and `[aliases]` of `config/cp.toml`, and the choice of the
//! endpoint of a request, by the name of the model, an option or a setting; otherwise the only endpoint that is
//! configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use cp_common::home::config::{Origin, Value};
use cp_common::home::is_id;
use cp_common::program::CredentialSource;
use cp_common::{Context, Error, Result};
use serde::Deserialize;
use toml::Spanned;

use super::endpoint::{Endpoint, Target};
use super::provider::PROVIDERS;
use super::table::Table;

/// All endpoints, and the aliases of models.
pub(crate) struct Endpoints {
    /// The tables in `config/cp.toml`, then those of `providers.toml` with other names.
    all: Vec<Arc<Endpoint>>,
    aliases: BTreeMap<String, String>,
    /// The name of the default endpoint, from an option or a setting.
    named: Option<Value>,
    /// The default model, from a setting.
    model: Option<Value>,
}

impl Endpoints {
    /// Reads the endpoints of a home. `flag` is the name of the default endpoint.
    pub(crate) fn load(context: &Context, flag: Option<&str>) -> Result<Self> {
        let config = &context.config;
        let Tables { endpoints, aliases } = config.tables()?;
        for name in endpoints.keys().chain(aliases.keys()) {
            if !is_id(name.get_ref()) {
                let error = config.refused(format!("`{}` is not a valid name", name.get_ref()), name.span().start);
                return Err(error.hint("a name has letters, digits, `_` and `-` only"));
            }
        }
        let rows = PROVIDERS.keys().filter(|name| !endpoints.contains_key(name.as_str()));
        let rows: Vec<_> = rows.map(|name| Endpoint::new(name, None, context)).collect();
        let own = endpoints.into_iter().map(|(name, table)| {
            Endpoint::new(name.get_ref(), Some(table), context).map_err(|e| {
                let message = format!("the endpoint `{}`: {}", name.get_ref(), e.message());
                let refused = config.refused(message, name.span().start);
                e.hint_text().map_or(refused.clone(), |hint| refused.hint(hint))
            })
        });
        Ok(Self {
            all: own.chain(rows).map(|endpoint| endpoint.map(Arc::new)).collect::<Result<_>>()?,
            aliases: aliases.into_iter().map(|(name, of)| (name.into_inner(), of)).collect(),
            named: config.get("backend", flag),
            model: config.get("model", None),
        })
    }

    /// Sets the default endpoint if there is none.
    pub(crate) fn or_default_name(mut self, name: impl FnOnce() -> Result<String>) -> Result<Self> {
        if self.named.is_none() && self.default_for(None).is_err() {
            self.named = Some(Value { text: name()?, origin: Origin::Default });
        }
        Ok(self)
    }

    /// The endpoints that `config/cp.toml`, the environment or a stored key configures.
    pub(crate) fn configured(&self) -> Vec<Arc<Endpoint>> {
        self.all.iter().filter(|endpoint| endpoint.is_configured).cloned().collect()
    }

    /// The default endpoint; all configured endpoints if there are several and none is named.
    pub(crate) fn selected(&self) -> Result<Vec<Arc<Endpoint>>> {
        match (self.default_for(None), self.configured()) {
            (Ok(only), _) => Ok(vec![only]),
            (Err(_), several) if self.named.is_none() && several.len() > 1 => Ok(several),
            (Err(e), _) => Err(e),
        }
    }

    /// Finds an endpoint by its name.
    fn find(&self, name: &str) -> Option<Arc<Endpoint>> {
        self.all.iter().find(|endpoint| endpoint.name == name).cloned()
    }

    /// Finds an endpoint by its name, or the program at a path.
    fn named(&self, name: &str) -> Result<Arc<Endpoint>> {
        match self.find(name) {
            Some(endpoint) => Ok(endpoint),
            None if name.contains('/') => Ok(Arc::new(Endpoint::program_at(name))),
            None => {
                let known: Vec<&str> = self.all.iter().map(|endpoint| endpoint.name.as_str()).collect();
                let error = Error::config(format!("no backend `{name}`")).with("known", known.clone()).fatal();
                let otherwise = format!("choose one of {}, or the path of an executable", known.join(", "));
                Err(error.nearest(name, known, &otherwise))
            }
        }
    }

    /// The endpoint for a model without an endpoint in its name: the named one, the provider of the model, or the only
    /// one. Those that say how the names of their models begin precede the others.
    pub(crate) fn default_for(&self, model: Option<&str>) -> Result<Arc<Endpoint>> {
        if let Some(named) = &self.named {
            return self.named(&named.text);
        }
        let configured = self.configured();
        let of_model = |endpoint: &&&Arc<Endpoint>| model.is_some_and(|model| endpoint.table.has_model(model));
        let preferred: Vec<_> = configured.iter().filter(|endpoint| !endpoint.table.models.is_empty()).collect();
        let among = if preferred.is_empty() { configured.iter().collect() } else { preferred };
        match (among.iter().find(of_model), among.as_slice()) {
            (None, []) => Err(no_backend_error(model)),
            (Some(only), _) | (None, [only]) => Ok(Arc::clone(only)),
            (None, several) => {
                let names: Vec<&str> = several.iter().map(|endpoint| endpoint.name.as_str()).collect();
                Err(Error::config(format!("more than one backend is configured: {}", names.join(", ")))
                    .hint("choose with -m NAME/MODEL, --backend or CP_BACKEND; `cp-ask models default NAME/MODEL` keeps it")
                    .fatal())
            }
        }
    }

    /// Resolves a model: an alias, `ENDPOINT/MODEL`, or a model of the default endpoint.
    pub(crate) fn target(&self, name: &str) -> Result<Target> {
        // With `--backend stub` no request goes to a server, even if a prompt or a setting names one.
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

    /// The target if neither an option nor the prompt names a model: the model of the setting, unless an option or a
    /// variable names an endpoint that has a default model or is not the endpoint of that model.
    pub(crate) fn default_target(&self) -> Result<Target> {
        let Some(model) = &self.model else { return own_model(self.default_for(None)?) };
        let target = self.target(&model.text)?;
        let Some(named) = self.named.as_ref().filter(|named| named.origin < model.origin) else {
            return Ok(target);
        };
        let endpoint = self.named(&named.text)?;
        if endpoint.table.model.is_some() || target.endpoint.name != endpoint.name {
            own_model(endpoint)
        } else {
            Ok(target)
        }
    }
}

/// The error if no endpoint is configured. New users see it first, so it begins with the line to type.
fn no_backend_error(model: Option<&str>) -> Error {
    let provider = PROVIDERS.iter().find(|(_, table)| model.is_some_and(|model| table.has_model(model)));
    let store = format!("cp-ask keys set {}", provider.map_or("openai", |(name, _)| name));
    let others = "or anthropic, gemini, openai, or a variable such as ANTHROPIC_API_KEY";
    let here = "here: `ollama serve`, `ollama pull MODEL`, -m ollama/MODEL";
    Error::config("no backend is configured")
        .hint(format!("{store}\n{others}; {here}; offline: cp-ask --backend stub hi"))
        .fatal()
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

/// Lists the sources of keys, never the keys. Errors are reported by the code that uses a key.
pub(crate) fn credentials(context: &Context) -> Vec<CredentialSource> {
    let endpoints = Endpoints::load(context, None).map(|endpoints| endpoints.configured()).unwrap_or_default();
    let sources = endpoints.iter().filter_map(|endpoint| {
        Some(CredentialSource { provider: endpoint.name.clone(), source: endpoint.table.key_source()?.name() })
    });
    sources.collect()
}

#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    endpoints: BTreeMap<Spanned<String>, Table>,
    #[serde(default)]
    aliases: BTreeMap<Spanned<String>, String>,
}
