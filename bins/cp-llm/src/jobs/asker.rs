//! Who is asked to make batches, and what reads their answers.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use cp_common::{Context, Error, Result};

use super::job::Job;
use super::provider::Provider;
use crate::backend::endpoint::Endpoint;
use crate::backend::ready::Ready;
use crate::engine::Engine;
use crate::send::{self, RequestBuilder};

/// Who makes batches of requests: one endpoint.
pub(super) struct Asker {
    pub engine: Engine,
    pub endpoint: Arc<Endpoint>,
    pub ready: Ready,
}

impl Asker {
    /// The endpoint that these requests are for.
    pub(super) fn of(engine: Engine, requests: &RequestBuilder) -> Result<Self> {
        let endpoint = requests.endpoint()?;
        let ready = engine.backends.of(&endpoint)?;
        Ok(Self { engine, endpoint, ready })
    }

    /// How it takes batches.
    pub(super) fn provider(&self) -> Result<Provider<'_>> {
        Provider::of(self.ready.backend.as_ref())
    }

    /// What reads the answers of a batch: as its submit said, on the ledger of its submit.
    pub(super) fn of_job(job: &Job, context: &mut Context) -> Result<Self> {
        let schema = job.file("schema.json");
        let schema = schema.exists().then(|| format!("--schema={}", schema.display()));
        let words: Vec<String> = job.words.iter().cloned().chain(schema).collect();
        let given = context.options.clone();
        context.options.ledger = Some(OsString::from_vec(job.ledger.clone()).into());
        (context.options.session, context.options.run) = (job.session.clone(), job.run.clone());
        let prepared = send::Args::of_words(&words).and_then(|args| args.prepared(context));
        context.options = given;
        let (engine, requests) = prepared?;
        let asker = Self::of(engine, &requests)?;
        let here = asker.ready.backend.server().map(|server| server.base.clone());
        if here == job.endpoint {
            return Ok(asker);
        }
        let [there, here] = [&job.endpoint, &here].map(|base| base.as_deref().unwrap_or("no server"));
        let message = format!("{} was submitted to {there}, and {here} is configured", job.id);
        Err(Error::config(message).hint("set the base URL to where it was submitted").fatal())
    }
}
