//! Governed prompts: a prompt names the registered text that its system text begins with, and that is verified.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use cp_common::Result;
use cp_common::home::Home;
use cp_policy::prompts::Prompts;
use cp_policy::template::begins_with;

/// The registered prompts of a home. The registry is read with the first prompt that must be governed, and each text once.
pub(super) struct Governed {
    home: Home,
    read: Mutex<Option<Read>>,
}

struct Read {
    prompts: Prompts,
    texts: HashMap<String, String>,
}

impl Governed {
    /// The prompts of this home.
    pub(super) fn of(home: &Home) -> Self {
        Self { home: home.clone(), read: Mutex::default() }
    }

    /// Whether a system text begins with the prompt of this id, its variables filled in. Fails when the prompt is not registered, not
    /// active, or not what was registered.
    pub(super) fn begins(&self, id: &str, system: &str) -> Result<bool> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let Read { prompts, texts } = match &mut *read {
            Some(read) => read,
            unread => unread.insert(Read { prompts: Prompts::load(&self.home)?, texts: HashMap::new() }),
        };
        if !texts.contains_key(id) {
            texts.insert(id.to_owned(), prompts.text(id)?);
        }
        Ok(texts.get(id).is_some_and(|text| begins_with(system, text.trim_end())))
    }
}
