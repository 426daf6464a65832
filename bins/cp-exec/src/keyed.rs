//! Hashes under the secret key of the home, for values that a ledger or an approval must verify without storing them.

use std::path::Path;

use cp_common::keys::{Key, hex};
use cp_ledger::format::claims;
use serde_json::{Map, Value};

/// Hashes values under the key of the home's tokens.
pub(crate) struct KeyedHasher(Option<Key>);

impl KeyedHasher {
    /// Uses the token key of a home, which is created at first use. If the home is not writable there is no key, and
    /// entries have no hashes.
    pub(crate) fn of_home(home: &Path) -> Self {
        Self(Key::of_home(home).ok())
    }

    /// Maps each name to the keyed hash of its value.
    pub(crate) fn tag_all(&self, pairs: &[(String, String)]) -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), self.of(name, value))).collect()
    }

    /// Returns the tag of a command in normal form.
    pub(crate) fn of_command(&self, value: &[u8]) -> Option<String> {
        self.0.as_ref().map(|key| claims::tag_of_command(value, key))
    }

    fn of(&self, name: &str, value: &str) -> Value {
        let Some(key) = &self.0 else { return Value::Null };
        let tag = key.tag(&[b"environment\0", name.as_bytes(), b"\0", value.as_bytes()]);
        format!("hmac-sha256:{}", hex(&tag)).into()
    }
}
