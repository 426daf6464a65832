//! Values too large for a line: files named by the SHA-256 of their bytes, in a directory beside the ledger. And the
//! members of a body that refer to them, or count what is lost.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use cp_common::home::write_whole;
use cp_common::{Error, Result, json};
use memchr::memmem::Finder;

use crate::format::Entry;
use crate::format::line::{FRAME, Hash, LINE_LIMIT, inside, member, members};
use crate::read::tail::hash_of;

/// The beginning of the JSON that refers to a blob.
static REFERENCE: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"{\"blob\":\"sha256:"));

/// Values shorter than this stay in the line, because a reference is nearly as long.
const SMALLEST: usize = 256;

/// The directory of a ledger's blobs.
pub fn directory(ledger: &Path) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(".blobs");
    name.into()
}

/// The file of one blob.
pub fn path(ledger: &Path, hash: &Hash) -> PathBuf {
    directory(ledger).join(hash.hex())
}

/// Keeps some bytes and returns their name. They are on disk when this returns.
pub fn store(ledger: &Path, bytes: &[u8]) -> Result<Hash> {
    let hash = Hash::of(bytes);
    store_as(ledger, &hash, bytes).map(|()| hash)
}

/// Like [`store`], for bytes whose hash is known.
pub fn store_as(ledger: &Path, hash: &Hash, bytes: &[u8]) -> Result<()> {
    let target = path(ledger, hash);
    if target.metadata().is_ok_and(|there| there.len() == bytes.len() as u64) {
        return Ok(());
    }
    write_whole(&target, bytes).map_err(Error::fatal)
}

/// The bytes of a blob, proved by their hash.
pub fn load(ledger: &Path, hash: &Hash) -> Result<Vec<u8>> {
    let file = path(ledger, hash);
    let bytes = std::fs::read(&file).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound => Error::not_found(format!("no blob {hash}")).in_file(&file),
        _ => Error::io("cannot read the blob", e).in_file(&file),
    })?;
    if Hash::of(&bytes) != *hash {
        return Err(
            Error::new(cp_common::Code::Integrity, "the blob's bytes are not those it is named for").in_file(&file)
        );
    }
    Ok(bytes)
}

/// What is wrong with a blob that a line refers to, if anything is. The blob is read in pieces.
pub fn flaw(ledger: &Path, hash: &Hash) -> Result<Option<&'static str>> {
    let file = path(ledger, hash);
    match digest(&file).map_err(|e| Error::io("cannot read the blob", e).in_file(&file))? {
        None => Ok(Some("is missing")),
        Some((found, _)) => Ok((found != *hash).then_some("was changed")),
    }
}

/// The hash and the length of a file beside a ledger; `None` if the file is missing.
pub fn digest(file: &Path) -> io::Result<Option<(Hash, u64)>> {
    let file = match File::open(file) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let metadata = file.metadata()?;
    metadata.is_file().then(|| Ok((hash_of(&file, 0, metadata.len())?, metadata.len()))).transpose()
}

/// The blobs that a line in normal form refers to, at any depth.
pub fn references(line: &[u8]) -> impl Iterator<Item = Hash> + '_ {
    // In a string the quotes would be escaped, so each match is a member.
    REFERENCE.find_iter(line).filter_map(|at| {
        let digits = line.get(at + REFERENCE.needle().len()..)?;
        let (hash, rest) = digits.split_at_checked(64)?;
        rest.starts_with(b"\",\"len\":").then(|| Hash::from_hex(hash)).flatten()
    })
}

/// True if a line may carry a blob in place of a value.
pub(crate) fn is_referred_to(line: &[u8]) -> bool {
    REFERENCE.find(line).is_some()
}

/// Stores a value, and returns the reference that replaces it in a line. Text is stored as its bytes, any other value
/// as JSON.
fn reference(ledger: &Path, value: &[u8]) -> Result<String> {
    Ok(match json::unquote(value).filter(|_| value.starts_with(b"\"")) {
        Some(text) => format!("{{\"blob\":\"{}\",\"len\":{}}}", store(ledger, text.as_bytes())?, text.len()),
        None => format!("{{\"blob\":\"{}\",\"len\":{},\"json\":true}}", store(ledger, value)?, value.len()),
    })
}

/// The JSON of the value that a reference stands for; `None` if `value` is not a reference.
pub fn resolve(ledger: &Path, value: &[u8]) -> Result<Option<Vec<u8>>> {
    let Some((hash, is_json)) = named_by(value) else { return Ok(None) };
    let bytes = load(ledger, &hash)?;
    if is_json {
        return Ok(Some(bytes));
    }
    let text = String::from_utf8(bytes).map_err(|_| Error::validation(format!("blob {hash} is not text")))?;
    let mut quoted = Vec::with_capacity(text.len() + 2);
    json::string(&text, &mut quoted);
    Ok(Some(quoted))
}

/// The blob that a reference names, and true if it is JSON rather than a text.
fn named_by(value: &[u8]) -> Option<(Hash, bool)> {
    let mut parts = members(inside(value)?);
    let hash = parts.next().filter(|(name, _)| *name == b"blob").and_then(|(_, hash)| json::unquote(hash))?;
    let hash = Hash::parse(&hash)?;
    parts.next().filter(|(name, _)| *name == b"len")?;
    let is_json = match parts.next() {
        None => false,
        Some((b"json", b"true")) => true,
        Some(_) => return None,
    };
    Some((hash, is_json))
}

/// Finishes the body of an entry that starts there with the members that the ledger itself sets: counts what was replaced
/// or taken out, keeps the original bytes, and makes it short enough for a line of the ledger at `path`.
pub(crate) fn finish(path: &Path, body: &mut Vec<u8>, start: usize, entry: &Entry, redactions: u32) -> Result<()> {
    if entry.replaced() > 0 {
        count_in_data(body, start, "replaced", entry.replaced());
    }
    if redactions > 0 {
        count_in_data(body, start, "redactions", u64::from(redactions));
    } else if let Some(original) = entry.original() {
        // With a secret in it the original is not kept: nothing can be taken out of bytes that are not text.
        let hash = store(path, original)?;
        let reference = format!("{{\"blob\":\"{hash}\",\"len\":{}}}", original.len());
        put_in_data(body, start, "original", reference.as_bytes());
    }
    shrink(path, body, start, LINE_LIMIT - FRAME)
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

/// Moves the largest values of a body into blobs until it is at most `limit` bytes long.
fn shrink(ledger: &Path, body: &mut Vec<u8>, from: usize, limit: usize) -> Result<()> {
    while body.len() - from > limit {
        let Some((start, end)) = largest_value(&body[from..]) else {
            return Err(Error::validation("the entry is too large: its names and short texts alone exceed a line"));
        };
        let (start, end) = (from + start, from + end);
        let reference = reference(ledger, &body[start..end])?;
        body.splice(start..end, reference.into_bytes());
    }
    Ok(())
}

/// Where the largest value is that a blob may stand for: the content, the message, a member of data, or all of data.
fn largest_value(body: &[u8]) -> Option<(usize, usize)> {
    let place = |value: &[u8]| {
        let start = value.as_ptr() as usize - body.as_ptr() as usize;
        (start, start + value.len())
    };
    let mut values: Vec<&[u8]> = Vec::new();
    let mut whole = None;
    for (name, value) in members(body) {
        match name {
            b"content" | b"message" => values.push(value),
            b"data" if named_by(value).is_none() => {
                values.extend(members(inside(value)?).map(|(_, value)| value));
                whole = Some(value);
            }
            _ => {}
        }
    }
    let largest = values.into_iter().filter(|value| value.len() >= SMALLEST).max_by_key(|value| value.len());
    largest.or(whole.filter(|data| data.len() >= SMALLEST)).map(place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_values_move_and_come_back() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("l.jsonl");
        let text = "é\\\"".repeat(1000);
        let mut quoted = Vec::new();
        json::string(&text, &mut quoted);
        let list = format!("[{}]", vec!["1"; 800].join(","));
        let mut body =
            format!(r#","event":"e","message":{},"data":{{"a":1,"list":{list}}}"#, String::from_utf8_lossy(&quoted))
                .into_bytes();
        shrink(&ledger, &mut body, 0, 400).unwrap();
        let members: Vec<_> = members(&body).collect();
        assert_eq!(resolve(&ledger, members[1].1).unwrap(), Some(quoted));
        let data: Vec<_> = super::members(inside(members[2].1).unwrap()).collect();
        assert_eq!(data[0].1, b"1");
        assert_eq!(resolve(&ledger, data[1].1).unwrap(), Some(list.into_bytes()));
        assert!(json::is_normal(&[b"{", &body[1..], b"}"].concat()));
    }

    #[test]
    fn many_small_members_move_as_one() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("l.jsonl");
        let many: Vec<_> = (0..500).map(|n| format!("\"k{n}\":{n}")).collect();
        let data = format!("{{{}}}", many.join(","));
        let mut body = format!(r#","event":"e","data":{data}"#).into_bytes();
        shrink(&ledger, &mut body, 0, 400).unwrap();
        let members: Vec<_> = members(&body).collect();
        assert_eq!(resolve(&ledger, members[1].1).unwrap(), Some(data.into_bytes()));
    }

    #[test]
    fn a_changed_blob_is_not_served() {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("l.jsonl");
        let hash = store(&ledger, b"bytes").unwrap();
        assert_eq!(load(&ledger, &hash).unwrap(), b"bytes");
        std::fs::write(path(&ledger, &hash), b"other").unwrap();
        assert_eq!(load(&ledger, &hash).unwrap_err().code(), cp_common::Code::Integrity);
        assert_eq!(load(&ledger, &Hash::of(b"?")).unwrap_err().code(), cp_common::Code::NotFound);
    }
}
