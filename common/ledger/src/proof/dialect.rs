//! The control plane's own ledgers: entries chained by `previous_hash` and `entry_hash`, which is over the entry without it, in
//! Python's spelling with sorted names.

use std::path::Path;

use cp_common::{Result, json};

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
    let mut canonical = Vec::with_capacity(text.len() * 2);
    canonical_object(object, &["entry_hash"], &mut canonical);
    if Hash::of(&canonical).hex() != hash {
        return Err((Kind::Hash, "the bytes are not those that were hashed".to_owned()));
    }
    Ok(Entry { hash, previous: string("previous_hash").filter(|previous| !previous.is_empty()) })
}

/// Python's `json.dumps(value, sort_keys=True, ensure_ascii=False)`, from the normal form, whose strings are spelt the same.
fn canonical(value: &[u8], out: &mut Vec<u8>) {
    if let Some(object) = inside(value) {
        canonical_object(object, &[], out);
    } else if let Some(mut rest) = value.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]")) {
        out.push(b'[');
        let mut is_first = true;
        // An element is read as the value of a member whose name we put before it.
        while !rest.is_empty() {
            let wrapped = [b"\"\":", rest].concat();
            let Some((_, element)) = members(&wrapped).next() else { break };
            if !std::mem::take(&mut is_first) {
                out.extend_from_slice(b", ");
            }
            canonical(element, out);
            rest = rest[element.len()..].strip_prefix(b",").unwrap_or_default();
        }
        out.push(b']');
    } else {
        out.extend_from_slice(value);
    }
}

fn canonical_object(object: &[u8], without: &[&str], out: &mut Vec<u8>) {
    let mut sorted: Vec<(String, &[u8], &[u8])> = members(object)
        .map(|(name, value)| (json::unquote(&[b"\"", name, b"\""].concat()).unwrap_or_default(), name, value))
        .filter(|(name, ..)| !without.contains(&name.as_str()))
        .collect();
    sorted.sort_by(|a, b| a.0.cmp(&b.0));
    out.push(b'{');
    for (at, (_, spelt, value)) in sorted.iter().enumerate() {
        if at > 0 {
            out.extend_from_slice(b", ");
        }
        out.push(b'"');
        out.extend_from_slice(spelt);
        out.extend_from_slice(b"\": ");
        canonical(value, out);
    }
    out.push(b'}');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(value: &str) -> String {
        let (mut text, mut out) = (Vec::new(), Vec::new());
        json::normalize(value.as_bytes(), &mut text).unwrap();
        canonical(&text, &mut out);
        Hash::of(&out).to_string()
    }

    #[test]
    fn hashes_are_the_known_ones() {
        for (value, known) in [
            (
                r#"{"operation":"signal_status"}"#,
                "sha256:53ac6d34788ff22586c541810e716e8bf63ec78fb54a1f0be0fd4540a98bf167",
            ),
            (
                r#"{"operation":"governed_roots"}"#,
                "sha256:a79c45b26cfc5707c0591daf7813a3f17c44e585586e499410524ad097ee5ffa",
            ),
            (r#"{"cmd":":help"}"#, "sha256:c04f56bc0b76db6804f3f019dbf2acbd71e585f88c4bb3a7f0a20403af753d55"),
        ] {
            assert_eq!(hash(value), known);
        }
    }

    #[test]
    fn names_are_sorted_at_every_depth_and_lists_keep_their_order() {
        let (mut text, mut out) = (Vec::new(), Vec::new());
        json::normalize(br#"{"b":[3,{"z":1,"a":[]},"x, y"],"a":{}}"#, &mut text).unwrap();
        canonical(&text, &mut out);
        assert_eq!(String::from_utf8(out).unwrap(), r#"{"a": {}, "b": [3, {"a": [], "z": 1}, "x, y"]}"#);
    }
}
