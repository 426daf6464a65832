//! Hashes under a key of this home, for values that the ledger must be able to prove and must not tell.

use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Map, Value};
use sha2::Sha256;

use cp_common::confirm::{hex, issue};

/// Hashes values under the key of the home's tokens.
pub(crate) struct Keyed(Option<Hmac<Sha256>>);

impl Keyed {
    /// Takes the key of a home, made at first use. A home that cannot be written has none, and its entries no hashes.
    pub(crate) fn of_home(home: &Path) -> Self {
        let keys = home.join("keys");
        let read = || std::fs::read(keys.join("confirm.key")).ok().filter(|key| key.len() == 32);
        let key = read().or_else(|| issue(&keys, b"").ok().and_then(|_| read()));
        Self(key.and_then(|key| Hmac::new_from_slice(&key).ok()))
    }

    /// Each name with the hash of its value.
    pub(crate) fn of_all(&self, pairs: &[(String, String)]) -> Map<String, Value> {
        pairs.iter().map(|(name, value)| (name.clone(), self.of(name, value))).collect()
    }

    fn of(&self, name: &str, value: &str) -> Value {
        let Some(mac) = &self.0 else { return Value::Null };
        let mut mac = mac.clone();
        for part in ["environment\0", name, "\0", value] {
            mac.update(part.as_bytes());
        }
        format!("hmac-sha256:{}", hex(&mac.finalize().into_bytes())).into()
    }
}
