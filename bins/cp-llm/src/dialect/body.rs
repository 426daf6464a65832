//! A request body whose members are set one by one, and whose values keep the bytes they came in.

use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::value::{RawValue, to_raw_value};

/// An object that is being written.
#[derive(Default)]
pub(super) struct Body(Vec<(String, Box<RawValue>)>);

impl Body {
    /// Sets a member, unless it is there.
    pub(super) fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        if self.0.iter().all(|(known, _)| known != name) {
            let value = to_raw_value(value).map_err(|e| Error::validation(format!("{name}: {e}")))?;
            self.0.push((name.to_owned(), value));
        }
        Ok(())
    }

    /// The bytes.
    pub(super) fn bytes(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|e| Error::new(Code::Unknown, format!("encoding the request: {e}")))
    }
}

impl Serialize for Body {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, value) in &self.0 {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}
