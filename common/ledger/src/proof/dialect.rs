//! The control plane's own ledgers: entries chained by `previous_hash` and `entry_hash`, which is over the entry without it, in
//! Python's spelling with sorted names.

use std::path::Path;

use cp_common::{Result, json};

use crate::format::canonical::hash_without;
use crate::format::line::{Hash, inside, members};
use crate::proof::fault::{Fault, Kind};
use crate::proof::verifier::Report;
use crate::read::source::lines_of;
use crate::read::{End, Raw};

/// Proves a ledger of the control plane.
pub fn verify(path: &Path, closed: bool) -> Result<Report> {
    let mut reader = lines_of(path)?;
    let mut report = Report::empty(0);
    let mut before: Option<String> = None;
    while let Some(raw) = reader.next()? {
        if raw.end == End::File && !closed {
            report.in_flight = true;
            break;
        }
        if raw.end != End::Limit && raw.bytes.trim_ascii().is_empty() {
            continue;
        }
        report.lines += 1;
        match examine(&raw) {
            Err((kind, message)) => {
                report_fault(&mut report, &raw, kind, &message);
                before = None;
            }
            Ok(entry) => {
                report.intact += 1;
                if let Some(hash) = Hash::parse(&entry.hash) {
                    report.last = Some((report.lines - 1, hash));
                }
                report.first.get_or_insert(0);
                let follows = entry.previous.as_ref().is_some_and(|previous| before.as_ref() == Some(previous));
                if report.lines > 1 && entry.is_beginning() {
                    report_fault(&mut report, &raw, Kind::Restart, "the chain begins again");
                } else if before.is_some() && !follows {
                    report_fault(&mut report, &raw, Kind::Chain, "does not follow the entry before it");
                }
                before = Some(entry.hash);
            }
        }
    }
    report.bytes = reader.offset();
    Ok(report)
}

/// Whether a line claims a place in such a chain.
pub fn is_entry(line: &[u8]) -> bool {
    let mut text = Vec::with_capacity(line.len());
    let is_json = json::normalize(line, &mut text).is_ok();
    let claims = |object, wanted: &[u8]| members(object).any(|(name, _)| name == wanted);
    inside(&text).is_some_and(|object| is_json && claims(object, b"entry_hash") && claims(object, b"previous_hash"))
}

fn report_fault(report: &mut Report, raw: &Raw<'_>, kind: Kind, message: &str) {
    report.add(Fault { line: raw.number, offset: raw.offset, seq: None, kind, message: message.to_owned() });
}

/// What an entry says of the chain. Hashes are without `sha256:`.
struct Entry {
    hash: String,
    previous: Option<String>,
}

impl Entry {
    /// Whether it claims that nothing is before it.
    fn is_beginning(&self) -> bool {
        self.previous.as_ref().is_none_or(|previous| previous.bytes().all(|byte| byte == b'0') || previous == "genesis")
    }
}

fn examine(raw: &Raw<'_>) -> Result<Entry, (Kind, String)> {
    if raw.end == End::Limit {
        return Err((Kind::Shape, "the line is too long".to_owned()));
    }
    let mut text = Vec::with_capacity(raw.bytes.len());
    json::normalize(raw.bytes, &mut text).map_err(|fault| (Kind::Json, format!("not JSON: {fault}")))?;
    let shape = || (Kind::Shape, "not an entry with previous_hash and entry_hash".to_owned());
    let object = inside(&text).ok_or_else(shape)?;
    let string = |name: &str| {
        let (_, value) = members(object).find(|(found, _)| *found == name.as_bytes())?;
        let text = json::unquote(value)?;
        Some(text.strip_prefix("sha256:").map(str::to_owned).unwrap_or(text))
    };
    let hash = string("entry_hash").ok_or_else(shape)?;
    if !members(object).any(|(name, _)| name == b"previous_hash") {
        return Err(shape());
    }
    if hash_without(&text, "entry_hash").hex() != hash {
        return Err((Kind::Hash, "the bytes are not those that were hashed".to_owned()));
    }
    Ok(Entry { hash, previous: string("previous_hash").filter(|previous| !previous.is_empty()) })
}
