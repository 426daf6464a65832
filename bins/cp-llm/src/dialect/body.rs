//! A request body whose members are written one by one, and whose values keep the bytes they came in.

use cp_common::{Code, Error, Result};
use serde::Serialize;
use serde_json::value::RawValue;

/// An object that is being written.
#[derive(Default)]
pub(super) struct Body {
    bytes: Vec<u8>,
    names: Vec<String>,
}

impl Body {
    /// Sets a member, unless it is there.
    pub(super) fn set(&mut self, name: &str, value: &(impl Serialize + ?Sized)) -> Result<()> {
        if self.names.iter().any(|known| known == name) {
            return Ok(());
        }
        self.names.push(name.to_owned());
        let failed = |e: serde_json::Error| Error::validation(format!("{name}: {e}"));
        self.bytes.push(if self.bytes.is_empty() { b'{' } else { b',' });
        serde_json::to_writer(&mut self.bytes, name).map_err(failed)?;
        self.bytes.push(b':');
        serde_json::to_writer(&mut self.bytes, value).map_err(failed)
    }

    /// Sets a member, if there is a value and the member is not there.
    pub(super) fn set_some(&mut self, name: &str, value: Option<impl Serialize>) -> Result<()> {
        value.map_or(Ok(()), |value| self.set(name, &value))
    }

    /// The whole object.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.bytes.is_empty() {
            self.bytes.push(b'{');
        }
        self.bytes.push(b'}');
        self.bytes
    }

    /// The whole object, as a value of another.
    pub(super) fn into_raw(self) -> Result<Box<RawValue>> {
        serde_json::from_slice(&self.finish()).map_err(|e| Error::new(Code::Unknown, format!("encoding JSON: {e}")))
    }
}
