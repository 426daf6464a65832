//! Backends: the servers of providers, programs, and the stub.
//!
//! A backend implements [`Backend`]. [`endpoint`] is what a backend is made from, [`choice`] finds the endpoint for a
//! command line or a prompt, and [`Backends`] keeps the backends that were made.

pub(crate) mod choice;
pub(crate) mod endpoint;
pub(crate) mod price;
mod program;
mod provider;
mod secret;
pub(crate) mod server;
mod stream;
pub(crate) mod stub;
pub(crate) mod table;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cp_common::Result;
use cp_common::wire::Usage;

use self::endpoint::{BackendOptions, Endpoint};
use self::server::Server;
use crate::wire_api::{Answer, OnText, Request, anthropic};

/// Answers requests. All threads share it.
pub(crate) trait Backend: Send + Sync {
    /// The name of the wire API of a server, or the path of a program. The endpoint has the name that selects it.
    fn name(&self) -> &str;
    /// True if an answer may use the network and cost money.
    fn is_metered(&self) -> bool {
        true
    }
    /// True if each of its answers reports its cost, so that no price is needed.
    fn reports_cost(&self) -> bool {
        false
    }
    /// Encodes a request, exactly as it is sent to a server and recorded. Otherwise the Anthropic form is recorded,
    /// because it keeps the most of a request.
    fn body(&self, request: &Request) -> Result<Vec<u8>> {
        anthropic::recorded(request)
    }
    /// Sends a request with this encoded body, and passes on text of the answer as it arrives.
    fn exchange(&self, request: &Request, body: &[u8], show: &mut OnText<'_>) -> Exchange;
    /// Its server, if it has one.
    fn server(&self) -> Option<&Server> {
        None
    }
    /// Lists the names of its models, in any order; `None` if it has no such list.
    fn models(&self) -> Result<Option<Vec<String>>> {
        Ok(None)
    }
}

/// The outcome of one request, and facts about it for the ledger.
pub(crate) struct Exchange {
    /// The answer or the error.
    pub outcome: Result<Answer>,
    /// The HTTP status, if a response arrived.
    pub status: Option<u16>,
    /// The request id of the provider.
    pub request_id: Option<String>,
    /// The time until the end of the answer.
    pub took: Option<Duration>,
    /// The hash of the response body.
    pub hash: Option<String>,
    /// The usage of a failed answer, if the provider reported it; later that of any answer, with its cost.
    pub usage: Option<Usage>,
}

impl Exchange {
    /// An exchange with an outcome and no other facts.
    pub(crate) fn of(outcome: Result<Answer>) -> Self {
        Self { outcome, status: None, request_id: None, took: None, hash: None, usage: None }
    }
}

/// A backend that is ready for requests.
#[derive(Clone)]
pub(crate) struct Ready {
    /// The backend.
    pub backend: Arc<dyn Backend>,
    /// The reason that permits the use of the network, if the backend uses it.
    pub network: Option<&'static str>,
}

/// The backends that were made so far, each on first use.
pub(crate) struct Backends {
    options: BackendOptions,
    /// Each backend, or the error of making it. Errors are kept because a command that prints a key must not run twice.
    made: Mutex<HashMap<String, Result<Ready>>>,
}

impl Backends {
    /// An empty set of backends.
    pub(crate) fn new(options: BackendOptions) -> Self {
        Self { options, made: Mutex::default() }
    }

    /// The backend of an endpoint, made on first use.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> Result<Ready> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.entry(endpoint.name.clone()).or_insert_with(|| self.make(endpoint)).clone()
    }

    /// True if one of them may cost money.
    pub(crate) fn is_metered(&self) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().flatten().any(|ready| ready.backend.is_metered())
    }

    fn make(&self, endpoint: &Endpoint) -> Result<Ready> {
        let backend = endpoint.backend(&self.options)?;
        let network = if backend.is_metered() { self.options.network.clone()? } else { None };
        Ok(Ready { backend, network })
    }
}
