//! Hashes under the key of this home, for values that a ledger or an approval must be able to prove without holding them.

use std::path::Path;

use cp_common::keys::{Key, hex};
use cp_ledger::format::claims;
use serde_json::{Map, Value};

/// Hashes values under the key of the home's tokens.
pub(crate) struct Keyed(Option<Key>);

impl Keyed {
    /// Takes the key of a home, made at first use. A home that cannot be written has none, and its entries no hashes.
    pub(crate) fn of_home(home: &Path) -> Self {
        Self(Key::of_home(home).ok())
    }

    /// Each name with the hash of its value.
    pub(crate) fn of_all(&self, pairs: &[(String, String)]) -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), self.of(name, value))).collect()
    }

    /// The tag of a command, given in normal form.
    pub(crate) fn of_command(&self, value: &[u8]) -> Option<String> {
        self.0.as_ref().map(|key| claims::tag_of_command(value, key))
    }

    fn of(&self, name: &str, value: &str) -> Value {
        let Some(key) = &self.0 else { return Value::Null };
        let tag = key.tag(&[b"environment\0", name.as_bytes(), b"\0", value.as_bytes()]);
        format!("hmac-sha256:{}", hex(&tag)).into()
    }
}
