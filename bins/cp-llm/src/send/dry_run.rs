//! `--dry-run`: the request is printed, and not sent.

use cp_common::wire::Reply;
use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::backend::Destination;
use crate::engine::{Engine, Work};

/// What a dry run prints.
#[derive(Debug, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub(crate) struct DryRun {
    /// How it would be asked.
    backend: String,
    /// Who would be asked.
    endpoint: String,
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
    pub(super) fn of(engine: &Engine, work: &mut Work) -> Result<Self> {
        engine.note_lowered(work)?;
        let backend = engine.ready(work)?.backend;
        let body = backend.body(work.request())?;
        let request = serde_json::from_slice(&body).map_err(|e| Error::new(Code::Unknown, e.to_string()))?;
        let (url, headers) = match backend.destination(work.request()) {
            Some(Destination { url, headers }) => (Some(url), headers),
            None => (None, Vec::new()),
        };
        let headers = headers.into_iter().map(|(name, value)| (name, value.into())).collect();
        let endpoint = work.target().endpoint.name.clone();
        Ok(Self { backend: backend.name().to_owned(), endpoint, url, headers, request })
    }
}
