//! An entry that is judged, with the large values that its hashes are over.

use std::borrow::Cow;
use std::path::Path;

use cp_common::{Code, Result, json};
use cp_ledger::format::line::{Hash, Line, inside, members};
use cp_ledger::store::blob::{self, Flaw};
use serde_json::{Map, Value, json};

use super::claims::{Claims, Place, Verdict};

/// An entry.
pub(super) struct Entry {
    pub(super) place: Place,
    pub(super) event: String,
    pub(super) hash: String,
    /// Its members that claims are about: `seq`, `run`, `turn`, `content` and `data`.
    value: Value,
}

impl Entry {
    /// The entry of a line; none if the line is not JSON.
    pub(super) fn of(line: &Line<'_>, place: Place, ledger: &Path) -> Result<Option<Self>> {
        if json::check(line.bytes()).is_err() {
            return Ok(None);
        }
        let (mut event, mut value) = (String::new(), json!({"seq": line.seq()}));
        for (name, raw) in line.members() {
            match name {
                b"event" => event = json::unquote(raw).unwrap_or_default(),
                b"run" | b"turn" => value[&*String::from_utf8_lossy(name)] = parsed(raw),
                b"content" if event == "llm.response" => value["content"] = parsed(&whole(ledger, raw)?),
                b"data" => value["data"] = data(ledger, raw)?,
                _ => {}
            }
        }
        Ok(Some(Self { place, event, hash: line.hash().to_string(), value }))
    }

    /// The value of a member, by the names on the way to it: `data/intent`.
    pub(super) fn at(&self, path: &str) -> Option<&Value> {
        self.value.pointer(&format!("/{path}")).filter(|value| !value.is_null())
    }

    /// A text of the data.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.value["data"].get(name).and_then(Value::as_str)
    }

    /// A number of the data.
    pub(super) fn number(&self, name: &str) -> Option<u64> {
        self.value["data"].get(name).and_then(Value::as_u64)
    }

    /// True if a secret was taken out of it.
    pub(super) fn is_redacted(&self) -> bool {
        self.number("redactions").is_some_and(|count| count > 0)
    }
}

fn parsed(raw: &[u8]) -> Value {
    serde_json::from_slice(raw).unwrap_or_default()
}

fn data(ledger: &Path, raw: &[u8]) -> Result<Value> {
    let mut data = Map::new();
    for (name, value) in members(inside(&whole(ledger, raw)?).unwrap_or_default()) {
        let name = json::unquote(&[b"\"", name, b"\""].concat()).unwrap_or_default();
        data.insert(name, parsed(&whole(ledger, value)?));
    }
    Ok(Value::Object(data))
}

/// A value, or what the blob has that it stands for. A blob that is not there is judged by itself.
fn whole<'a>(ledger: &Path, value: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    match blob::resolve(ledger, value) {
        Ok(found) => Ok(found.map_or(Cow::Borrowed(value), Cow::Owned)),
        Err(e) if matches!(e.code(), Code::NotFound | Code::Integrity | Code::Validation) => Ok(Cow::Borrowed(value)),
        Err(e) => Err(e),
    }
}

/// Judges each blob that a line names: it must exist, and its bytes must have that hash.
pub(super) fn blobs(line: &Line<'_>, place: Place, ledger: &Path, claims: &mut Claims<'_>) -> Result<()> {
    let named: Vec<Hash> = blob::references(line.body()).collect();
    for hash in named {
        let verdict = match blob::flaw(ledger, &hash)? {
            None => Verdict::Holds,
            Some(Flaw::Missing) => Verdict::Broken(format!("the large value {hash} is missing")),
            Some(Flaw::Changed) => Verdict::Broken(format!("the large value {hash} was changed")),
        };
        claims.record(place, "blob", verdict)?;
    }
    Ok(())
}
