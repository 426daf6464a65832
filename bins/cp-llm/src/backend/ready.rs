//! The backends that were needed so far: each is made when its endpoint is first asked, and then shared by every thread.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use cp_common::{Error, Result};

use super::Backend;
use super::endpoint::{Endpoint, Setup};

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
