//! The endpoints of a home: the tables `[endpoints.NAME]` and `[aliases]` of `config/cp.toml`, and the choice of the
//! endpoint of a request, by the name of the model, an option or a setting; otherwise the only endpoint that is
//! configured.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::config::{Config, Origin, Value};
use cp_common::program::CredentialSource;
use cp_common::{Context, Error, Result};
use cp_http::client::address;
use serde::Deserialize;
use toml::Spanned;

use super::endpoint::{ApiName, Endpoint, Table, Target};
use super::provider::{self, PROVIDERS, Provider};
use super::server::header;

/// All endpoints, and the aliases of models.
pub(crate) struct Endpoints {
    /// The tables in `config/cp.toml`, then the rows of `providers.toml` that have no table of their name.
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
        let (mut all, aliases) = read_tables(config)?;
        let rows = PROVIDERS.iter().filter(|row| !all.iter().any(|own| own.name == row.name));
        all.extend(rows.map(Provider::endpoint).collect::<Vec<_>>());
        let stored = context.home.keys().join("api");
        Ok(Self {
            all: all.into_iter().map(|endpoint| Arc::new(with_stored_key(endpoint, &stored))).collect(),
            aliases,
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
            None if name.contains('/') => Ok(Arc::new(Endpoint::of(name, ApiName::Program))),
            None => {
                let known: Vec<&str> = self.all.iter().map(|endpoint| endpoint.name.as_str()).collect();
                let error = Error::config(format!("no backend `{name}`")).with("known", known.clone()).fatal();
                Err(match cp_common::spelling::nearest(name, known.iter().copied()) {
                    Some(nearest) => error.hint(format!("did you mean `{nearest}`?")),
                    None => error.hint(format!("choose one of {}, or the path of an executable", known.join(", "))),
                })
            }
        }
    }

    /// The endpoint for a model without an endpoint in its name: the named one, the provider of the model, or the only
    /// one. Those that need no name to be used precede the others.
    pub(crate) fn default_for(&self, model: Option<&str>) -> Result<Arc<Endpoint>> {
        if let Some(named) = &self.named {
            return self.named(&named.text);
        }
        let configured = self.configured();
        let of_row = |endpoint: &Arc<Endpoint>| provider::named(&endpoint.name).filter(|row| !row.only_by_name);
        let has_model = |row: &Provider| model.is_some_and(|model| row.has_model(model));
        if let Some(endpoint) = configured.iter().find(|endpoint| of_row(endpoint).is_some_and(has_model)) {
            return Ok(Arc::clone(endpoint));
        }
        let providers: Vec<_> = configured.iter().filter(|endpoint| of_row(endpoint).is_some()).collect();
        match if providers.is_empty() { configured.iter().collect() } else { providers }.as_slice() {
            [] => Err(no_backend_error(model)),
            [only] => Ok(Arc::clone(only)),
            several => {
                let names: Vec<&str> = several.iter().map(|endpoint| endpoint.name.as_str()).collect();
                Err(Error::config(format!("more than one backend is configured: {}", names.join(", ")))
                    .hint("choose with -m NAME/MODEL, --backend or CP_BACKEND")
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
    let provider = PROVIDERS.iter().find(|row| model.is_some_and(|model| row.has_model(model)));
    let store = format!("cp-ask keys set {}", provider.map_or("openai", |row| &row.name));
    let others = "or anthropic, gemini, openai, or a variable such as ANTHROPIC_API_KEY";
    let here = "here: `ollama serve`, `ollama pull MODEL`, -m ollama/MODEL";
    Error::config("no backend is configured")
        .hint(format!("{store}\n{others}; {here}; offline: cp-ask --backend stub hi"))
        .fatal()
}

fn own_model(endpoint: Arc<Endpoint>) -> Result<Target> {
    let usual = provider::named(&endpoint.name).and_then(|row| row.default_model(endpoint.base()));
    match endpoint.own_model().or(usual).map(str::to_owned) {
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
        Some(CredentialSource { provider: endpoint.name.clone(), source: endpoint.key_source()? })
    });
    sources.collect()
}

/// Adds the key that `cp-ask keys set` stores, in the file `keys/api/NAME` of the home, to an endpoint of a server
/// without another source of its key. The key of a provider is sent only to the address of the provider.
fn with_stored_key(mut endpoint: Endpoint, stored: &Path) -> Endpoint {
    let row = provider::named(&endpoint.name);
    // The two wire APIs of a provider have one key.
    let file = stored.join(if endpoint.name == "openai-responses" { "openai" } else { &endpoint.name });
    let is_foreign = row.is_some_and(|row| !row.has_key_for(endpoint.base()));
    if endpoint.api.is_server() && !is_foreign && endpoint.key_source().is_none() && file.is_file() {
        (endpoint.table.key_env, endpoint.table.key_file, endpoint.needs_key) = (None, Some(file), true);
        endpoint.is_configured |= row.is_none_or(|row| !row.only_by_name);
    }
    endpoint
}

#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    endpoints: BTreeMap<Spanned<String>, Table>,
    #[serde(default)]
    aliases: BTreeMap<Spanned<String>, String>,
}

/// Reads the endpoints and the aliases of a home.
fn read_tables(config: &Config) -> Result<(Vec<Endpoint>, BTreeMap<String, String>)> {
    let Tables { endpoints, aliases } = config.tables()?;
    let directory = config.file().parent().unwrap_or(Path::new(""));
    let at = |name: &Spanned<String>, e: Error| {
        let refused = config.refused(e.message(), name.span().start);
        match e.hint_text() {
            Some(hint) => refused.hint(hint),
            None => refused,
        }
    };
    for name in endpoints.keys().chain(aliases.keys()) {
        if !is_name(name.get_ref()) {
            let error = Error::config(format!("`{}` is not a valid name", name.get_ref()));
            return Err(at(name, error.hint("a name has letters, digits, `_` and `-` only")));
        }
    }
    let endpoints = endpoints.into_iter();
    let endpoints = endpoints.map(|(name, table)| endpoint(name.get_ref(), table, directory).map_err(|e| at(&name, e)));
    Ok((endpoints.collect::<Result<_>>()?, aliases.into_iter().map(|(name, of)| (name.into_inner(), of)).collect()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Makes an endpoint from its table. A table with the name of a provider inherits the settings of the provider.
fn endpoint(name: &str, mut table: Table, directory: &Path) -> Result<Endpoint> {
    let wrong = |what: String| Error::config(format!("the endpoint `{name}` {what}"));
    let known = provider::named(name).map(Provider::endpoint);
    let Some(api) = table.dialect.or(known.as_ref().map(|known| known.api)) else {
        return Err(wrong("has no dialect".to_owned())
            .hint("write dialect = \"openai\" (or anthropic, openai-responses, gemini, program, stub)"));
    };
    // Users rely on the name of a program or the stub never sending a request to a server.
    if known.as_ref().is_some_and(|known| !known.api.is_server() && known.api != api) {
        return Err(wrong(format!("cannot have the dialect {}", api.name())).hint("choose another name"));
    }
    let known = known.filter(|known| known.api == api);
    let keys = [table.key_env.is_some(), table.key_file.is_some(), table.key_command.is_some()];
    let keys = keys.into_iter().filter(|is_given| *is_given).count();
    if keys > 1 {
        return Err(wrong("has more than one key".to_owned()).hint("keep one of key_env, key_file and key_command"));
    }
    let is_server = api.is_server();
    let foreign: [(&str, bool); 5] = [
        ("base_url", !is_server && table.base_url.is_some()),
        ("key_env, key_file and key_command", !is_server && keys > 0),
        ("command", api != ApiName::Program && table.command.is_some()),
        ("arguments", !matches!(api, ApiName::Program | ApiName::Agent) && !table.arguments.is_empty()),
        ("script", api != ApiName::Stub && table.script.is_some()),
    ];
    if let Some((member, _)) = foreign.iter().find(|(_, is_foreign)| *is_foreign) {
        return Err(wrong(format!("has a member that its dialect {} does not use: {member}", api.name())));
    }
    if api == ApiName::Program && table.command.is_none() {
        return Err(wrong("has no command".to_owned()).hint("write command = \"PATH\", the path of an executable"));
    }
    if table.price.is_some_and(|price| !price.is_sound()) {
        return Err(wrong("has a price that is not a valid amount".to_owned()));
    }
    let headers = table.headers.iter().map(|(name, value)| header(name, value)).collect::<Result<_>>();
    table.headers = headers.map_err(|e| wrong(format!("is not valid: {}", e.message())))?;
    let address = table.base_url.as_deref().map(address).transpose();
    address.map_err(|e| wrong(format!("is not valid: {}", e.message())))?;
    let is_own = table.base_url.is_some();
    // The key of the provider is not sent to another server unless the table names it.
    let known = known.filter(|_| !is_own);
    let needs_key = keys > 0 || known.as_ref().map_or(is_server && !is_own, |known| known.needs_key);
    let inherited = known.map(|known| known.table).unwrap_or_default();
    table.key_env = table.key_env.or(inherited.key_env.filter(|_| keys == 0));
    let base = table.base_url.as_ref().map(|base| base.trim_end_matches('/').to_owned());
    table.base_url = base.or(inherited.base_url).or_else(|| provider::named(api.name()).and_then(Provider::base_url));
    let place = |file: PathBuf| directory.join(file);
    table.key_file = table.key_file.map(place);
    table.command = table.command.map(|command| place(command.into()).display().to_string());
    table.script = table.script.map(place);
    Ok(Endpoint { table, needs_key, is_configured: true, ..Endpoint::of(name, api) })
}
