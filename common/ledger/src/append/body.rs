//! The members of a line that the ledger itself sets: what was replaced, taken out, or moved to a blob.

use std::path::Path;

use cp_common::Result;

use super::FRAME;
use crate::blob;
use crate::format::Entry;
use crate::format::line::{LINE_LIMIT, inside, member};

/// Finishes the body that starts there: counts what was lost, keeps the original bytes, and makes it short enough for a
/// line of the ledger at `path`.
pub(super) fn finish(path: &Path, body: &mut Vec<u8>, start: usize, entry: &Entry, redactions: u32) -> Result<()> {
    if entry.replaced() > 0 {
        count_in_data(body, start, "replaced", entry.replaced());
    }
    if redactions > 0 {
        count_in_data(body, start, "redactions", u64::from(redactions));
    } else if let Some(original) = entry.original() {
        // With a secret in it the original is not kept: nothing can be taken out of bytes that are not text.
        let hash = blob::store(path, original)?;
        let reference = format!("{{\"blob\":\"{hash}\",\"len\":{}}}", original.len());
        put_in_data(body, start, "original", reference.as_bytes());
    }
    if body.len() - start > LINE_LIMIT - FRAME {
        blob::shrink(path, body, start, LINE_LIMIT - FRAME)?;
    }
    Ok(())
}

/// Puts a count into the data of a body, on top of what the data has under that name.
fn count_in_data(body: &mut Vec<u8>, start: usize, name: &str, count: u64) {
    let there =
        data_member(&body[start..], name).and_then(|(_, value)| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
    put_in_data(body, start, name, (there.unwrap_or(0) + count).to_string().as_bytes());
}

/// Sets a member of the data of a body, which need not have data yet.
fn put_in_data(body: &mut Vec<u8>, start: usize, name: &str, value: &[u8]) {
    if let Some((place, old)) = data_member(&body[start..], name) {
        let (from, to) = (start + place, start + place + old.len());
        body.splice(from..to, value.iter().copied());
        return;
    }
    if member(&body[start..], "data").is_some() {
        // Data is the last member, and never empty.
        body.pop();
        body.push(b',');
    } else {
        body.extend_from_slice(b",\"data\":{");
    }
    body.extend_from_slice(&[b"\"", name.as_bytes(), b"\":", value, b"}"].concat());
}

/// Where a member of a body's data has its value, and the value.
fn data_member<'a>(body: &'a [u8], name: &str) -> Option<(usize, &'a [u8])> {
    let value = member(inside(member(body, "data")?)?, name)?;
    Some((value.as_ptr() as usize - body.as_ptr() as usize, value))
}
