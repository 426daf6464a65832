//! The tables of `config/cp.toml` that name endpoints and models: `[endpoints.NAME]` and `[aliases]`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cp_common::home::config::Config;
use cp_common::{Error, Result};
use cp_http::client::address;
use serde::Deserialize;
use serde_json::{Map, Value};
use toml::Spanned;

use super::endpoint::{ApiName, Endpoint, KeySource};
use super::price::Price;
use super::provider::{PROVIDERS, Provider};
use super::server::header;

#[derive(Deserialize)]
struct Tables {
    #[serde(default)]
    endpoints: BTreeMap<Spanned<String>, Table>,
    #[serde(default)]
    aliases: BTreeMap<Spanned<String>, String>,
}

/// A table `[endpoints.NAME]`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    dialect: Option<ApiName>,
    base_url: Option<String>,
    key_env: Option<String>,
    key_file: Option<PathBuf>,
    key_command: Option<String>,
    model: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    params: Map<String, Value>,
    price: Option<Price>,
    cache_scope: Option<String>,
    command: Option<String>,
    script: Option<PathBuf>,
}

/// Reads the endpoints and the aliases of a home.
#[expect(clippy::type_complexity, reason = "two tables")]
pub(super) fn read(config: &Config) -> Result<(BTreeMap<String, Arc<Endpoint>>, BTreeMap<String, String>)> {
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
    let endpoint = |(name, table): (Spanned<String>, Table)| {
        let endpoint = endpoint(name.get_ref(), table, directory).map_err(|e| at(&name, e))?;
        Ok((name.into_inner(), Arc::new(endpoint)))
    };
    let endpoints = endpoints.into_iter().map(endpoint).collect::<Result<_>>()?;
    Ok((endpoints, aliases.into_iter().map(|(name, means)| (name.into_inner(), means)).collect()))
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

/// Makes an endpoint from its table. A table with the name of a provider inherits the settings of the provider.
fn endpoint(name: &str, table: Table, directory: &Path) -> Result<Endpoint> {
    let wrong = |what: String| Error::config(format!("the endpoint `{name}` {what}"));
    let known = PROVIDERS.iter().find(|provider| provider.name == name).map(Provider::endpoint);
    let api = match (table.dialect, &known, name) {
        (Some(api), _, _) => api,
        (None, Some(known), _) => known.api,
        (None, None, "stub") => ApiName::Stub,
        (None, None, _) => {
            return Err(wrong("has no dialect".to_owned())
                .hint("write dialect = \"openai\" (or anthropic, openai-responses, gemini, program, stub)"));
        }
    };
    // Users rely on these two names never sending a request to a server.
    if ["stub", "llm"].contains(&name) && api.name() != name {
        return Err(wrong(format!("cannot have the dialect {}", api.name())).hint("choose another name"));
    }
    let known = known.filter(|known| known.api == api);
    let place = |file: PathBuf| directory.join(file);
    let keys = [
        table.key_env.map(KeySource::Variable),
        table.key_file.map(|file| KeySource::File(place(file))),
        table.key_command.map(KeySource::Command),
    ];
    let mut keys: Vec<KeySource> = keys.into_iter().flatten().collect();
    if keys.len() > 1 {
        return Err(wrong("has more than one key".to_owned()).hint("keep one of key_env, key_file and key_command"));
    }
    let is_server = api.provider().is_some();
    let foreign: [(&str, bool); 4] = [
        ("base_url", !is_server && table.base_url.is_some()),
        ("key_env, key_file and key_command", !is_server && !keys.is_empty()),
        ("command", api != ApiName::Program && table.command.is_some()),
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
    let headers = headers.map_err(|e| wrong(format!("is not valid: {}", e.message())))?;
    let address = table.base_url.as_deref().map(address).transpose();
    address.map_err(|e| wrong(format!("is not valid: {}", e.message())))?;
    let is_own = table.base_url.is_some();
    // The key of the provider is not sent to another server unless the table names it.
    let known = known.filter(|_| !is_own);
    let unknown = || Endpoint { needs_key: is_server && !is_own, ..Endpoint::of(name, api) };
    let mut endpoint = known.unwrap_or_else(unknown);
    if let Some(key) = keys.pop() {
        (endpoint.key, endpoint.needs_key) = (key, true);
    }
    let base = table.base_url.map(|base| base.trim_end_matches('/').to_owned());
    Ok(Endpoint {
        base: base.or(endpoint.base),
        model: table.model,
        headers,
        params: table.params,
        price: table.price,
        cache_scope: table.cache_scope,
        command: table.command.map(|command| place(command.into()).display().to_string()),
        script: table.script.map(place),
        ..endpoint
    })
}
