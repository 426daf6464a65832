//! The records of a bundle. Each is a line that ends with the hash of the bytes before it, so that a changed byte is found where it is.

use cp_common::Result;
pub(crate) use cp_common::wire::bundle::{
    BLOB, BUNDLE, Blob, Closing, Head, LEDGER, LINE, Ledger, LeftOut, Line, Next, Selection, VERSION,
};
use cp_common::wire::record::open_line;
use cp_ledger::format::line::Hash;
use serde::{Deserialize, Serialize};

/// The type of the closing line.
pub(crate) const SUMMARY: &str = "summary";

const SUM: &str = ",\"sum\":\"";

/// A record as its line, line feed included. `end` is what follows the data.
fn sealed(kind: &str, data: &impl Serialize, end: &str) -> Result<Vec<u8>> {
    let mut line = open_line(kind, data)?;
    line.truncate(line.trim_ascii_end().len().saturating_sub(2));
    let sum = Hash::of(&line);
    line.extend_from_slice(format!("{SUM}{sum}\"}}{end}}}\n").as_bytes());
    Ok(line)
}

/// An open record as its line.
pub(crate) fn open(kind: &str, data: &impl Serialize) -> Result<Vec<u8>> {
    sealed(kind, data, "")
}

/// The closing line.
pub(crate) fn closing(data: &Closing) -> Result<Vec<u8>> {
    sealed(SUMMARY, data, &meta(data.duration_ms))
}

fn meta(duration_ms: u64) -> String {
    format!(",\"meta\":{{\"duration_ms\":{duration_ms}}}")
}

/// The type and the data of a line, proved by its own hash; else what is wrong with it.
pub(crate) fn unsealed(line: &[u8]) -> Result<(String, Vec<u8>), String> {
    let at = memchr::memmem::rfind(line, SUM.as_bytes()).ok_or("it has no hash of its own")?;
    let (before, after) = line.split_at(at);
    let digits = after.get(SUM.len()..SUM.len() + 71).and_then(|sum| std::str::from_utf8(sum).ok());
    if digits != Some(&Hash::of(before).to_string()) {
        return Err("its bytes are not those that were written".to_owned());
    }
    let end = &after[SUM.len() + 71..];
    let text = [before, b"}}"].concat();
    let record: Envelope<'_> = serde_json::from_slice(&text).map_err(|e| format!("not a record of a bundle: {e}"))?;
    let expected = if record.r#type == SUMMARY {
        let closing: Closing = serde_json::from_str(record.data.get()).map_err(|e| e.to_string())?;
        format!("\"}}{}}}", meta(closing.duration_ms))
    } else {
        "\"}}".to_owned()
    };
    if end != expected.as_bytes() || !record.ok || record.schema_version != "1.0" {
        return Err("its bytes are not those that were written".to_owned());
    }
    Ok((record.r#type.to_owned(), record.data.get().as_bytes().to_vec()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Envelope<'a> {
    ok: bool,
    schema_version: &'a str,
    r#type: &'a str,
    #[serde(borrow)]
    data: &'a serde_json::value::RawValue,
}

/// True if a file whose first line is this one is a bundle. Either mark is enough, because the other one may be damaged.
pub(crate) fn begins_bundle(line: &[u8]) -> bool {
    let marks = [format!("\"type\":\"{BUNDLE}\""), format!("{SUM}sha256:")];
    marks.iter().any(|mark| memchr::memmem::find(line, mark.as_bytes()).is_some())
}

/// Reads what [`unsealed`] gave. A record has one spelling, so that nothing is in it that is not looked at.
pub(crate) fn read<'a, T: Deserialize<'a> + Serialize>(data: &'a [u8]) -> Result<T, String> {
    let value: T = serde_json::from_slice(data).map_err(|e| e.to_string())?;
    let is_same = serde_json::to_vec(&value).is_ok_and(|spelt| spelt == data);
    if is_same { Ok(value) } else { Err("the record has members that are not known, or another spelling".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_record_is_noticed() {
        let proof = || cp_common::wire::raw(&["p"]).unwrap();
        let next = Some(Next { hash: "h".into(), proof: proof() });
        let line = Line { seq: 3, raw: "{\"a\":\"ü\"}".into(), after_checkpoint: true, proof: Some(proof()), next };
        let closing = Closing {
            total: 1,
            succeeded: 1,
            failed: 0,
            skipped: 0,
            ledgers: 1,
            lines: 1,
            blobs: 0,
            sha256: "s".into(),
            duration_ms: 7,
        };
        for mut bytes in [open(LINE, &line).unwrap(), super::closing(&closing).unwrap()] {
            assert_eq!(bytes.pop(), Some(b'\n'));
            assert!(unsealed(&bytes).is_ok());
            for at in 0..bytes.len() {
                for bit in [1, 4, 32] {
                    let mut changed = bytes.clone();
                    changed[at] ^= bit;
                    assert!(unsealed(&changed).is_err(), "byte {at}");
                }
                assert!(unsealed(&bytes[..at]).is_err());
            }
        }
    }
}
