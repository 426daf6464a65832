//! Sealed values: the line carries a salted hash, the value lies in a file beside the ledger, from where it can be taken away. The
//! chain stands either way.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cp_common::home::{lock, write_whole};
use cp_common::keys::{hex, random};
use cp_common::{Code, Error, Result, json};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::format::line::{Hash, inside, members};

/// The file of a ledger's sealed values.
pub fn path(ledger: &Path) -> PathBuf {
    let mut name = ledger.as_os_str().to_owned();
    name.push(".vault");
    name.into()
}

/// One row of the vault.
#[derive(Deserialize)]
struct Row<'a> {
    sealed: String,
    salt: String,
    #[serde(borrow)]
    value: &'a RawValue,
}

/// Replaces the value of a field in a body by its seal, and keeps it in the vault. A field that is not there is passed over.
pub fn seal(ledger: &Path, body: &mut Vec<u8>, start: usize, field: &str) -> Result<()> {
    let Some((from, to)) = place(&body[start..], field) else { return Ok(()) };
    let (from, to) = (start + from, start + to);
    let salt = random::<16>()?;
    let hash = Hash::of(&[&salt[..], &body[from..to]].concat());
    let mut row = format!("{{\"sealed\":\"{hash}\",\"salt\":\"{}\",\"value\":", hex(&salt)).into_bytes();
    row.extend_from_slice(&body[from..to]);
    row.extend_from_slice(b"}\n");
    // The value first: a seal without a value would be a loss, a value without a seal is only litter.
    keep(&path(ledger), &row)?;
    body.splice(from..to, format!("{{\"$sealed\":\"{hash}\"}}").into_bytes());
    Ok(())
}

/// Where the value of `message`, `content` or `data.NAME` is in a body.
fn place(body: &[u8], field: &str) -> Option<(usize, usize)> {
    let named = |object: &'_ [u8], name: &str| -> Option<(usize, usize)> {
        let mut spelt = Vec::new();
        json::string(name, &mut spelt);
        let (_, value) = members(object).find(|(found, _)| *found == &spelt[1..spelt.len() - 1])?;
        let start = value.as_ptr() as usize - body.as_ptr() as usize;
        Some((start, start + value.len()))
    };
    match field.split_once('.') {
        Some(("data", name)) => {
            let (from, to) = named(body, "data")?;
            named(inside(&body[from..to])?, name)
        }
        _ => named(body, field),
    }
}

/// Whether a field can be sealed.
pub fn is_field(field: &str) -> bool {
    matches!(field, "message" | "content") || field.strip_prefix("data.").is_some_and(|name| !name.is_empty())
}

fn locked(path: &Path) -> Result<File> {
    let failed = |e: std::io::Error| Error::io("cannot open the vault", e).in_file(path).fatal();
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).open(path).map_err(failed)?;
    lock(&file).map_err(|e| e.in_file(path).fatal())?;
    Ok(file)
}

fn keep(path: &Path, row: &[u8]) -> Result<()> {
    loop {
        let mut file = locked(path)?;
        if is_named(&file, path) {
            return file
                .write_all(row)
                .and_then(|()| file.sync_data())
                .map_err(|e| Error::io("cannot seal", e).in_file(path).fatal());
        }
        // Rewritten by `forget` while we waited.
    }
}

fn is_named(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), std::fs::metadata(path)) {
        (Ok(ours), Ok(named)) => (ours.dev(), ours.ino()) == (named.dev(), named.ino()),
        _ => false,
    }
}

/// The JSON of a sealed value, proved by its hash. `None` if it was taken away.
pub fn reveal(ledger: &Path, hash: &Hash) -> Result<Option<Box<RawValue>>> {
    let path = path(ledger);
    let text = read(&path)?;
    for line in text.lines() {
        let Ok(row) = serde_json::from_str::<Row<'_>>(line) else { continue };
        if Hash::parse(&row.sealed) != Some(*hash) {
            continue;
        }
        let salt = Hash::parse(&format!("{}{}", row.salt, "0".repeat(32))).map(|salt| salt.raw());
        let proof = salt.map(|salt| Hash::of(&[&salt[..16], row.value.get().as_bytes()].concat()));
        if proof != Some(*hash) {
            return Err(Error::new(Code::Integrity, "the value is not the one that was sealed").in_file(&path));
        }
        return Ok(Some(row.value.to_owned()));
    }
    Ok(None)
}

/// Takes a value away for good. False if it was not there.
pub fn forget(ledger: &Path, hash: &Hash) -> Result<bool> {
    let path = std::path::absolute(path(ledger))?;
    if !path.exists() {
        return Ok(false);
    }
    let _lock = locked(&path)?;
    let text = read(&path)?;
    let is_it =
        |line: &&str| serde_json::from_str::<Row<'_>>(line).is_ok_and(|row| Hash::parse(&row.sealed) == Some(*hash));
    let kept: Vec<&str> = text.split_inclusive('\n').filter(|line| !is_it(line)).collect();
    if kept.len() == text.split_inclusive('\n').count() {
        return Ok(false);
    }
    write_whole(&path, kept.concat().as_bytes())?;
    Ok(true)
}

fn read(path: &Path) -> Result<String> {
    match std::fs::read_to_string(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.map_err(|e| Error::io("cannot read the vault", e).in_file(path)),
    }
}
