//! An entry as the audit reads it: its members, and its data with the blobs in their places.

use std::path::Path;

use cp_common::{Code, Error, Result, json};
use cp_ledger::format::line::{Line, inside, members};
use cp_ledger::store::blob;
use serde_json::{Map, Value};

use super::claim::{Claims, Source, Verdict};

/// An entry that is judged.
pub(super) struct Entry<'a> {
    pub(super) seq: u64,
    pub(super) event: String,
    pub(super) run: Option<String>,
    pub(super) session: Option<String>,
    /// Everything that belongs to the event, blobs resolved.
    pub(super) data: Map<String, Value>,
    pub(super) ledger: &'a Path,
    /// The values that were moved to blobs, and whether each is there.
    blobs: Vec<Option<Error>>,
}

impl<'a> Entry<'a> {
    /// The entry of a line; none if the line is not JSON.
    pub(super) fn of(line: &Line<'_>, ledger: &'a Path) -> Result<Option<Self>> {
        if json::check(line.bytes()).is_err() {
            return Ok(None);
        }
        let mut entry = Self {
            seq: line.seq(),
            event: String::new(),
            run: None,
            session: None,
            data: Map::new(),
            ledger,
            blobs: Vec::new(),
        };
        for (name, value) in line.members() {
            match name {
                b"event" => entry.event = json::unquote(value).unwrap_or_default(),
                b"run" => entry.run = json::unquote(value),
                b"session" => entry.session = json::unquote(value),
                b"content" | b"message" => drop(entry.resolved(value)?),
                b"data" => entry.read_data(value)?,
                _ => {}
            }
        }
        Ok(Some(entry))
    }

    fn read_data(&mut self, data: &[u8]) -> Result<()> {
        let whole = self.resolved(data)?.unwrap_or_else(|| data.to_vec());
        for (name, value) in members(inside(&whole).unwrap_or_default()) {
            let name = json::unquote(&[b"\"", name, b"\""].concat()).unwrap_or_default();
            // The bytes of a text that was not UTF-8 are no JSON.
            let resolved = if name == "original" { self.checked(value)? } else { self.resolved(value)? };
            let value = resolved.as_deref().unwrap_or(value);
            self.data.insert(name, serde_json::from_slice(value).unwrap_or_default());
        }
        Ok(())
    }

    /// The value that a blob stands for; none if it is not a blob, or one that cannot be had.
    fn resolved(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match blob::resolve(self.ledger, value) {
            Ok(None) => Ok(None),
            Ok(found) => {
                self.blobs.push(None);
                Ok(found)
            }
            Err(e) if matches!(e.code(), Code::NotFound | Code::Integrity | Code::Validation) => {
                self.blobs.push(Some(e));
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Takes note of a blob whose bytes are not looked into.
    fn checked(&mut self, value: &[u8]) -> Result<Option<Vec<u8>>> {
        match blob::resolve(self.ledger, value) {
            Err(e) if e.code() == Code::Validation => self.blobs.push(None),
            _ => return self.resolved(value),
        }
        Ok(None)
    }

    /// Says of each blob that the entry names whether it is there, with the bytes that it is named for.
    pub(super) fn blobs(&self, claims: &mut Claims<'_>) -> Result<()> {
        for missing in &self.blobs {
            let verdict = missing.as_ref().map_or(Verdict::Holds, |e| Verdict::Broken(e.message().to_owned()));
            claims.say(self.source(), "blob", verdict)?;
        }
        Ok(())
    }

    pub(super) fn source(&self) -> Source {
        Source { ledger: self.ledger.to_owned(), seq: Some(self.seq) }
    }

    /// A text of the data.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.data.get(name).and_then(Value::as_str)
    }

    /// A number of the data.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.data.get(name).and_then(Value::as_u64)
    }

    /// Whether a secret was taken out of it.
    pub(super) fn is_redacted(&self) -> bool {
        self.number("redactions").is_some_and(|count| count > 0)
    }

    /// Where it belongs: what happens in one run, or one session, or in none.
    pub(super) fn scope(&self) -> String {
        let part = |name: &Option<String>| name.clone().unwrap_or_default();
        format!("{}\n{}\n{}", self.ledger.display(), part(&self.run), part(&self.session))
    }
}
