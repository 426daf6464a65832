//! Which backend is meant: the one that is named, by an option or a setting, else the one provider that is configured.

use std::path::Path;

use cp_common::{Context, Error, Result};

use super::Backend;
use super::external::ExternalBackend;
use super::llm::Llm;
use super::provider::{PROVIDERS, Provider};
use super::stub::Stub;
use crate::http::client::Timeouts;

/// What a backend is made with.
pub(crate) struct Setup<'a> {
    /// How long to wait for answers.
    pub timeouts: Timeouts,
    /// How many connections to keep.
    pub connections: usize,
    /// Whether a missing key is a failure.
    pub needs_key: bool,
    /// The file with the stub's answers.
    pub stub_script: Option<&'a Path>,
    /// The headers that the command line adds to each request.
    pub headers: &'a [(String, String)],
}

/// The backend of this name.
pub(crate) fn by_name(name: &str, setup: &Setup<'_>) -> Result<Box<dyn Backend>> {
    Ok(match name {
        "stub" => Box::new(setup.stub_script.map(Stub::with_script).transpose()?.unwrap_or_default()),
        "llm" => Box::new(Llm::on_path(setup.timeouts.total)?),
        path if path.contains('/') => Box::new(ExternalBackend::at(path, setup.timeouts.total)?),
        _ => {
            let provider = PROVIDERS.iter().find(|provider| provider.name == name).ok_or_else(|| unknown(name))?;
            let server = provider.server(setup.timeouts, setup.connections, setup.needs_key)?;
            Box::new(server.with_headers(setup.headers))
        }
    })
}

fn unknown(name: &str) -> Error {
    let known: Vec<&str> = PROVIDERS.iter().map(|provider| provider.name).chain(["llm", "stub"]).collect();
    let error = Error::config(format!("there is no backend `{name}`")).with("known", known.clone()).fatal();
    match cp_common::spelling::nearest(name, known.iter().copied()) {
        Some(nearest) => error.hint(format!("did you mean `{nearest}`?")),
        None => error.hint(format!("choose one of {}, or the path of an executable", known.join(", "))),
    }
}

/// The name of the backend that is meant: the flag, else the setting, else the provider that is configured.
pub(crate) fn name_of(flag: Option<&str>, model: Option<&str>, context: &Context) -> Result<String> {
    if let Some(name) = context.config.text("backend", flag) {
        return Ok(name);
    }
    let configured: Vec<&Provider> =
        PROVIDERS.iter().filter(|provider| !provider.only_by_name && provider.is_configured()).collect();
    if let [only] = configured.as_slice() {
        return Ok(only.name.to_owned());
    }
    let has_model =
        |provider: &&&Provider| model.is_some_and(|m| provider.models.iter().any(|prefix| m.starts_with(prefix)));
    if let Some(provider) = configured.iter().find(has_model) {
        return Ok(provider.name.to_owned());
    }
    if configured.is_empty() {
        return Err(Error::config("no backend is configured")
            .hint("set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY (or OPENAI_BASE_URL for a server of your own), or give --backend stub to try without one")
            .fatal());
    }
    let names: Vec<&str> = configured.iter().map(|provider| provider.name).collect();
    Err(Error::config(format!("more than one backend is configured: {}", names.join(", ")))
        .hint("choose with --backend or CP_BACKEND")
        .fatal())
}
