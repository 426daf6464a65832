//! Backends: the servers of providers, programs, and the stub.
//!
//! A backend implements [`Backend`]. [`endpoint`] is what a backend is made from, [`choice`] finds the endpoint for a command line or a prompt, and
//! [`Backends`] keeps the backends that were made.

pub(crate) mod choice;
pub(crate) mod endpoint;
mod llm;
pub(crate) mod price;
pub(crate) mod program;
pub(crate) mod provider;
mod secret;
pub(crate) mod server;
mod stream;
pub(crate) mod stub;
mod tables;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cp_common::wire::Usage;
use cp_common::{Error, Result};

use self::endpoint::{Endpoint, Setup};
use self::server::Server;
use crate::dialect::{Answer, Lowered, Request, Show};

/// What answers requests. Shared by every thread that asks.
pub(crate) trait Backend: Send + Sync {
    /// How it is asked: the dialect of a server, the path of a program. The name that it is chosen by is its endpoint's.
    fn name(&self) -> &str;
    /// Whether an answer may use the network and cost money.
    fn is_metered(&self) -> bool {
        true
    }
    /// Whether its answers say what they used, as far as that is known before one has come.
    fn reports_usage(&self) -> bool {
        true
    }
    /// The body of a request, exactly as it is sent and recorded.
    fn body(&self, request: &Request) -> Result<Vec<u8>>;
    /// What of a request cannot go there as it came.
    fn lowered(&self, _request: &Request) -> Result<Lowered> {
        Ok(Lowered::new())
    }
    /// Where a request goes; none for a backend without a server.
    fn destination(&self, _request: &Request) -> Option<Destination> {
        None
    }
    /// Sends a request, whose body this is, and shows the text of the answer as it comes.
    fn exchange(&self, request: &Request, body: &[u8], show: &mut Show<'_>) -> Exchange;
    /// Its server, where it has one.
    fn server(&self) -> Option<&Server> {
        None
    }
    /// Lists the names of its models, in any order; `None` if it has no such list.
    fn models(&self) -> Option<Result<Vec<String>>> {
        None
    }
}

/// Where a request goes.
pub(crate) struct Destination {
    /// The URL.
    pub url: String,
    /// The headers, without the one that holds the key.
    pub headers: Vec<(String, String)>,
}

/// What came of one request, and the facts about it for the ledger.
pub(crate) struct Exchange {
    /// The answer, or why there is none.
    pub outcome: Result<Answer>,
    /// The HTTP status, once there was one.
    pub status: Option<u16>,
    /// The provider's id of the request.
    pub request_id: Option<String>,
    /// The time from the start to the first piece of the answer.
    pub first: Option<Duration>,
    /// The hash of the answer's bytes as they came.
    pub hash: Option<String>,
    /// What was used, where that came though the answer failed.
    pub usage: Option<Usage>,
}

impl Exchange {
    /// An exchange of which nothing is known but its outcome.
    pub(crate) fn of(outcome: Result<Answer>) -> Self {
        Self { outcome, status: None, request_id: None, first: None, hash: None, usage: None }
    }
}

/// A backend that can be asked.
#[derive(Clone)]
pub(crate) struct Ready {
    /// What answers.
    pub backend: Arc<dyn Backend>,
    /// Why the network may be used, where it is.
    pub network: Option<&'static str>,
}

/// The backends that were needed so far.
pub(crate) struct Backends {
    setup: Setup,
    /// Each, or why it could not be made: a command that prints a key is not run again to find out.
    made: Mutex<HashMap<String, Result<Ready>>>,
}

impl Backends {
    /// No backend so far.
    pub(crate) fn new(setup: Setup) -> Self {
        Self { setup, made: Mutex::default() }
    }

    /// The backend of an endpoint.
    pub(crate) fn of(&self, endpoint: &Endpoint) -> Result<Ready> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        match made.entry(endpoint.name.clone()).or_insert_with(|| self.make(endpoint)) {
            Ok(ready) => Ok(ready.clone()),
            Err(error) => {
                let again = Error::from_value(&error.to_value());
                Err(if error.is_fatal() { again.fatal() } else { again })
            }
        }
    }

    /// Whether one of them may cost money.
    pub(crate) fn is_metered(&self) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.values().flatten().any(|ready| ready.backend.is_metered())
    }

    fn make(&self, endpoint: &Endpoint) -> Result<Ready> {
        let backend = endpoint.backend(&self.setup)?;
        let network = if backend.is_metered() { (self.setup.network)()? } else { None };
        Ok(Ready { backend, network })
    }
}
