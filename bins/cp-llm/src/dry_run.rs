//! `--dry-run`: the request, and nobody is asked.

use cp_common::wire::Reply;
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::backend::Backend;
use crate::call::{Engine, Work};

/// What a dry run prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DryRun {
    /// Who would be asked.
    backend: String,
    /// Where the request would go; absent for a backend without a server.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// The headers, the key left out.
    headers: Map<String, Value>,
    /// The body, byte for byte.
    request: Box<RawValue>,
}

impl Reply for DryRun {
    fn text(&self) -> String {
        self.request.get().to_owned()
    }
}

impl DryRun {
    /// The request that the work would begin with.
    pub(crate) fn of(engine: &Engine, work: &mut Work) -> Result<Self> {
        work.ask.model.clone_from(&work.models[0]);
        engine.find_conversation(work)?;
        let body = engine.body(&work.ask)?;
        let text = String::from_utf8(body).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let request = RawValue::from_string(text).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let (mut url, mut headers) = (None, Map::new());
        if let Backend::Server(server) = &engine.backend {
            let (address, all) = server.address(&work.ask);
            let secret = ["x-api-key", "authorization", "x-goog-api-key"];
            headers.extend(
                all.into_iter()
                    .filter(|(name, _)| !secret.contains(&name.as_str()))
                    .map(|(name, value)| (name, value.into())),
            );
            url = Some(address);
        }
        Ok(Self { backend: engine.backend.name().to_owned(), url, headers, request })
    }
}
