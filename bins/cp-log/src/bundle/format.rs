//! The records of a bundle. Each is a line that ends with the hash of the bytes before it, so that a changed byte is found where it is.

use cp_common::wire::record::open_line;
use cp_common::{Error, Result};
use cp_ledger::format::line::Hash;
use serde::{Deserialize, Serialize};

/// The version of the format.
pub(crate) const VERSION: u32 = 1;

/// The types of records, as they are on the wire.
pub(crate) const BUNDLE: &str = "bundle";
pub(crate) const LEDGER: &str = "bundle_ledger";
pub(crate) const LINE: &str = "bundle_line";
pub(crate) const BLOB: &str = "bundle_blob";
pub(crate) const SUMMARY: &str = "summary";

/// The first record: what was asked for, and what is never in a bundle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Head {
    pub(crate) version: u32,
    pub(crate) made_at: String,
    pub(crate) selection: Selection,
    pub(crate) left_out: Vec<LeftOut>,
}

/// What was asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Selection {
    pub(crate) files: Vec<String>,
    pub(crate) run: Option<String>,
    pub(crate) session: Option<String>,
    pub(crate) since: Option<String>,
}

/// Something that is not in the bundle, and why.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeftOut {
    pub(crate) what: String,
    pub(crate) why: String,
}

/// A ledger; its lines follow.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Ledger {
    /// The ledger's own name.
    pub(crate) origin: String,
    /// The name of its file, without the directory.
    pub(crate) file: String,
    /// How many lines it had.
    pub(crate) size: u64,
    /// The root of the tree of these lines, in base 64.
    pub(crate) root: String,
    /// How many of them follow.
    pub(crate) lines: u64,
    /// Whether all do.
    pub(crate) whole: bool,
    /// `signed` or `unsigned`.
    pub(crate) status: String,
    /// The signed note, as it lies beside the ledger.
    pub(crate) checkpoint: Option<String>,
    /// The proof that the tree goes on where the checkpoint's ended, in base 64; empty if the ledger is whole.
    pub(crate) consistency: Vec<String>,
}

/// A line, exactly as it was written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    pub(crate) seq: u64,
    pub(crate) raw: String,
    /// Whether it was written after the checkpoint, so that no signature covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) after_checkpoint: bool,
    /// The proof that it is in the tree; not in a ledger that is whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proof: Option<Vec<String>>,
    /// The line behind it, where that is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<Next>,
}

/// A line that is left out, and known to be there. That before a line is in its `prev`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Next {
    pub(crate) hash: String,
    pub(crate) proof: Vec<String>,
}

/// The bytes of a value, or a part of them.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Blob {
    pub(crate) hash: String,
    pub(crate) media_type: String,
    /// How many bytes there are in all.
    pub(crate) size: u64,
    /// Where this part begins.
    pub(crate) offset: u64,
    pub(crate) base64: String,
    /// Whether the bytes were not there any more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) missing: bool,
}

/// The closing line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Closing {
    pub(crate) total: u64,
    pub(crate) succeeded: u64,
    pub(crate) failed: u64,
    /// Ledgers without a line that was asked for.
    pub(crate) skipped: u64,
    pub(crate) ledgers: u64,
    pub(crate) lines: u64,
    pub(crate) blobs: u64,
    /// The hash of everything before this line.
    pub(crate) sha256: String,
    /// The same as in `meta`.
    pub(crate) duration_ms: u64,
}

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

/// Reads what [`unsealed`] gave.
pub(crate) fn read<'a, T: Deserialize<'a>>(data: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(data).map_err(|e| Error::validation(e.to_string()).message().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_a_record_is_noticed() {
        let next = Some(Next { hash: "h".into(), proof: vec!["p".into()] });
        let line = Line { seq: 3, raw: "{\"a\":\"ü\"}".into(), after_checkpoint: true, proof: Some(vec![]), next };
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
