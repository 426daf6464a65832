//! Files that entries say were read, written or run: each is hashed again where it still is, in the range that was read.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use cp_common::{Result, signals};
use cp_ledger::format::line::Hash;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::claim::{Claims, Entry, Verdict};

/// The part of a file that a hash is over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Part {
    path: PathBuf,
    offset: u64,
    /// All that follows, where it does not say.
    bytes: Option<u64>,
}

/// What was hashed already: many turns read the same files.
#[derive(Default)]
pub(super) struct Reads(HashMap<Part, Option<String>>);

impl Reads {
    pub(super) fn judge(&mut self, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let what = entry.data.get("what").and_then(Value::as_object);
        let lists = [
            ("declared_read", entry.data.get("declared_reads")),
            ("declared_write", entry.data.get("declared_writes")),
            ("declared_read", what.and_then(|what| what.get("reads"))),
            ("declared_write", what.and_then(|what| what.get("writes"))),
        ];
        for (claim, list) in lists {
            for file in list.and_then(Value::as_array).into_iter().flatten() {
                self.file(claim, file, entry, claims)?;
            }
        }
        match entry.data.get("exe") {
            Some(exe) if ["exec.intent", "exec.step", "exec.expanded", "exec.part"].contains(&entry.event.as_str()) => {
                self.file("executable", exe, entry, claims)
            }
            _ => Ok(()),
        }
    }

    fn file(&mut self, claim: &'static str, file: &Value, entry: &Entry<'_>, claims: &mut Claims<'_>) -> Result<()> {
        let claimed = file.get("sha256").or_else(|| file.get("hash")).and_then(Value::as_str);
        // A directory has no hash: it claims nothing that could be computed again.
        let (Some(path), Some(claimed)) = (file.get("path").and_then(Value::as_str), claimed) else { return Ok(()) };
        if Hash::parse(claimed).is_none() {
            return claims.say(entry.source(), claim, Verdict::Broken(format!("{path}: `{claimed}` is not a hash")));
        }
        let number = |name: &str| file.get(name).and_then(Value::as_u64);
        let is_part = claim == "declared_read";
        let part = Part {
            path: PathBuf::from(path),
            offset: number("offset").filter(|_| is_part).unwrap_or(0),
            bytes: number("bytes").filter(|_| is_part),
        };
        let known = self.0.get(&part).cloned();
        let found = if let Some(known) = known {
            known
        } else {
            let found = hash_of(&part)?;
            self.0.insert(part, found.clone());
            found
        };
        let verdict = match found {
            Some(found) if found == claimed => Verdict::Holds,
            Some(_) => Verdict::Unknown(format!("{path} has changed since")),
            None => Verdict::Unknown(format!("{path} is not there any more, or cannot be read")),
        };
        claims.say(entry.source(), claim, verdict)
    }
}

/// The hash of a part of a regular file; none if it cannot be read.
fn hash_of(part: &Part) -> Result<Option<String>> {
    let Some(mut file) = opened(&part.path, part.offset) else { return Ok(None) };
    let (mut hasher, mut block) = (Sha256::new(), vec![0; 256 << 10]);
    let mut left = part.bytes.unwrap_or(u64::MAX);
    while left > 0 {
        signals::check()?;
        let room = usize::try_from(left).unwrap_or(usize::MAX).min(block.len());
        match file.read(&mut block[..room]) {
            Ok(0) => break,
            Ok(read) => {
                hasher.update(&block[..read]);
                left -= read as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Ok(None),
        }
    }
    Ok(Some(Hash::from_raw(&hasher.finalize().into()).to_string()))
}

fn opened(path: &Path, offset: u64) -> Option<File> {
    // A pipe in the place of a file must not make the audit hang.
    if !path.is_absolute() || !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(offset)).ok()?;
    Some(file)
}
